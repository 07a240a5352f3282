"""The connection serves ASGI applications, and responds as uvicorn's own connection does."""

import asyncio
import contextlib
import gc
import re
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from petstore.server import exchange
from petstore.server.connection import HttpConnection
from petstore.server.exchange import HIGH_WATER_BYTES
from tests.support.services import receive_all
from tests.support.waiting import HANG_SECONDS, until

HOST = b"Host: x\r\n"
CLOSE = HOST + b"Connection: close\r\n"
GET = b"GET / HTTP/1.1\r\n" + CLOSE + b"\r\n"
App = Callable[[Any, Any, Any], Any]


def reject(message: str, _: Any, __: Any) -> tuple[list[tuple[bytes, bytes]], bytes]:
    return [(b"content-type", b"text/plain")], message.encode()


OURS = partial(HttpConnection, reject=reject)


@contextmanager
def served(app: App, kind: Any = OURS) -> Iterator[tuple[str, int]]:
    """Run an application on uvicorn's server with this kind of connection; yield its address."""
    config = uvicorn.Config(
        app, http=kind, ws="none", lifespan="off", log_config=None, server_header=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        try:
            until(lambda: server.started)
            yield sock.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def send(address: tuple[str, int], *data: bytes, pause: float = 0.1) -> bytes:
    """Send data piece by piece; return all that comes until the connection is closed."""
    with socket.create_connection(address, timeout=HANG_SECONDS) as connection:
        for piece in data:
            connection.sendall(piece)
            time.sleep(pause)
        return receive_all(connection)


def parts(raw: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return status line, sorted headers and body, without the dates of any response."""
    head, _, body = b"\r\n".join(undated(raw)).partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, sorted(header.lower() for header in headers), body


def undated(raw: bytes) -> list[bytes]:
    """Return all lines but dates."""
    return [line for line in raw.split(b"\r\n") if not line.lower().startswith(b"date:")]


def responds(*messages: dict[str, Any]) -> App:
    """Return an application that sends these messages."""

    async def app(_: Any, __: Any, send: Any) -> None:
        for message in messages:
            await send(dict(message))

    return app


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(content: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def length(number: int) -> tuple[bytes, bytes]:
    return (b"content-length", b"%d" % number)


async def echo(_: Any, receive: Any, send: Any) -> None:
    content = b""
    more = True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
    await send(start(200, length(len(content))))
    await send(body(content))


async def describe(scope: Any, _: Any, send: Any) -> None:
    keys = ("type", "http_version", "method", "path", "raw_path", "query_string", "root_path")
    content = repr([scope[key] for key in keys] + [sorted(scope["headers"])]).encode()
    await send(start(200, length(len(content))))
    await send(body(content))


def raises(app: App, error: type[BaseException] = ValueError) -> App:
    """Return an application that raises an exception after it has done what another one does."""

    async def raising(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        raise error

    return raising


WELL_BEHAVED: dict[str, App] = {
    "a whole response": responds(start(200, length(5)), body(b"hello")),
    "no body": responds(start(200, length(0)), body()),
    "204": responds(start(204), body()),
    "304": responds(start(304, (b"etag", b'"x"')), body()),
    "404": responds(start(404, length(2)), body(b"no")),
    "many headers": responds(
        start(200, length(0), (b"X-Mixed-Case", b"Value"), (b"x-twice", b"1"), (b"x-twice", b"2")),
        body(),
    ),
    "it closes": responds(start(200, length(2), (b"connection", b"close")), body(b"ok")),
    "echo": echo,
    "the scope": describe,
}
REQUESTS = {
    "GET": GET,
    "HEAD": b"HEAD / HTTP/1.1\r\n" + CLOSE + b"\r\n",
    "a target": b"GET /a%20b%2Fc%C3%A9?q=%20&r HTTP/1.1\r\n" + CLOSE + b"X-Y:  a b \r\n\r\n",
    "POST": b"POST / HTTP/1.1\r\n" + CLOSE + b"Content-Length: 5\r\n\r\nhello",
    "chunked": b"POST / HTTP/1.1\r\n" + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "pipelined": b"GET / HTTP/1.1\r\n" + HOST + b"\r\n" + GET,
}


@pytest.fixture(scope="module", params=WELL_BEHAVED)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any, Any]]:
    """Serve each application by our connection and by uvicorn's."""
    app = WELL_BEHAVED[request.param]
    with served(app) as ours, served(app, HttpToolsProtocol) as theirs:
        yield request.param, ours, theirs


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_well_behaved_application_is_served_as_by_uvicorn(
    servers: tuple[str, Any, Any], request_: str
) -> None:
    app, ours, theirs = servers
    mine, other = (send(where, REQUESTS[request_], pause=0) for where in (ours, theirs))
    if request_ == "a target" and app == "the scope":  # uvicorn keeps surrounding whitespace
        other = other.replace(b"b'a b '", b"b'a b'").replace(b"b' a b '", b"b'a b'")
        other = re.sub(rb"content-length: \d+", b"", other)
        mine = re.sub(rb"content-length: \d+", b"", mine)
    if request_ == "pipelined":  # the order of the headers of the second response is free
        mine, other = (b"\r\n".join(sorted(undated(raw))) for raw in (mine, other))
    assert parts(mine) == parts(other)


class OddError(BaseException):
    pass


MISBEHAVED: dict[str, tuple[App, bytes]] = {
    "sends nothing": (responds(), b"500"),
    "starts and stops": (responds(start(200, length(5))), b"500"),
    "begins with a body": (responds(body(b"hello")), b"500"),
    "streams": (responds(start(200, length(5)), body(b"he", more=True), body(b"llo")), b"500"),
    "goes on after the end": (responds(start(200, length(2)), body(b"ok"), body(b"more")), b"200"),
    "raises before the start": (raises(responds()), b"500"),
    "raises after the start": (raises(responds(start(200, length(5)))), b"500"),
    "raises what is no Exception": (raises(responds(), OddError), b"500"),
}


@pytest.mark.parametrize("name", MISBEHAVED)
def test_an_application_that_misbehaves_harms_only_its_own_response(name: str) -> None:
    app, status = MISBEHAVED[name]
    with served(app) as address:
        raw = send(address, GET, pause=0)
        assert raw[9:12] == status
        assert undated(send(address, GET, pause=0)) == undated(send(address, GET, pause=0))


@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"1\r\nset-cookie: stolen"),
        (b"x-a", b"1\nx-b: 2"),
        (b"x-a", b"1\rx-b: 2"),
        (b"x-a", b"1\x00"),
        (b"x-a", b"\x1b[31m"),
        (b"x-a", b"\x7f"),
        (b"x-a\r\nx-b", b"2"),
        (b"x a", b"2"),
        (b"x-a:", b"2"),
        (b"", b"2"),
    ],
)
def test_a_header_with_control_characters_is_never_written(header: tuple[bytes, bytes]) -> None:
    with served(responds(start(200, length(2), header), body(b"ok"))) as address:
        raw = send(address, GET, pause=0)
    assert raw.startswith(b"HTTP/1.1 500 ")
    assert b"stolen" not in raw
    assert b"x-b" not in raw


