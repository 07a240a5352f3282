"""The connection serves ASGI applications, also such as misbehave.

What it makes of requests, test_streams compares with h11.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from petstore.server import exchange
from petstore.server.connection import HttpConnection
from petstore.server.exchange import HIGH_WATER_BYTES
from tests.support.connections import FarEnd, ours, talk

HOST = b"Host: x\r\n"
CLOSE = HOST + b"Connection: close\r\n"
GET = b"GET / HTTP/1.1\r\n" + CLOSE + b"\r\n"
App = Callable[[Any, Any, Any], Any]


def parts(raw: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return status line, sorted headers and body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, sorted(header.lower() for header in headers), body


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


def raises(app: App, error: type[BaseException] = ValueError) -> App:
    """Return an application that raises an exception after it has done what another one does."""

    async def raising(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        raise error

    return raising


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
async def test_an_application_that_misbehaves_harms_only_its_own_response(name: str) -> None:
    app, status = MISBEHAVED[name]
    connect = ours(app)
    first, second = [await talk(connect, [GET]) for _ in range(2)]
    assert first[9:12] == status
    assert first == second


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
async def test_a_header_with_control_characters_is_never_written(
    header: tuple[bytes, bytes],
) -> None:
    raw = await talk(ours(responds(start(200, length(2), header), body(b"ok"))), [GET])
    assert raw.startswith(b"HTTP/1.1 500 ")
    assert b"stolen" not in raw
    assert b"x-b" not in raw


async def test_a_tab_bytes_above_ascii_and_a_status_without_a_name_are_written() -> None:
    raw = await talk(ours(responds(start(299, length(0), (b"x-a", b"1\t2\xe9")), body())), [GET])
    assert raw.startswith(b"HTTP/1.1 299 \r\n")
    assert b"x-a: 1\t2\xe9" in raw


@pytest.mark.parametrize("gone", [True, False])
async def test_all_tasks_of_an_application_that_wait_for_the_disconnect_get_it(gone: bool) -> None:
    seen: list[str] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        seen.append((await receive())["type"])
        cancelled = asyncio.ensure_future(receive())
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, cancelled.cancel)  # while the others wait, too
        seen.extend(event["type"] for event in await asyncio.gather(receive(), receive()))
        await send(start(200, length(2)))
        await send(body(b"ok"))  # if it is gone, to nobody: no error

    client = FarEnd(ours(app))
    await client.send(GET)
    await client.idle()
    assert seen == ["http.request"]
    if gone:
        client.close()
    await client.finish()  # otherwise it has closed its side, but still reads
    assert seen == ["http.request", "http.disconnect", "http.disconnect"]
    assert client.received.endswith(b"ok") != gone


@pytest.mark.parametrize("before", [0, 5])
async def test_a_body_that_nobody_reads_waits_with_the_client(before: int) -> None:
    """It does so as the first on its connection, and while requests before it are served."""
    begin = asyncio.Semaphore(0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await begin.acquire()
        await echo(scope, receive, send)

    size = 64 * HIGH_WATER_BYTES
    head = b"POST / HTTP/1.1\r\n" + CLOSE + b"Content-Length: %d\r\n\r\n" % size
    client = FarEnd(ours(app))
    await client.send(before * (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") + head)
    for _ in range(before):
        assert not client.reading
        begin.release()
        await client.idle()
    sent = 0
    while client.reading and sent < size:
        await client.send(bytes(HIGH_WATER_BYTES // 4))
        sent += HIGH_WATER_BYTES // 4
    assert sent <= 2 * HIGH_WATER_BYTES
    begin.release()
    await client.send(bytes(size - sent))
    await client.finish()
    responses = bytes(client.received).split(b"HTTP/1.1 200 OK")[1:]
    assert len(responses) == before + 1
    assert len(parts(responses[-1])[2]) == size


async def test_the_next_request_waits_for_a_client_that_reads_slowly() -> None:
    paused = []

    async def app(_: Any, __: Any, send: Any) -> None:
        paused.append(client.paused)
        send.respond(200, [], b"ok")

    client = FarEnd(ours(app), slow=True)
    await client.send((b"GET / HTTP/1.1\r\n" + HOST + b"\r\n") * 19 + GET)
    await client.finish()
    assert paused == [False] * 20
    assert client.received.count(b"HTTP/1.1 200 OK") == 20


@pytest.mark.parametrize("header", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
async def test_nothing_is_written_after_a_response_that_closes_the_connection(
    header: bytes,
) -> None:  # RFC 9112, section 9.6
    async def app(_: Any, __: Any, send: Any) -> None:
        send.respond(200, [(b"connection", b"close")], b"ok")

    client = FarEnd(ours(app), slow=True)
    await client.send(b"GET / HTTP/1.1\r\n" + HOST + header + b"\r\n")
    await asyncio.sleep(0)
    assert client.paused
    await client.send(b"GARBAGE\r\n\r\n")
    await client.finish()
    assert client.received.count(b"HTTP/1.1 ") == 1


async def test_an_exception_in_a_callback_of_the_parser_is_logged_and_ends_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory had run out, a valid request was a 400, which no client repeats."""
    monkeypatch.setattr(HttpConnection, "_scope", None)
    assert await talk(ours(echo), [GET]) == b""
    raw = await talk(ours(echo), [b"GET /#fragment HTTP/1.1\r\n\r\n"])
    assert raw.startswith(b"HTTP/1.1 400 ")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [TypeError]


