"""Services with two workers whose Redis is emptied, or made another store: no worker serves it."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from backends.redis.tests.servers import QUICK, VALKEY, Server, servers, until
from backends.redis.tests.topologies import url_of
from tests.support.pets import AVAILABLE_REX
from tests.support.services import Live, process
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

PATHS = ("/v1/pets", "/v1/pets/1", "/v1/store/orders", "/readyz")


def flush(server: Server, _: Server) -> None:
    server.call("FLUSHALL")


def restart_without_its_file(server: Server, _: Server) -> None:
    server.kill()
    for path in server.directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix in {".aof", ".rdb"}:
            path.unlink()
    server.start()


def copy_an_empty_one(server: Server, empty: Server) -> None:
    server.call("REPLICAOF", "127.0.0.1", empty.port)
    until(lambda: not server.call("DBSIZE"))
    server.call("REPLICAOF", "NO", "ONE")


def statuses(live: Live, method: str, path: str) -> set[int]:
    """Return the status codes of requests over connections of their own: of both workers."""
    found = set()
    body = json.dumps(AVAILABLE_REX)
    headers = {"Authorization": f"Bearer {live.key}", "Content-Type": "application/json"}
    for _ in range(12):
        with closing(HTTPConnection(live.host, live.port, timeout=HANG_SECONDS)) as connection:
            connection.request(method, path, body if method == "POST" else None, headers)
            found.add(connection.getresponse().status)
    return found


@pytest.mark.parametrize("empty", [flush, restart_without_its_file, copy_an_empty_one])
def test_no_worker_serves_a_server_that_was_emptied_nor_makes_a_store_there(
    tmp_path: Path, empty: Callable[[Server, Server], None]
) -> None:
    with servers(tmp_path, VALKEY, 2) as make:
        server = make(0, *QUICK, "appendonly yes", "appendfsync always").start()
        other = make(1, *QUICK).start()
        settings = {"backend": "redis", "redis_url": url_of(server), "workers": "2"}
        with process(tmp_path, **settings) as live:
            for _ in range(3):
                assert live.client.post("/v1/pets", json=AVAILABLE_REX).status_code == 201
            empty(server, other)
            refused = "was emptied: it has nothing of the store that was opened"
            ends = "nothing is served until it is as it was, or the service is restarted"
            until(lambda: live.log.read_text().count(ends) == 2)  # each worker once, nobody wrote
            for path in PATHS:
                assert statuses(live, "GET", path) == {503}, path
            assert statuses(live, "POST", "/v1/pets") == {503}
            lines = live.log.read_text().splitlines()
            assert sum(ends in line for line in lines) == 2
            assert all(refused in line for line in lines if ends in line)
            victim = live.workers()[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: "not the store" in live.log.read_text())  # that is expected: it ends
            assert statuses(live, "GET", "/readyz") == {503}
            assert server.call("KEYS", "*") == []
