"""Restarts: a drain in which no request fails, and an end without a traceback."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from petstore.server.connection import ARRIVAL_SECONDS
from petstore.server.listener import Turns
from tests.support.metrics import scrape
from tests.support.pets import REX, add_pet
from tests.support.raw_http import begin_body
from tests.support.responses import check_error
from tests.support.services import (
    KEY,
    ONE_OR_TWO_WORKERS,
    Live,
    Start,
    in_thread,
    process,
    receive_all,
)
from tests.support.waiting import HANG_SECONDS, until

RESTARTS = int(os.environ.get("PETSTORE_RESTARTS", "8"))
CLIENTS = 16


class Clients:
    """Clients of the service that currently runs, as a load balancer would choose it."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.responses = 0
        self.failures: list[str] = []
        self.over = False

    async def run(self, *, keep: bool) -> None:
        """Send requests, one after the other.

        A service that stops closes a connection whose request does not come in time. So it is no
        failure if this process, on a busy machine, was late itself.

        keep -- whether over a connection that is kept if possible, so that none may be refused;
            otherwise each is sent over a new one, and one that is refused goes to the next service
        """
        head = f"GET /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        request = head.encode() + (b"\r\n" if keep else b"Connection: close\r\n\r\n")
        streams, late = None, False
        while not self.over:
            begin = time.monotonic()
            try:
                if streams is None:
                    streams = await asyncio.open_connection(self.live.host, self.live.port)
                    late = not keep and time.monotonic() - begin > ARRIVAL_SECONDS / 2
            except OSError as error:  # nothing was sent
                self.failures += [repr(error)] * keep
                await asyncio.sleep(0.02)
                continue
            reader, writer = streams
            try:
                writer.write(request)
                response = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)  # the body: []
            except (OSError, EOFError) as error:
                self.failures += [repr(error)] * (not late)
                writer.close()
                streams = None
                continue
            self.responses += 1
            if not response.startswith(b"HTTP/1.1 200 ") and not late:
                self.failures.append(response.decode())
            if b"\r\nconnection: close\r\n" in response:
                writer.close()
                streams = None
        if streams is not None:
            streams[1].close()


@pytest.mark.slow
def test_a_rolling_restart_with_keep_alive_clients_fails_no_request(start: Start) -> None:
    async def restart(clients: Clients) -> None:
        tasks = [asyncio.create_task(clients.run(keep=True)) for _ in range(CLIENTS)]
        for _ in range(RESTARTS):
            old = clients.live
            clients.live = await asyncio.to_thread(start, log="off")
            await asyncio.sleep(0.2)
            assert await asyncio.to_thread(old.stop) == 0
        clients.over = True
        await asyncio.gather(*tasks)

    clients = Clients(start(log="off"))
    asyncio.run(restart(clients))
    assert clients.failures == []
    assert clients.responses >= 10 * CLIENTS * RESTARTS
    sys.stdout.write(f"{clients.responses} requests over {RESTARTS} restarts\n")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_connection_is_reset_at_the_end_of_the_drain(start: Start, workers: str) -> None:
    async def stop(clients: Clients) -> None:
        tasks = [asyncio.create_task(clients.run(keep=False)) for _ in range(64)]
        for _ in range(RESTARTS * 2):
            await asyncio.sleep(0.3)
            assert await asyncio.to_thread(clients.live.stop) == 0
            clients.live = await asyncio.to_thread(begin)
        clients.over = True
        await asyncio.gather(*tasks)

    def begin() -> Live:
        return start(log="off", drain_seconds="0.2", workers=workers)

    clients = Clients(begin())
    asyncio.run(stop(clients))
    assert clients.failures == []
    assert clients.responses >= 100 * RESTARTS
    sys.stdout.write(f"{clients.responses} requests over {RESTARTS * 2} stops\n")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers take no turns")
def test_a_connection_that_waits_at_the_end_of_the_drain_is_served() -> None:
    """It is left for a while to another worker, which has fewer but never accepts any."""
    with ExitStack() as stack:
        with in_thread(turns=Turns([0, 0], [0, 0], 0)) as live:

            def ask() -> socket.socket:
                connection = socket.create_connection((live.host, live.port), HANG_SECONDS)
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                return stack.enter_context(connection)

            assert ask().recv(100).startswith(b"HTTP/1.1 200 ")
            waiting = ask()
        assert receive_all(waiting).startswith(b"HTTP/1.1 200 ")


