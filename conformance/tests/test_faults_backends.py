"""Fault injection, on every backend of this repository: all of them survive.

PETSTORE_FAULT_MINUTES sets how long each run takes; the figures are printed.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import petstore_postgres
import petstore_redis
import pytest
from petstore_conformance import FaultConformance
from petstore_conformance.faults.stages import RESTORE
from petstore_postgres import PostgresSettings
from petstore_redis import RedisSettings

from backends.postgres.tests import servers as postgres
from backends.redis.tests import servers as redis
from backends.redis.tests.topologies import cluster, sentinel, url_of
from tests.support.failovers import Failovers
from tests.support.installed import conformance, judged

MINUTES = float(os.environ.get("PETSTORE_FAULT_MINUTES", "0.02"))
pytestmark = pytest.mark.timeout(600 + 60 * MINUTES)


def survives(name: str, directory: Path, **settings: str) -> dict[str, Any]:
    """Run the command; return the figures of a backend that survives it."""
    report = directory / "report.json"
    flags = ("--faults", f"--minutes={MINUTES}", f"--json={report}")
    run = judged(conformance(name, directory, *flags, **settings))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == f"{name} survives the faults"
    found = json.loads(report.read_text())
    sys.stdout.write(f"{name}: {found['counts']}\n")
    counts: dict[str, Any] = found["counts"]
    assert counts["requests"] > 0
    return counts


@pytest.mark.slow
def test_memory_survives_and_only_one_life_of_the_service_is_judged(tmp_path: Path) -> None:
    assert survives("memory", tmp_path)["kills"] > 0


def test_sqlite_survives(tmp_path: Path) -> None:
    counts = survives("sqlite", tmp_path, sqlite_path=str(tmp_path / "pets.sqlite"))
    assert counts["kills"] + counts["other_faults"] > 0  # the only round may restore a copy


class TestPostgres(FaultConformance):
    backend, name, minutes = petstore_postgres.backend, "postgres", MINUTES

    @pytest.fixture(autouse=True)
    def place(self) -> Iterator[None]:
        with postgres.single() as running:
            self.server_stop, self.server_kill = running.stop, running.kill
            self.server_start = running.start
            type(self).settings = PostgresSettings(running.url(sslmode="disable"))
            self.running = running
            yield


@pytest.mark.slow
class TestPostgresRestored(TestPostgres):
    """The server's files are replaced by an older copy of them."""

    faults = (RESTORE,)

    def server_save(self) -> None:
        self._copy(self.running.data, self.running.directory / "copy")

    def server_restore(self) -> None:
        self._copy(self.running.directory / "copy", self.running.data)

    def _copy(self, source: Path, target: Path) -> None:
        self.running.stop()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        self.running.configure()  # the files get their owner
        self.running.start()


class TestRedis(FaultConformance):
    backend, name, minutes = petstore_redis.backend, "redis", MINUTES

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        with redis.single(tmp_path, *redis.AOF) as running:
            self.server_kill, self.server_start = running.kill, running.start
            type(self).settings = RedisSettings(url_of(running))
            yield


class Replicated(FaultConformance):
    """A master is killed, another one takes over, and the old one comes back as a replica.

    One of the two replicas must confirm each write. That keeps what is acknowledged while
    processes are killed; nothing is promised for partitions of the network.
    """

    backend, name, minutes = petstore_redis.backend, "redis", MINUTES
    failovers: Failovers

    def server_kill(self) -> None:
        self.failovers.kill()

    def server_start(self) -> None:
        self.failovers.start()


@pytest.mark.slow
class TestSentinels(Replicated):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        with sentinel(tmp_path, *redis.AOF, hasty=True) as group:
            type(self).settings = RedisSettings(url_of(group), wait_replicas=1)
            self.failovers = Failovers(group)
            yield
        assert self.failovers.count


@pytest.mark.slow
class TestCluster(Replicated):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        with cluster(tmp_path, *redis.AOF, replicas=2) as group:
            settings = RedisSettings(url_of(group), wait_replicas=1, partitions=8)
            type(self).settings = settings
            self.failovers = Failovers(group)
            yield
        assert self.failovers.count