@pytest.mark.parametrize("whole", [True, False])
async def test_an_idle_connection_keeps_nothing_of_its_last_request(whole: bool) -> None:
    begin = asyncio.Event()

    async def refuses(_: Any, __: Any, send: Any) -> None:
        await begin.wait()
        await send(start(401, length(0)))
        await send(body())

    size = 60_000
    head = b"POST / HTTP/1.1\r\n" + HOST + b"X-Long: %b\r\n" % (b"x" * 9000)
    request = head + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    cut = len(request) if whole else 9_500
    connect = ours(refuses)
    clients = [FarEnd(connect) for _ in range(50)]
    gc.collect()
    tracemalloc.start()
    try:
        for client in clients:
            await client.send(request[:cut])
            await client.send(request[cut:])
        begin.set()
        for client in clients:
            await client.idle()
            assert client.received.startswith(b"HTTP/1.1 401")
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(clients) < 7000  # the head has more, and the body much more


async def test_neither_requests_nor_lost_connections_leave_anything_to_the_garbage_collector() -> (
    None
):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while scope["path"] == "/wait" and (await receive())["type"] != "http.disconnect":
            pass
        await send(start(200, length(2)))
        await send(body(b"ok"))

    def left() -> int:
        return sum(type(o) in (exchange.Exchange, HttpConnection) for o in gc.get_objects())

    connect = ours(app)
    gc.collect()
    gc.disable()
    try:
        await talk(connect, [GET])
        assert left() == 0
        client = FarEnd(connect)
        await client.send(2 * GET.replace(b"/", b"/wait", 1))
        await client.idle()
        client.close()
        await client.idle()
        assert left() == 0
    finally:
        gc.enable()


async def test_a_request_does_not_inherit_the_context_of_the_one_before_it() -> None:
    name: ContextVar[str] = ContextVar("name", default="none")
    seen = []

    async def app(scope: Any, _: Any, send: Any) -> None:
        seen.append(name.get())
        name.set(scope["path"])
        await send(start(200, length(0)))
        await send(body())

    await talk(ours(app), [b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n" + GET])
    assert seen == ["none", "none"]


async def test_a_rejected_body_is_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    begin = asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        await begin.wait()
        await echo(scope, receive, send)

    client = FarEnd(ours(late))
    chunked = b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    await client.send(b"POST / HTTP/1.1\r\n" + HOST + chunked)
    await client.idle()
    await client.send(b"zz\r\n")
    begin.set()
    await client.finish()
    assert client.received.startswith(b"HTTP/1.1 400 ")
    assert not [record for record in caplog.records if record.name == "petstore.server"]
