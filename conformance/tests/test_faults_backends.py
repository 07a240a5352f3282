"""Fault injection, on every backend of this repository: all of them survive.

PETSTORE_FAULT_MINUTES sets how long each run takes; the figures are printed.
"""

import json
import os
import secrets
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import petstore_postgres
import petstore_redis
import pytest
from petstore_conformance.faults import session
from petstore_conformance.faults.stages import RESTORE
from petstore_conformance.faults.subjects import FaultOptions, Subject
from petstore_conformance.harness.kit import INCONCLUSIVE_REASON
from petstore_postgres import PostgresSettings
from petstore_redis import RedisSettings

from backends.postgres.tests import servers as postgres
from backends.redis.tests import servers as redis
from backends.redis.tests.topologies import cluster, sentinel, url_of
from tests.support.failovers import Failovers
from tests.support.installed import conformance, judged
from tests.support.redis_servers import Group

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


def check_survives(name: str, settings: Any, **options: Any) -> None:
    """Run the same in this process, where functions take the place of shell commands."""
    backend = {"postgres": petstore_postgres.backend, "redis": petstore_redis.backend}[name]
    seed = secrets.randbelow(2**32)
    tally = session.run(
        Subject(name, name, backend, settings), FaultOptions(minutes=MINUTES, seed=seed, **options)
    )
    assert not tally.violations, "\n".join(tally.lines())
    if tally.slow:
        pytest.skip(f"{INCONCLUSIVE_REASON}: {tally.slow[0]}")


def check_postgres_survives(running: postgres.Server, **options: Any) -> None:
    check_survives(
        "postgres",
        PostgresSettings(running.url(sslmode="disable")),
        server_stop=running.stop,
        server_kill=running.kill,
        server_start=running.start,
        **options,
    )


def test_postgres_survives() -> None:
    with postgres.single() as running:
        check_postgres_survives(running)


@pytest.mark.slow
def test_postgres_notices_that_its_files_are_an_older_copy() -> None:
    with postgres.single() as running:
        saved = running.directory / "copy"

        def copy(source: Path, target: Path) -> None:
            running.stop()
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
            running.configure()  # the files get their owner
            running.start()

        check_postgres_survives(
            running,
            only=(RESTORE,),
            server_save=partial(copy, running.data, saved),
            server_restore=partial(copy, saved, running.data),
        )


def test_redis_survives(tmp_path: Path) -> None:
    with redis.single(tmp_path, *redis.AOF) as running:
        settings = RedisSettings(url_of(running))
        check_survives("redis", settings, server_kill=running.kill, server_start=running.start)


def check_failovers(group: Group, settings: RedisSettings) -> None:
    """Kill a master; another one takes over, and the old one comes back as a replica.

    One of the two replicas must confirm each write. That keeps what is acknowledged while
    processes are killed; nothing is promised for partitions of the network.
    """
    failovers = Failovers(group)
    check_survives("redis", settings, server_kill=failovers.kill, server_start=failovers.start)
    assert failovers.count


@pytest.mark.slow
def test_redis_with_sentinels_survives(tmp_path: Path) -> None:
    with sentinel(tmp_path, *redis.AOF, hasty=True) as group:
        check_failovers(group, RedisSettings(url_of(group), wait_replicas=1))


@pytest.mark.slow
def test_a_redis_cluster_survives(tmp_path: Path) -> None:
    with cluster(tmp_path, *redis.AOF, replicas=2) as group:
        check_failovers(group, RedisSettings(url_of(group), wait_replicas=1, partitions=8))
