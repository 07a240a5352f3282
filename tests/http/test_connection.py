"""Malformed HTTP, and requests that arrive in odd ways: over raw sockets, byte by byte."""

import contextlib
import select
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime

import pytest

from petstore.config.settings import Settings
from petstore.server import connection as http_connection
from tests.support.raw_http import (
    AUTHORIZED,
    CHUNKED,
    CLOSE,
    HOST,
    JSON,
    chunk,
    each,
    head,
    parse_responses,
    statuses,
)
from tests.support.responses import check_error
from tests.support.services import Live, Start, in_thread
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.usefixtures("still_healthy")

PET = b'{"name":"Rex","categoryId":7}'


def get(request_id: str) -> bytes:
    """Return a complete request with this `X-Request-Id`."""
    return head("GET /v1/pets?limit=1", HOST, AUTHORIZED, f"X-Request-Id: {request_id}")


def post(*headers: str) -> bytes:
    """Return the head of a request that creates a pet."""
    return head("POST /v1/pets", HOST, JSON, *headers)


def check_refused(raw: bytes) -> None:
    """Check that the only response is a 400 with `Connection: close`."""
    (response,) = parse_responses(raw)
    assert check_error(response, 400, "invalid_request").startswith("HTTP: ")
    assert response.headers["connection"] == "close"
    assert parsedate_to_datetime(response.headers["date"])
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


def check_first_is_served(raw: bytes) -> None:
    """Check that `get("first")` was served, and that after it came a 400."""
    first, *rest = parse_responses(raw)
    assert (first.status_code, first.headers["x-request-id"]) == (200, "first")
    assert [response.status_code for response in rest] == [400]


