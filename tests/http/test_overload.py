"""Overload: more requests than slots, and clients that read too slowly."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from petstore.config.settings import Settings
from petstore.http.limits import LARGE_BODIES_BYTES
from petstore.server import connection as http_connection
from tests.support.pets import REX
from tests.support.responses import check_error
from tests.support.services import KEY, Live, in_thread, receive_all
from tests.support.waiting import until


@pytest.fixture
def full() -> Iterator[Live]:
    """Run a service with two slots, both held by requests that wait for the storage."""
    settings = Settings(drain_seconds=0, max_in_flight=2, rate_limit="100/h")
    with in_thread(settings) as live:
        arrived, proceed = threading.Semaphore(0), threading.Event()
        list_pets = live.state.repository.list_pets

        async def wait(*arguments: object) -> object:
            arrived.release()
            while not proceed.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.01)
            return await list_pets(*arguments)  # type: ignore[arg-type]

        live.state.repository.list_pets = wait  # type: ignore[assignment,method-assign]
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(live.client.get, "/v1/pets") for _ in range(2)]
            try:
                assert arrived.acquire(timeout=10)
                assert arrived.acquire(timeout=10)
                yield live
            finally:
                proceed.set()
            assert [request.result().status_code for request in waiting] == [200, 200]
        assert live.client.get("/v1/pets").status_code == 200, "the slots are free again"


def request_much(live: Live) -> socket.socket:
    """Request a response of 6 MB over a connection with a small receive buffer."""
    for _ in range(100):
        body = {"name": "n" * 60_000, "categoryId": 1}
        assert live.client.post("/v1/pets", json=body).status_code == 201
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(10)
    connection.connect((live.host, live.port))
    request = "GET /v1/pets?limit=100 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    connection.sendall(f"{request}Authorization: Bearer {KEY}\r\n\r\n".encode())
    return connection


def test_more_requests_than_may_be_in_flight_are_503_at_once(full: Live) -> None:
    response = full.client.get("/v1/pets/1")
    check_error(response, 503, "unavailable")
    assert response.headers["retry-after"] == "1"
    assert {"deprecation", "ratelimit"} <= response.headers.keys(), "as on its other responses"


def test_a_missing_key_is_401_even_without_a_free_slot(full: Live) -> None:
    with full.anonymous() as client:
        assert client.get("/v1/pets/1").status_code == 401


def test_health_and_reference_need_no_slot(full: Live) -> None:
    for path in ("/livez", "/openapi.json", "/docs"):
        assert full.client.get(path).status_code == 200


def test_a_client_that_reads_nothing_or_disconnects_holds_no_slot() -> None:
    with in_thread(Settings(drain_seconds=0, max_in_flight=1)) as live:
        lines = f"Host: h\r\nAuthorization: Bearer {KEY}\r\n"
        slow = [request_much(live)]  # its response is ready, but it never reads it
        for _ in range(3):
            with socket.create_connection((live.host, live.port), timeout=10) as gone:
                gone.sendall(f"POST /v1/pets HTTP/1.1\r\n{lines}Content-Length: 9\r\n".encode())
                gone.sendall(b"Content-Type: application/json\r\n\r\n{")
                time.sleep(0.05)
            until(lambda: live.client.get("/v1/pets/1").status_code == 200)
        slow[0].close()


def test_a_client_that_does_not_read_its_response_is_disconnected(
    fresh: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "RESPONSE_SECONDS", 0.5)
    with request_much(fresh) as connection:
        time.sleep(3.5)  # the service checks once a second
        assert len(receive_all(connection)) < 6_000_000


def test_a_client_that_reads_slowly_gets_the_whole_response(
    fresh: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "RESPONSE_SECONDS", 1)
    received = 0
    with request_much(fresh) as connection:
        begin = time.monotonic()
        while piece := connection.recv(65536):
            received += len(piece)
            time.sleep(0.025)
    assert time.monotonic() - begin > 2
    assert received > 6_000_000


MEGABYTE = 1_000_000


def begin_body(live: Live, framing: str, body: bytes) -> socket.socket:
    """Send a request whose body is not complete yet."""
    connection = socket.create_connection((live.host, live.port), timeout=20)
    lines = f"Host: h\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    connection.sendall(f"POST /v1/pets HTTP/1.1\r\n{lines}{framing}\r\n\r\n".encode() + body)
    return connection


def begin_large_body(live: Live) -> socket.socket:
    """Declare a body of ten megabytes, and send one byte of it."""
    return begin_body(live, f"Content-Length: {10 * MEGABYTE}", b"{")


def check_refused(connection: socket.socket) -> None:
    """Check that a request got a 503."""
    head = connection.recv(65536)
    assert head.startswith(b"HTTP/1.1 503 "), head
    assert b"\r\nretry-after: 1\r\n" in head
    connection.close()


def test_large_bodies_in_flight_are_bounded_together() -> None:
    settings = Settings(drain_seconds=0, max_body_bytes=10 * MEGABYTE)
    with in_thread(settings) as live:
        admitted = LARGE_BODIES_BYTES // (10 * MEGABYTE)
        connections = [begin_large_body(live) for _ in range(admitted)]
        until(lambda: live.client.post("/v1/pets", json=REX).status_code == 201)
        check_refused(begin_large_body(live))
        name = "n" * (LARGE_BODIES_BYTES - admitted * 10 * MEGABYTE)  # larger than what is left
        chunk = b'{"name":"' + name.encode()
        check_refused(
            begin_body(live, "Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (len(chunk), chunk))
        )
        assert live.client.post("/v1/pets", json=REX).status_code == 201, (
            "small ones are still accepted"
        )
        connections.pop().close()

        def accepts() -> bool:
            body = {"name": "n" * 9 * MEGABYTE, "categoryId": 1}
            return live.client.post("/v1/pets", json=body).status_code == 201

        until(accepts)
        for connection in connections:
            connection.close()


def test_one_body_of_the_maximum_size_is_always_admitted() -> None:
    size = LARGE_BODIES_BYTES + MEGABYTE
    with in_thread(Settings(drain_seconds=0, max_body_bytes=size)) as live:
        with begin_body(live, f"Content-Length: {size}", b"{"):
            until(lambda: live.client.post("/v1/pets", json=REX).status_code == 201)
            check_refused(begin_large_body(live))

        def accepts() -> bool:
            with begin_body(live, f"Content-Length: {size}", b"x" * size) as connection:
                return connection.recv(65536).startswith(b"HTTP/1.1 400 ")

        until(accepts)