def test_a_tab_bytes_above_ascii_and_a_status_without_a_name_are_written_as_they_are() -> None:
    app = responds(start(299, length(0), (b"x-a", b"1\t2\xe9")), body())
    with served(app) as address:
        raw = send(address, GET, pause=0)
    assert raw.startswith(b"HTTP/1.1 299 \r\n")
    assert b"x-a: 1\t2\xe9" in raw


def test_all_tasks_of_an_application_that_wait_for_the_disconnect_get_it() -> None:
    seen: list[str] = []
    expected = ["http.request", "http.disconnect", "http.disconnect"]

    async def app(_: Any, receive: Any, send: Any) -> None:
        seen.append((await receive())["type"])
        seen.extend(event["type"] for event in await asyncio.gather(receive(), receive()))
        await send(start(200, length(2)))
        await send(body(b"ok"))  # the first time to nobody: no error

    with served(app) as address:
        with socket.create_connection(address) as connection:
            connection.sendall(GET)
            until(lambda: seen)
        until(lambda: seen == expected)
        with socket.create_connection(address) as connection:
            connection.sendall(GET)
            connection.shutdown(socket.SHUT_WR)  # it still reads
            assert receive_all(connection).endswith(b"ok")
        assert seen == expected * 2


def test_a_body_that_nobody_reads_waits_with_the_client() -> None:
    begin = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not begin.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)
        await echo(scope, receive, send)

    size = 64 * HIGH_WATER_BYTES
    head = b"POST / HTTP/1.1\r\n" + CLOSE + b"Content-Length: %d\r\n\r\n" % size
    with served(app) as address, socket.create_connection(address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.setblocking(False)
        sent = connection.send(head)
        last = -1
        rest = bytes(size)
        done = 0
        while done != last:  # until the kernel takes no more for half a second
            last = done
            time.sleep(0.5)
            while done < size:
                try:
                    done += connection.send(rest[done : done + 65536])
                except BlockingIOError:
                    break
        assert sent
        assert done < size
        begin.set()
        connection.settimeout(HANG_SECONDS)
        connection.sendall(rest[done:])
        assert len(parts(receive_all(connection))[2]) == size


def test_the_next_request_waits_for_a_client_that_reads_slowly() -> None:
    count, size, served_ = 20, 1_000_000, 0

    async def app(scope: Any, _: Any, send: Any) -> None:
        nonlocal served_
        served_ += 1
        send.respond(200, [], bytes(size))

    with served(app) as address, socket.create_connection(address) as connection:
        connection.sendall((b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * (count - 1) + GET)
        time.sleep(0.5)
        assert served_ <= count // 2  # as much as the kernel has buffered, and one more
        raw = receive_all(connection)
    assert (served_, raw.count(b"HTTP/1.1 200 OK")) == (count, count)
    assert len(raw) > count * size


def whole_response(size: int) -> App:
    async def app(_: Any, __: Any, send: Any) -> None:
        await asyncio.sleep(0.3)
        send.respond(200, [], bytes(size))

    return app


@pytest.mark.parametrize("header", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
def test_nothing_is_written_after_a_response_that_closes_the_connection(
    header: bytes,
) -> None:  # RFC 9112, section 9.6
    size = 9_000_000

    async def app(_: Any, __: Any, send: Any) -> None:
        send.respond(200, [(b"connection", b"close")], bytes(size))

    with (
        served(app) as address,
        socket.create_connection(address, timeout=HANG_SECONDS) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\n" + HOST + header + b"\r\n")
        time.sleep(0.3)
        connection.sendall(b"GARBAGE\r\n\r\n")
        time.sleep(0.3)
        raw = receive_all(connection)
    assert raw.count(b"HTTP/1.1 ") == 1
    assert len(raw) > size


@pytest.mark.parametrize("rest", [b"GARBAGE\r\n\r\n", b"GET /3 HT"])
def test_a_malformed_request_behind_an_unread_response_is_rejected(rest: bytes) -> None:
    size = 9_000_000
    with (
        served(whole_response(size)) as address,
        socket.create_connection(address, timeout=HANG_SECONDS) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        time.sleep(0.6)
        connection.sendall(rest)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        raw = receive_all(connection)
    assert re.findall(rb"HTTP/1.1 \d+", raw) == [b"HTTP/1.1 200", b"HTTP/1.1 400"]
    assert len(raw) > size


def test_an_exception_in_a_callback_of_the_parser_is_logged_and_ends_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory had run out, a valid request was a 400, which no client repeats."""
    monkeypatch.setattr(HttpConnection, "_scope", None)
    with served(echo) as address:
        with contextlib.suppress(ConnectionError):
            assert send(address, GET) == b""
        assert send(address, b"GET /#fragment HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [TypeError]


@pytest.mark.parametrize("whole", [True, False])
def test_an_idle_connection_keeps_nothing_of_its_last_request(whole: bool) -> None:
    async def refuses(_: Any, __: Any, send: Any) -> None:
        await asyncio.sleep(0 if whole else 0.1)
        await send(start(401, length(0)))
        await send(body())

    size = 60_000
    head = b"POST / HTTP/1.1\r\n" + HOST + b"X-Long: %b\r\n" % (b"x" * 9000)
    request = head + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    cut = len(request) if whole else 9_500
    with served(refuses) as address, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(address, timeout=HANG_SECONDS))
            for _ in range(50)
        ]
        gc.collect()
        tracemalloc.start()
        try:
            for client in clients:
                client.sendall(request[:cut])
                time.sleep(0.01)
                client.sendall(request[cut:])
            for client in clients:
                assert client.recv(12) == b"HTTP/1.1 401"
            time.sleep(0.2)
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held / len(clients) < 7000  # the head has more, and the body much more


def test_neither_requests_nor_lost_connections_leave_anything_to_the_garbage_collector() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while scope["path"] == "/wait" and (await receive())["type"] != "http.disconnect":
            pass
        await send(start(200, length(2)))
        await send(body(b"ok"))

    def left() -> int:
        return sum(type(o) in (exchange.Exchange, HttpConnection) for o in gc.get_objects())

    with served(app) as address:
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                send(address, GET, pause=0)
            until(lambda: left() == 0)
            for _ in range(10):
                with socket.create_connection(address) as connection:
                    connection.sendall(2 * GET.replace(b"/", b"/wait", 1))
                    time.sleep(0.02)
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            until(lambda: left() == 0)
        finally:
            gc.enable()


# What an earlier version of the connection got wrong.


def test_a_pipelined_body_waits_with_the_client_until_its_turn() -> None:
    begin = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await asyncio.to_thread(begin.wait, 10)
            begin.clear()
        await echo(scope, receive, send)

    size = 4 * 2**20
    head = b"POST / HTTP/1.1\r\n" + CLOSE + b"Content-Length: %d\r\n\r\n" % size
    gets = 5 * (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
    with (
        served(app) as address,
        socket.create_connection(address, timeout=HANG_SECONDS) as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sender = threading.Thread(target=connection.sendall, args=(gets + head + bytes(size),))
        sender.start()
        for _ in range(5):
            time.sleep(0.2)
            waiting = until(lambda: [o for o in gc.get_objects() if type(o) is exchange.Exchange])
            assert max(len(o._body) for o in waiting) <= 8 * HIGH_WATER_BYTES  # noqa: SLF001
            begin.set()
        received = receive_all(connection)
        sender.join()
    assert received.count(b"HTTP/1.1 200 OK") == 6
    assert received.endswith(bytes(1000))


def test_a_request_does_not_inherit_the_context_of_the_one_before_it() -> None:
    name: ContextVar[str] = ContextVar("name", default="none")
    seen = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.append(name.get())
        name.set(scope["path"])
        await send(start(200, length(0)))
        await send(body())

    with served(app) as address:
        send(address, b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
    assert seen == ["none", "none"]


def test_a_rejected_body_is_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async def late(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await echo(scope, receive, send)

    head = b"POST / HTTP/1.1\r\n" + HOST
    chunked = b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\nzz\r\n"
    with served(late) as address:
        assert send(address, head + chunked).startswith(b"HTTP/1.1 400 ")
        time.sleep(0.3)
    assert not [record for record in caplog.records if record.name == "petstore.server"]