def connect(live: Live) -> socket.socket:
    """Open a connection that never blocks for long and sends data at once."""
    connection = socket.create_connection((live.host, live.port), timeout=HANG_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket) -> bytes:
    """Return everything received until the connection is closed or reset."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


UPLOAD = post(AUTHORIZED, CHUNKED)
INCOMPLETE = [
    b"GET /v1/pe",
    b"GET /v1/pets HTTP/1.1\r\nHost: x\r\n",
    UPLOAD,
    UPLOAD + b"9\r\n{",
    post(AUTHORIZED, "Content-Length: 9"),
    post(AUTHORIZED, "Content-Length: 9") + b"{",
]
MALFORMED = [
    b"\x00\xff\x01\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS
    b"how are you?\r\n\r\n",
    b"GET /livez HTTP/1.1\nHost: x\n\n",
    b"GET /livez\r\n\r\n",
    *(b"GET /livez HTTP/%s\r\nHost: x\r\n\r\n" % version for version in (b"0.9", b"1.2", b"2.0")),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    head("CONNECT x:80", HOST, "Content-Length: 5") + b"hello",
    *(
        line + b"\r\nHost: x\r\n\r\n"
        for line in (
            b"GET /livez RTSP/1.0",
            b"GET /livez RTSP/1.1",
            b"DESCRIBE /livez RTSP/1.0",
            b"SOURCE /livez ICE/1.0",
            b"GET /livez RTSP/1.0\r\nX: GET /livez HTTP/1.1",  # a header that looks like one
            b"GET /livez  HTTP/1.1",
            b"GET  /livez HTTP/1.1",
        )
    ),
    *(
        head(line, HOST)
        for line in (
            *("GET", "GET livez", "GET /v1/pets/\u00d9\u00a1", "GET /v1/pets?\u00ff"),
            *("GET http://", "GET http://x:99999/", "CONNECT x:80", "GET /" + "a" * 33_000),
            *("GET /livez#fragment", "GET http://x/livez#fragment", "GET http://user@x/livez"),
            *("GET ftp://x/livez", "GET /livez ", "M" * 40 + " /livez"),
        )
    ),
    *(
        head("GET /livez", *headers)
        for headers in (
            [],
            [HOST, HOST],
            ["Host : x"],
            ["Host: user@x"],
            ["Host: user:secret@x"],
            ["Host: x:port"],
            ["Host: x:1:2"],
            ["Host: [::1"],
            *(
                [f"Host: {host}"]
                for host in ("a%", "a%zzb", "[]", "[zzz]", "[1.2.3.4]", "[fe80::1%1]")
            ),
            [HOST, "nonsense"],
            [HOST, "A: b", " folded"],
            [HOST, "A: b\x00"],
            [HOST, *["A: b"] * 100],
            [HOST, *["A: b"] * 5000],
            *([HOST, "A: " + "b" * n] for n in (33_000, 200_000)),
            [HOST, *["A: " + "b" * 500] * 80],
        )
    ),
    *(
        post(*headers)
        for headers in (
            ["Content-Length: 5", CHUNKED],
            [CHUNKED, "Content-Length: 5"],
            ["Content-Length: 5", "Content-Length: 6"],
            ["Content-Length: 5, 6"],
            ["Content-Length: -1"],
            ["Content-Length: +5"],
            [f"Content-Length: {'9' * 30}"],
            ["Transfer-Encoding: gzip"],
            ["Transfer-Encoding: chunked, gzip"],
            ["Transfer-Encoding: gzip, chunked"],
            ["Transfer-Encoding: gzip", CHUNKED],
            ["Transfer-Encoding: chun", "Transfer-Encoding: ked"],
            [CHUNKED, CHUNKED],
            ["Transfer-Encoding: chunked;a=b"],
            ["Transfer-Encoding: identity"],
            ["Transfer-Encoding:"],
        )
    ),
    *(
        UPLOAD + chunks
        for chunks in (
            *(b"zz\r\n", b"-1\r\n", b"0x1\r\n{\r\n", b"\r\n", b";\r\n", b"2 \r\n{}\r\n"),
            *(b"2\n{}\n", b"F" * 17 + b"\r\n", b"2\r\n{}{}\r\n", b"2\r\n{}\n0\r\n\r\n"),
            b"0\r\nno trailer\r\n\r\n",
            chunk(PET) + b"0\r\nConnection: close\r\n\r\n",
            chunk(PET) + b"0\r\nproxy-connection: Close\r\n\r\n",
            chunk(PET) + b"0\r\n" + b"A: b\r\n" * 500 + b"\r\n",
            chunk(PET) + b"0;" + b"a" * 200_000 + b"\r\n\r\n",
            b"1d;" + b"a" * 70_000 + b"\r\n" + PET + b"\r\n0\r\n\r\n",
            (b"1;" + b"a" * 100 + b"\r\n \r\n") * 1000 + chunk(PET) + b"0\r\n\r\n",
        )
    ),
]
incomplete = each("data", INCOMPLETE)


@each("data", MALFORMED)
def test_malformed_http_is_400_after_the_complete_request_before_it(
    service: Live, data: bytes
) -> None:
    check_refused(service.raw(data))
    check_first_is_served(service.raw(get("first") + data))
    with connect(service) as connection:
        connection.sendall(head("HEAD /livez", HOST))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(data)
        check_refused(receive(connection))


ODD = [
    b"GET /livez HTTP/1.0\r\n\r\n",
    b"\r\n\r\n" + head("GET /livez", HOST, CLOSE),
    head("GET /livez", "Host:", CLOSE),
    head("GET http://other/livez", HOST, CLOSE),
    head("GET HTTPS://other:8/livez", HOST, CLOSE),
    *(
        head("GET /livez", f"Host: {host}", CLOSE)
        for host in ("a_b.example:", "a%2Fb", "[::1]:80", "[::]", "[::ffff:192.0.2.1]", "[v1.a:b]")
    ),
    head("GET /livez", HOST, CLOSE, *["A: b"] * 98),
    head("GET /livez", HOST, CLOSE, f"A: {'b' * 31_000}"),
]


@each("data", ODD)
def test_odd_but_valid_http_is_served(service: Live, data: bytes) -> None:
    assert [(r.status_code, r.text) for r in parse_responses(service.raw(data))] == [(200, "ok\n")]


def test_chunk_extensions_and_trailers_are_accepted_up_to_the_limits(service: Live) -> None:
    sent = post(AUTHORIZED, CHUNKED, CLOSE) + b"1d;" + b"a" * 30_000 + b"\r\n" + PET
    sent += b"\r\n0;a=b\r\n" + b"A: b\r\n" * 90 + b"\r\n"
    assert statuses(service.raw(sent)) == [201]
    single = b"".join(chunk(b" ") for _ in range(20_000)) + chunk(PET) + b"0\r\n\r\n"
    assert statuses(service.raw(post(AUTHORIZED, CHUNKED, CLOSE) + single)) == [201]


@each("begin", [b"1d;" + b"a" * 32_000 + b"\r\n", b"1d\r\n"])
def test_a_byte_too_many_outside_the_body_is_400(service: Live, begin: bytes) -> None:
    limit = 32 * 1024
    sent = post(AUTHORIZED, CHUNKED, CLOSE) + begin + PET
    for size, status in ((limit, 201), (limit + 1, 400)):
        last = b"\r\n0;%b\r\n\r\n"
        padding = size - len(sent + last) + len(PET) + 20 + 2
        assert statuses(service.raw(sent + last % (b"a" * padding))) == [status]


def test_pipelined_requests_share_no_limit(service: Live) -> None:
    large = post(AUTHORIZED, CHUNKED, "A: " + "b" * 20_000)
    large += b"1d;" + b"a" * 10_000 + b"\r\n" + PET + b"\r\n0\r\n\r\n"
    sent = (large + get("a")) * 20
    assert statuses(service.raw(sent, half_close=True)) == [201, 200] * 20


@each("method", ["FOO", "get", "Get", "DESCRIBE", "OPTIONSS", "X-Y_Z", "M" * 32])
def test_an_unknown_method_is_405_as_a_known_one_is(service: Live, method: str) -> None:
    after = {b"": [], b"GET / nonsense\r\n\r\n": [400], get("second"): [200]}
    for path, allow in (("/livez", "GET, HEAD, OPTIONS"), ("/nothing", None)):
        for body in (b"", PET):
            headers = (HOST, f"Content-Length: {len(body)}", "X-Request-Id: a")
            sent = get("first") + head(f"{method} {path}", *headers) + body
            for rest, expected in after.items():
                _, found, *others = parse_responses(service.raw(sent + rest, half_close=True))
                assert found.status_code == (405 if allow else 404)
                assert found.headers.get("allow") == allow
                assert found.headers["x-request-id"] == "a"
                assert [response.status_code for response in others] == expected
    check_refused(service.raw(head(f"{method} /livez")))  # without Host


@each("end", [CLOSE, "Connection: keep-alive"])
def test_a_client_may_send_its_body_before_it_reads_the_response(service: Live, end: str) -> None:
    size = 20_000_000
    for sent, pieces, status in (
        (post(CHUNKED, end), [*[chunk(bytes(50_000))] * 10, b"0\r\n\r\n"], 401),
        (post(AUTHORIZED, end, f"Content-Length: {size}"), [bytes(size)], 413),
    ):
        with connect(service) as connection:
            connection.sendall(sent)
            for piece in pieces:
                time.sleep(0.005)  # by then the response has arrived
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            assert statuses(receive(connection)) == [status]


@incomplete
def test_a_half_close_in_mid_request_is_400(service: Live, data: bytes) -> None:
    check_refused(service.raw(data, half_close=True))
    check_first_is_served(service.raw(get("first") + data, half_close=True))


@incomplete
def test_a_reset_in_mid_request_does_no_harm(service: Live, data: bytes) -> None:
    with connect(service) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(head("GET /openapi.json", HOST) * 20 + data)
        assert connection.recv(1)


@each(
    "data, name",
    [
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\n" + get("/livez"), "the PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c" + bytes(12) + get("/livez"), "the PROXY protocol"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), "HTTP/2"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(64), "TLS"),
    ],
)
def test_another_protocol_is_400_by_its_name(service: Live, data: bytes, name: str) -> None:
    (response,) = parse_responses(service.raw(data))
    assert response.status_code == 400
    assert f"not {name}: switch that off" in response.json()["message"]


SLOW: dict[str, tuple[bytes, bytes, list[int]]] = {
    "nothing": (b"", b"", []),
    "blank lines": (b"", b"\r\n", []),
    "a growing head": (b"GET /v1/pets HTTP/1.1\r\nHost: ", b"x", [400]),
    "a growing body": (UPLOAD, b"1\r\n \r\n", [400]),
    "a growing chunk extension": (UPLOAD + b"1;", b"a", [400]),
    "a growing trailer": (UPLOAD + chunk(PET) + b"0\r\n", b"A: b\r\n", [400]),
    "a refused body": (post(CHUNKED), b"1\r\n \r\n", [401]),
    "a second request": (get("first") + b"GET /v1", b"", [200, 400]),
}


def drip(live: Live, begin: bytes, drop: bytes) -> list[int]:
    """Send data, then drops of more until disconnected; return the responses' status codes."""
    found = b""
    with connect(live) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(begin)
        connection.settimeout(0.1)
        for _ in range(100):
            with contextlib.suppress(TimeoutError):
                if not (piece := connection.recv(65536)):
                    break
                found += piece
            connection.sendall(drop)
        else:
            pytest.fail("not disconnected")
    return statuses(found)


