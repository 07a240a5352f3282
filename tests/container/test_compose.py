"""The compose file, really started: the service, its storage and their networks.

podman-compose does it, whose `depends_on` waits for no health here: the tests wait instead.
"""

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.container.engine import DOCKER, SECONDS, Engine
from tests.live import KEY, OTHER_KEY, Live, key_line

PET = {"name": "Rex", "categoryId": 7, "status": "available"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the folder, with a key file that the service may read."""
    copy = shutil.copytree(DOCKER, tmp_path / "docker")
    (copy / "keys").write_text(key_line("shop", KEY) + "\n")
    return copy


@contextmanager
def up(engine: Engine, folder: Path, service: str, port: str) -> Iterator[Live]:
    """Start a service and what it depends on; yield a client, remove all in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    (folder / ".env").write_text(f"{port}={number}\n")
    compose = ("podman-compose", "--file", folder / "compose.yaml", "--profile", "sentinel")
    try:
        engine.call(*compose, "up", "--detach", "--no-build", service)
        engine.until_healthy(f"petstore_{service}_1")
        live = Live("127.0.0.1", number)
        yield live
        live.client.close()
    finally:
        engine.call(*compose, "down", "--volumes", "--timeout=0", status=None)


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


def replicas(master: str) -> int:
    """Return how many replicas a Sentinel knows, from what it says of a master."""
    lines = master.splitlines()
    return int(lines[lines.index("num-slaves") + 1])


def test_the_service_and_its_storage_start(engine: Engine, folder: Path) -> None:
    with up(engine, folder, "petstore", "PETSTORE_PORT") as live:
        engine.until_healthy("petstore_redis_1")
        created = live.client.post("/v1/pets", json=PET)
        assert created.status_code == 201
        engine.podman("restart", "petstore_redis_1")
        until(lambda: live.client.get("/v1/pets").json() == [created.json()])
        log = engine.logs("petstore_petstore_1")
        assert "warning" not in log, "the storage keeps what was answered"

        with (folder / "keys").open("a") as file:  # the same file: it is what the container sees
            file.write(key_line("shop", OTHER_KEY) + "\n")
        other = httpx.Client(base_url=live.url, headers={"Authorization": f"Bearer {OTHER_KEY}"})
        with other:
            until(lambda: other.get("/v1/pets").status_code == 200)


def test_another_master_takes_over(engine: Engine, folder: Path) -> None:
    with up(engine, folder, "petstore-sentinel", "PETSTORE_SENTINEL_PORT") as live:
        for name in ("sentinel-1", "sentinel-2", "sentinel-3", "redis-2", "redis-3"):
            engine.until_healthy(f"petstore_{name}_1")
        for number in (1, 2, 3):  # they ask for replicas every ten seconds
            ask = ("exec", f"petstore_sentinel-{number}_1", "valkey-cli", "-p", "26379")
            until(lambda ask=ask: replicas(engine.podman(*ask, "sentinel", "master", "pets")) == 2)  # type: ignore[misc]
        first = live.client.post("/v1/pets", json=PET).json()
        engine.podman("kill", "petstore_redis-1_1")
        until(lambda: live.client.post("/v1/pets", json=PET).status_code == 201)
        assert live.client.get("/v1/pets").json()[0] == first
        engine.podman("start", "petstore_redis-1_1")
        info = ("exec", "petstore_redis-1_1", "valkey-cli", "info", "replication")
        until(lambda: "role:slave" in engine.podman(*info, status=None))
