"""Start and stop: the storage before the port, a drain that fails nobody, an end without noise."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import Start
from tests.live import KEY, Live, process
from tests.test_specification import check_error

RESTARTS = int(os.environ.get("PETSTORE_RESTARTS", "2"))
CLIENTS = 16


class Place:
    """Where clients find the service, as a load balancer would tell them."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.answered = 0
        self.failures: list[str] = []
        self.over = False

    async def keep_asking(self) -> None:
        """Send one request after the other over a connection that is kept as long as it may be."""
        request = (
            f"GET /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
        )
        streams = None
        while not self.over:
            try:
                if streams is None:
                    streams = await asyncio.open_connection(self.live.host, self.live.port)
                reader, writer = streams
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)  # the body: []
            except (OSError, EOFError) as error:
                self.failures.append(repr(error))
                streams = None
                continue
            self.answered += 1
            if not head.startswith(b"HTTP/1.1 200 "):
                self.failures.append(head.decode())
            if b"\r\nconnection: close\r\n" in head:
                writer.close()
                streams = None
        if streams is not None:
            streams[1].close()


def test_a_rolling_restart_under_keep_alive_clients_fails_no_request(start: Start) -> None:
    async def run(place: Place) -> None:
        clients = [asyncio.create_task(place.keep_asking()) for _ in range(CLIENTS)]
        for _ in range(RESTARTS):
            old = place.live
            place.live = await asyncio.to_thread(start, log="off")
            await asyncio.sleep(0.2)
            assert await asyncio.to_thread(old.stop) == 0
        place.over = True
        await asyncio.gather(*clients)

    place = Place(start(log="off"))
    asyncio.run(run(place))
    assert place.failures == []
    assert place.answered >= 1000 * RESTARTS
    sys.stdout.write(f"{place.answered} requests over {RESTARTS} restarts\n")


def test_while_draining_answers_ask_clients_to_go_and_readiness_is_503(start: Start) -> None:
    live = start(drain_seconds="2")
    assert live.process is not None
    assert "connection" not in live.client.get("/v1/pets").headers
    live.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    with httpx.Client(base_url=live.url, headers=live.client.headers) as client:
        answer = client.get("/v1/pets")
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        ready = client.get("/readyz")
        check_error(ready, 503, "unavailable")
        assert int(ready.headers["retry-after"]) >= 1
        assert client.get("/livez").status_code == 200
    assert live.process.wait(10) == 0


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_with_status_0_and_no_traceback(
    tmp_path: Path, signal_: int
) -> None:
    with process(tmp_path, drain_seconds="0") as live:
        live.client.get("/v1/pets")
        assert live.stop(signal_) == 0
    log = (tmp_path / "serve.log").read_text()
    assert "Traceback" not in log
    assert log.splitlines()[-1].endswith('"event":"stopped"}')


async def interrupted(live: Live, first: bytes, rest: bytes, length: int) -> bytes:
    """Begin to send a body, tell the service to stop, send the rest; return what comes back."""
    assert live.process is not None
    reader, writer = await asyncio.open_connection(live.host, live.port)
    head = (
        f"POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    writer.write(head.encode() + first)
    await asyncio.sleep(0.3)
    live.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    writer.write(rest)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_request_under_way_is_finished(start: Start) -> None:
    live = start(drain_seconds="0", shutdown_seconds="10")
    assert live.process is not None
    first, rest = b'{"name":', b'"late","categoryId":1}'
    answer = asyncio.run(interrupted(live, first, rest, len(first + rest)))
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert live.process.wait(10) == 0


def test_a_request_that_takes_longer_than_a_stop_may_is_503(start: Start) -> None:
    live = start(drain_seconds="0", shutdown_seconds="1")
    assert live.process is not None
    answer = asyncio.run(interrupted(live, b"{", b"", 100))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"unavailable"' in answer
    assert live.process.wait(10) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_after_the_drain_new_connections_are_refused(
    start: Start, tmp_path: Path, workers: str
) -> None:
    place = {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets.sqlite"}
    live = start(workers=workers, drain_seconds="0", shutdown_seconds="8", **place)
    assert live.process is not None
    with socket.create_connection((live.host, live.port)) as busy:
        busy.sendall(
            f"POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()
        )
        busy.sendall(b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
        live.process.terminate()
        end = time.monotonic() + 5
        while connects(live):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert live.process.poll() is None, "it still waits for the rest of a request"


def connects(live: Live) -> bool:
    """Return whether a connection is taken."""
    try:
        socket.create_connection((live.host, live.port), timeout=1).close()
    except ConnectionError:
        return False
    return True
