"""The compose file, started by podman-compose: the service, its storage and their networks.

Without systemd `depends_on` does not wait until a service is healthy: the tests wait instead.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.container.engine import DOCKER, Engine
from tests.support.key_files import key_line
from tests.support.pets import AVAILABLE_REX
from tests.support.ports import free_port
from tests.support.services import KEY, OTHER_KEY, Live
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("container")]

SUBNET: Final = "10.213.47"  # the first three numbers of the addresses in the compose file


def free_subnet() -> str:
    """Return the first three numbers of addresses that this machine has no route to."""
    routes = subprocess.run(
        ["ip", "-4", "route"], capture_output=True, text=True, check=True
    ).stdout
    return next(free for n in range(256) if (free := f"10.213.{n}") + "." not in routes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of docker/ with a key file that the service can read and a free network."""
    copy = shutil.copytree(DOCKER, tmp_path / "docker")
    (copy / "keys").write_text(key_line("shop", KEY) + "\n")
    file = copy / "compose.yaml"
    text = file.read_text()
    assert SUBNET in text
    file.write_text(text.replace(SUBNET, free_subnet()))
    return copy


@contextmanager
def up(engine: Engine, folder: Path, service: str) -> Iterator[Live]:
    """Start a service and its dependencies; yield a client, remove everything at the end."""
    published = free_port()
    (folder / ".env").write_text(f"{service.upper().replace('-', '_')}_PORT={published}\n")
    profiles = ("--profile", "sentinel", "--profile", "postgres")
    compose = ("podman-compose", "--file", folder / "compose.yaml", *profiles)
    try:
        engine.call(*compose, "up", "--detach", "--no-build", service)
        engine.until_healthy(f"petstore_{service}_1")
        live = Live("127.0.0.1", published)
        with live.client:
            yield live
    finally:
        engine.call(*compose, "down", "--volumes", "--timeout=0", status=None)


@pytest.mark.parametrize(
    ("service", "storage"), [("petstore", "redis"), ("petstore-postgres", "postgres")]
)
def test_a_service_and_its_storage_start(
    engine: Engine, folder: Path, service: str, storage: str
) -> None:
    with up(engine, folder, service) as live:
        engine.until_healthy(f"petstore_{storage}_1")
        created = live.client.post("/v1/pets", json=AVAILABLE_REX)
        assert created.status_code == 201
        engine.podman("restart", f"petstore_{storage}_1")
        until(lambda: live.client.get("/v1/pets").json() == [created.json()])
        log = engine.logs(f"petstore_{service}_1").splitlines()
        assert not [line for line in log if "warning" in line], "the storage must be durable"

        # Not replaced: the container has mounted this very file.
        with (folder / "keys").open("a") as file:
            file.write(key_line("shop", OTHER_KEY) + "\n")
        with live.new_client(OTHER_KEY) as other:
            until(lambda: other.get("/v1/pets").status_code == 200)


def knows_both_replicas(engine: Engine, number: int) -> bool:
    """Return whether the Sentinel with this number knows both replicas of the master."""
    command = ("exec", f"petstore_sentinel-{number}_1", "valkey-cli", "-p", "26379")
    return "\nnum-slaves\n2\n" in engine.podman(*command, "sentinel", "master", "pets")


def test_a_replica_is_promoted_when_the_master_fails(engine: Engine, folder: Path) -> None:
    with up(engine, folder, "petstore-sentinel") as live:
        for name in ("sentinel-1", "sentinel-2", "sentinel-3", "redis-2", "redis-3"):
            engine.until_healthy(f"petstore_{name}_1")
        for number in (1, 2, 3):  # each discovers replicas every ten seconds
            until(partial(knows_both_replicas, engine, number))
        first = live.client.post("/v1/pets", json=AVAILABLE_REX).json()
        engine.podman("kill", "petstore_redis-1_1")
        until(lambda: live.client.post("/v1/pets", json=AVAILABLE_REX).status_code == 201)
        assert live.client.get("/v1/pets").json()[0] == first
        engine.podman("start", "petstore_redis-1_1")
        info = ("exec", "petstore_redis-1_1", "valkey-cli", "info", "replication")
        until(lambda: "role:slave" in engine.podman(*info, status=None))