def test_while_draining_responses_close_connections_and_readiness_is_503(start: Start) -> None:
    live = start(drain_seconds="600")
    assert "connection" not in live.client.get("/v1/pets").headers
    live.popen.send_signal(signal.SIGINT)
    until(lambda: "stopping: draining" in live.log.read_text())
    with live.new_client() as client:
        response = client.get("/v1/pets")
        assert (response.status_code, response.headers["connection"]) == (200, "close")
        ready = client.get("/readyz")
        check_error(ready, 503, "unavailable")
        assert int(ready.headers["retry-after"]) >= 1
        assert client.get("/livez").status_code == 200
    assert live.stop(signal.SIGTERM) == 0  # a second signal ends the drain
    log = live.log.read_text()
    assert "Traceback" not in log
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"


def test_a_second_signal_after_the_drain_still_closes_the_storage(tmp_path: Path) -> None:
    database = tmp_path / "pets.sqlite"
    with process(
        tmp_path,
        backend="sqlite",
        sqlite_path=str(database),
        drain_seconds="0",
        shutdown_seconds="30",
    ) as live:
        add_pet(live)
        assert Path(f"{database}-wal").exists()
        with begin_body(live, "Content-Length: 9", b"{"):
            time.sleep(0.3)
            live.popen.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert live.popen.poll() is None  # it waits for the request in flight
            assert live.stop(signal.SIGTERM) == 0
    assert not Path(f"{database}-wal").exists()


CLOSES_BADLY = """
import asyncio, threading, time
from contextlib import asynccontextmanager
import msgspec, petstore_memory
from petstore import cli

real = petstore_memory.backend.open
opened = 0

@asynccontextmanager
async def open_(settings, expected):
    global opened
    opened += 1
    async with real(settings, expected) as repository:
        yield repository
    if opened == 2:  # the first time is the check at the start
        {how}

petstore_memory.backend = msgspec.structs.replace(petstore_memory.backend, open=open_)
cli.main()
"""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("await asyncio.sleep(600)", marks=pytest.mark.slow),
        pytest.param("await asyncio.to_thread(time.sleep, 600)", marks=pytest.mark.slow),
        "time.sleep(600)",
        "threading.Thread(target=time.sleep, args=(600,)).start()",
        "threading.Thread.start = None; time.sleep(600)",  # none can be started by then
    ],
)
def test_a_storage_that_does_not_close_does_not_hold_up_the_end(tmp_path: Path, how: str) -> None:
    script = CLOSES_BADLY.format(how=how)
    with process(tmp_path, script=script, drain_seconds="0.5", shutdown_seconds="1") as live:
        assert live.stop() == 1
    log = live.log.read_text()
    line = "still running 1.5 s after the signal: exiting without closing the storage"
    assert log.count(line) == ("start = None" not in how)
    assert "Traceback" not in log


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_write_that_waits_for_a_lock_does_not_hold_up_the_end(
    tmp_path: Path, workers: str
) -> None:
    settings = {
        "backend": "sqlite",
        "sqlite_path": f"{tmp_path}/pets.sqlite",
        "sqlite_busy_seconds": "60",
        "workers": workers,
        "drain_seconds": "0",
        "shutdown_seconds": "6",
        "metrics_listen": "127.0.0.1:0",
    }
    with ThreadPoolExecutor(1) as pool, process(tmp_path, **settings) as live:
        lock = sqlite3.connect(f"{tmp_path}/pets.sqlite", isolation_level=None)
        with closing(lock):
            lock.execute("BEGIN IMMEDIATE")
            response = pool.submit(live.client.post, "/v1/pets", json=REX)
            until(lambda: scrape(live)["petstore_http_requests_in_flight",] == 1)
            assert live.stop() == 0
        assert response.result().status_code == 503


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_after_the_drain_new_connections_are_refused_and_requests_in_flight_finished(
    start: Start, workers: str
) -> None:
    live = start(workers=workers, drain_seconds="0", shutdown_seconds="10")
    first, rest = b'{"name":', b'"late","categoryId":1}'
    with begin_body(live, f"Content-Length: {len(first + rest)}", first) as connection:
        live.popen.terminate()
        until(lambda: not accepts(live))
        connection.sendall(rest)
        assert receive_all(connection).startswith(b"HTTP/1.1 201 ")
    assert live.popen.wait(HANG_SECONDS) == 0


def accepts(live: Live) -> bool:
    """Return whether the service accepts a connection."""
    try:
        socket.create_connection((live.host, live.port), timeout=1).close()
    except ConnectionError:
        return False
    return True
