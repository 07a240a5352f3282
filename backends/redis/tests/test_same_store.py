"""Services on Redis: its server is emptied or refuses the password, and a warning comes once."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.redis.tests.servers import AOF, Server, single, until
from backends.redis.tests.topologies import url_of
from tests.support.pets import AVAILABLE_REX
from tests.support.services import Live, process

pytestmark = pytest.mark.slow

PATHS = ("/v1/pets", "/v1/pets/1", "/v1/store/orders", "/readyz")


def flush(server: Server) -> None:
    server.call("FLUSHALL")


def restart_without_its_file(server: Server) -> None:
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    server.start()


def copy_an_empty_one(server: Server) -> None:
    with single(server.directory) as empty:
        server.call("REPLICAOF", "127.0.0.1", empty.port)
        until(lambda: not server.call("DBSIZE"))
        server.call("REPLICAOF", "NO", "ONE")


def statuses(live: Live, method: str, path: str) -> set[int]:
    """Return the status codes of requests over connections of their own: of both workers."""
    found = set()
    for _ in range(12):
        with live.new_client() as client:
            body = AVAILABLE_REX if method == "POST" else None
            found.add(client.request(method, path, json=body).status_code)
    return found


@pytest.mark.parametrize("empty", [flush, restart_without_its_file, copy_an_empty_one])
def test_no_worker_serves_a_server_that_was_emptied_nor_makes_a_store_there(
    tmp_path: Path, empty: Callable[[Server], None]
) -> None:
    with single(tmp_path, *AOF) as server:
        settings = {"backend": "redis", "redis_url": url_of(server), "workers": "2"}
        with process(tmp_path, **settings) as live:
            for _ in range(3):
                assert live.client.post("/v1/pets", json=AVAILABLE_REX).status_code == 201
            empty(server)
            refused = "was emptied: it has nothing of the store that was opened"
            ends = "nothing is served until the service is restarted"
            until(lambda: ends in live.log.read_text())
            until(lambda: statuses(live, "GET", "/readyz") == {503})
            for path in PATHS:
                assert statuses(live, "GET", path) == {503}, path
            assert statuses(live, "POST", "/v1/pets") == {503}
            [line] = [line for line in live.log.read_text().splitlines() if ends in line]
            assert refused in line
            victim = live.workers()[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: len({*live.workers()} - {victim}) == 2)
            assert statuses(live, "GET", "/readyz") == {503}
            assert server.call("KEYS", "*") == []


def test_the_warning_of_the_start_comes_once(tmp_path: Path) -> None:
    with single(tmp_path) as server:
        settings = {"redis_url": url_of(server), "workers": "2", "log": "text"}
        with process(tmp_path, backend="redis", **settings) as live:
            for victim in live.workers():
                os.kill(victim, signal.SIGKILL)
                until(lambda victim=victim: len({*live.workers()} - {victim}) == 2)  # type: ignore[misc] # its default confuses mypy
            until(lambda: len(server.call("CLIENT LIST")) == 3)  # this one, too
            assert live.log.read_text().count("has no AOF") == 1
            live.stop()
