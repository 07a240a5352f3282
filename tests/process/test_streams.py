"""Random streams of requests: in pieces, compared with what h11 parses, and what they cost.

PETSTORE_STREAMS is how many each test tries, and PETSTORE_SEED which.
"""

import asyncio
import os
import re
from ast import literal_eval
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import unquote

import h11
import pytest

from petstore.server.connection import LINGER_SECONDS, REQUEST_SECONDS
from tests.support.connections import FarEnd, ours, service, talk
from tests.support.costs import cost
from tests.support.raw_http import chunk, parse_responses
from tests.support.streams import REQUESTS, offering, service_stream, split, stream

STREAMS = int(os.environ.get("PETSTORE_STREAMS", "1000"))
SEED = int(os.environ.get("PETSTORE_SEED", "1"))

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

Request = tuple[str, bytes, str, list[tuple[bytes, bytes]], bytes]
"""Method, path and query, version, headers, body."""


@pytest.fixture
def rng() -> Random:
    return Random(SEED)  # noqa: S311 - the same streams each time


async def describe(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the whole request."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    assert scope["path"] == unquote(scope["raw_path"].decode())
    target = scope["raw_path"], scope["query_string"]
    request = scope["method"], b"?".join(filter(None, target)), scope["http_version"]
    content = repr((*request, scope["headers"], body)).encode()
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def responses(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return status code and body of each response, but of no 400.

    An interim response is none: whether there is one depends on when the body arrives.
    """
    found = []
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        status = head[9:12]
        length = re.search(rb"content-length: (\d+)", head)
        size = int(length[1]) if length else 0
        body, raw = raw[:size], raw[size:]
        if status != b"100":
            found.append((status, b"" if status == b"400" else body))
    return found


def requests(raw: bytes) -> list[Request]:
    """Return the requests that the application has described."""
    return [literal_eval(body.decode()) for status, body in responses(raw) if status == b"200"]


def comparable(request: Any) -> Request:
    """Return a request without what parsers may put differently."""
    method, target, version, headers, body = request
    path = re.sub(rb"^https?://[^/?]*/?", b"/", target).removesuffix(b"?")
    other = (b"content-length", b"transfer-encoding", b"upgrade")  # of these, one is ignored
    return method, path, version, [pair for pair in headers if pair[0] not in other], body


def parsed_by_h11(data: bytes) -> Iterator[Request]:
    """Yield the requests of a stream up to the first that h11 does not take."""
    while data := data.lstrip(b"\r\n"):
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=len(data) + 1)
        connection.receive_data(data)
        body = b""
        while type(event := connection.next_event()) is not h11.EndOfMessage:
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return
        headers = [(bytes(name), bytes(value)) for name, value in request.headers]
        line = request.method.decode(), request.target, request.http_version.decode()
        yield comparable((*line, headers, body))
        data = connection.trailing_data[0]


async def test_no_split_and_no_slow_reader_changes_the_responses(rng: Random) -> None:
    connect = ours(describe)
    for _ in range(STREAMS):
        data = stream(rng)
        whole = responses(await talk(connect, [data]))
        for _ in range(3):
            pieces, slow = split(rng, data), rng.random() < 0.3
            found = responses(await talk(connect, pieces, slow=slow))
            assert found == whole, (pieces, slow)


async def test_an_offered_upgrade_changes_no_response(rng: Random) -> None:
    def without_offer(status: bytes, content: bytes) -> tuple[bytes, bytes]:
        if status == b"200":
            *request, headers, body = comparable(literal_eval(content.decode()))
            names = (b"connection", b"http2-settings")
            kept = [pair for pair in headers if pair[0] not in names]
            return status, repr((request, kept, body)).encode()
        return status, content

    connect = ours(describe)
    for _ in range(STREAMS):
        data, offered = offering(rng)
        pieces, slow = split(rng, offered), rng.random() < 0.3
        whole, found = (
            [without_offer(*response) for response in responses(raw)]
            for raw in (await talk(connect, [data]), await talk(connect, pieces, slow=slow))
        )
        assert found == whole, (pieces, slow)


async def test_the_time_for_a_request_begins_with_its_first_byte() -> None:
    client = FarEnd(ours(describe))
    await client.send(b"GET /a")
    end = asyncio.get_running_loop().time() + REQUEST_SECONDS
    await asyncio.sleep(0.001)
    await client.send(b" HTTP/1.1\r\nHost: x\r\n")
    client.connection.sweep(end)
    assert b"too long to arrive" in client.received


async def test_the_time_in_which_the_application_does_not_read_does_not_count() -> None:
    proceed = asyncio.Event()

    async def reads_late(_: Any, receive: Any, send: Any) -> None:
        await proceed.wait()
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    client = FarEnd(ours(reads_late))
    end = asyncio.get_running_loop().time() + REQUEST_SECONDS
    await client.send(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n" + b"x" * 69_999)
    await asyncio.sleep(0.01)
    assert not client.reading
    client.connection.sweep(end - 1)
    proceed.set()
    await client.idle()
    client.connection.sweep(end + 0.001)
    await client.send(b"x")
    await client.idle()
    assert client.received.startswith(b"HTTP/1.1 200 ")
    await client.finish()


async def test_a_body_may_arrive_after_the_last_response_for_as_long_as_before_it() -> None:
    async def refuses(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    time = asyncio.get_running_loop().time
    client, begin = FarEnd(ours(refuses)), time()
    await client.send(b"PUT / HTTP/1.0\r\nContent-Length: 9\r\n\r\n")
    await client.idle()
    assert b" 413 " in client.received
    client.connection.sweep(begin + REQUEST_SECONDS)
    assert not client.closed
    client.connection.sweep(time() + REQUEST_SECONDS)
    assert client.closed


@pytest.mark.parametrize("count", [1, 2])
async def test_a_connection_that_its_client_has_half_closed_ends_with_the_last_response(
    count: int,
) -> None:
    release = asyncio.Event()

    async def held(scope: Any, receive: Any, send: Any) -> None:
        await release.wait()
        await describe(scope, receive, send)

    client = FarEnd(ours(held))
    await client.send(GET * count)
    assert client.connection.eof_received()
    release.set()
    await client.idle()
    assert client.closed
    assert len(requests(bytes(client.received))) == count


BODIES = {"empty lines": chunk(b"a\r\n\r\n" * 9000), "small chunks": chunk(b"a") * 9000}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_no_body_makes_room_for_trailers(body: bytes) -> None:
    client = FarEnd(ours(describe))
    head = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    await client.send(head + body + b"0\r\nA: " + b"x" * 70_000)
    await client.idle()
    assert b"too large" in client.received


async def test_a_head_whose_lines_end_with_line_feeds_is_refused_at_once_and_soon_closed() -> None:
    client = FarEnd(ours(describe))
    await client.send(b"GET / HTTP/1.1\r\nHost: x\n\n")
    assert b"not a valid HTTP/1.1 request" in client.received
    assert not client.closed  # it may still send, so that it gets to read that
    client.connection.sweep(asyncio.get_running_loop().time() + LINGER_SECONDS)
    assert client.closed


async def close(_: Any, __: Any, send: Any) -> None:
    send.respond(200, [(b"connection", b"close")], b"")


@pytest.mark.parametrize(
    ("app", "sent"),
    [
        (describe, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGARBAGE\r\n\r\n"),
        (describe, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGARBAGE\r\n\r\n"),
        (close, GET * 2),
    ],
)
async def test_what_follows_the_last_request_is_discarded(app: Any, sent: bytes) -> None:
    client = FarEnd(ours(app))
    await client.send(sent)
    await client.idle()
    assert [status for status, _ in responses(bytes(client.received))] == [b"200"]
    assert not client.closed  # a reset could take the response with it (RFC 9112, section 9.6)
    client.connection.sweep(asyncio.get_running_loop().time() + REQUEST_SECONDS)
    assert client.closed


@pytest.mark.parametrize("idle", [False, True])
async def test_a_stop_waits_for_the_request_of_a_new_connection_but_not_of_an_idle_one(
    *, idle: bool
) -> None:
    client = FarEnd(ours(describe))
    if idle:
        await client.send(GET)
        await client.idle()
    client.connection.shutdown()
    assert client.closed == idle
    if not idle:
        await client.send(GET)
        await client.idle()
        assert client.closed
    assert len(requests(bytes(client.received))) == 1


async def test_what_is_served_is_what_h11_parses(rng: Random) -> None:
    connect, count = ours(describe), 0
    for _ in range(STREAMS):
        data = stream(rng)
        served = [comparable(each) for each in requests(await talk(connect, [data]))]
        parsed: list[Request] = []
        try:
            parsed += parsed_by_h11(data)
        except h11.RemoteProtocolError:  # the requests before it are compared
            if b"0" * 20 in data:  # it takes 20 digits of a length
                continue
        assert served == parsed[: len(served)], data
        count += len(served)
    assert count > STREAMS / 2


def test_hostile_streams_get_documented_responses_and_cost_little(rng: Random) -> None:
    with service() as send:
        usual = cost(send, b"".join(REQUESTS), 10)
        for _ in range(STREAMS):
            data = service_stream(rng)
            parse_responses(send(*split(rng, data)))
            assert cost(send, data) < 10 * usual or cost(send, data, 5) < 10 * usual, data