def test_a_request_that_takes_too_long_is_400_and_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 0.5)
    with in_thread() as live, connect(live) as idle, ThreadPoolExecutor(len(SLOW)) as pool:
        idle.sendall(head("HEAD /livez", HOST))
        slow = {name: pool.submit(drip, live, *sent) for name, (*sent, _) in SLOW.items()}
        found = {name: client.result() for name, client in slow.items()}
        idle.sendall(head("HEAD /livez", HOST, CLOSE))  # a client may wait between requests
        assert len(parse_responses(receive(idle), bodies=False)) == 2
    assert found == {name: expected for name, (*_, expected) in SLOW.items()}


def test_an_idle_connection_is_kept_for_the_time_that_is_set_and_one_in_use_stays(
    start: Start,
) -> None:
    live = start(keep_alive_seconds="5", drain_seconds="0")
    with connect(live) as idle, connect(live) as used:
        begin = time.monotonic()
        for connection in (idle, used):
            connection.sendall(head("HEAD /livez", HOST))
        assert parse_responses(idle.recv(65536), bodies=False)
        while not select.select([idle], [], [], 1)[0]:
            used.sendall(head("HEAD /livez", HOST))
        assert 5 <= time.monotonic() - begin < Settings().keep_alive_seconds
        assert idle.recv(1) == b""
        used.sendall(head("HEAD /livez", HOST, CLOSE))
        assert len(parse_responses(receive(used), bodies=False)) > 5


ENDLESS = {
    "header": (b"GET /livez HTTP/1.1\r\nA: ", b"b" * 20_000, [400]),
    "dribbled header": (b"GET /livez HTTP/1.1\r\nA: ", b"b" * 500, [400]),
    "headers": (b"GET /livez HTTP/1.1\r\n", b"A: b\r\n" * 4000, [400]),
    "chunk extension": (UPLOAD + b"1;", b"a" * 20_000, [400]),
    "trailer": (UPLOAD + chunk(PET) + b"0\r\nA: ", b"b" * 20_000, [400]),
    "trailers": (UPLOAD + chunk(PET) + b"0\r\n", b"A: b\r\n" * 4000, [400]),
    "body over the limit": (UPLOAD, chunk(bytes(50_000)), [413]),
    "body without a key": (post(CHUNKED), chunk(bytes(50_000)), [401]),
    "declared body without a key": (post(f"Content-Length: {10**12}"), bytes(50_000), [401]),
    "body of a GET": (head("GET /v1/pets", HOST, AUTHORIZED, CHUNKED), chunk(bytes(50_000)), [200]),
}


def test_endless_requests_are_cut_off_and_use_no_memory(start: Start) -> None:
    service = start()
    for name, (begin, piece, expected) in ENDLESS.items():
        size, sent, before = 200_000_000, 0, service.resident()
        with connect(service) as connection:
            connection.sendall(begin)
            with contextlib.suppress(ConnectionError):
                while sent < size:
                    connection.sendall(piece)
                    sent += len(piece)
            grown = service.resident() - before
            assert sent < size, name
            assert statuses(receive(connection)) == expected, name
        assert grown < 8_000_000, name
