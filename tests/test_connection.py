"""What is no proper HTTP, or odd in the way it arrives: over raw sockets, byte by byte."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from petstore import protocol
from tests.live import KEY, Live, in_thread
from tests.test_specification import check_error

HOST = "Host: x"
AUTHORIZED = f"Authorization: Bearer {KEY}"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
PET = b'{"name":"Rex","categoryId":7}'


def head(line: str, *fields: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join((line, *fields, "", "")).encode("latin-1")


def get(request_id: str) -> bytes:
    """Return a whole request whose answer carries `request_id`."""
    return head("GET /v1/pets?limit=1 HTTP/1.1", HOST, AUTHORIZED, f"X-Request-Id: {request_id}")


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def answers(raw: bytes, *, bodies: bool = True) -> list[httpx.Response]:
    """Take apart what came over a connection; check what every answer carries."""
    found = []
    while raw:
        top, end, raw = raw.partition(b"\r\n\r\n")
        assert end, top
        line, *lines = top.split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version == b"HTTP/1.1"
        fields = [(name, value) for name, _, value in (field.partition(b": ") for field in lines)]
        length = int(dict(fields).get(b"content-length", b"0")) if bodies else 0
        assert len(raw) >= length
        answer = httpx.Response(int(status), headers=fields, content=raw[:length])
        raw = raw[length:]
        if answer.status_code != 100:
            assert answer.headers["x-request-id"]
            assert answer.status_code < 500
            found.append(answer)
    return found


def check_refused(raw: bytes) -> None:
    """Check that the only answer is a 400, and that it says that the connection ends."""
    (answer,) = answers(raw)
    assert check_error(answer, 400, "invalid_request").startswith("HTTP: ")
    assert answer.headers["connection"] == "close"
    assert answer.headers["cache-control"] == "no-store"


def connect(live: Live) -> socket.socket:
    """Open a connection that never blocks for long and sends what it is given at once."""
    connection = socket.create_connection((live.host, live.port), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket) -> bytes:
    """Return all that comes until the connection is closed, also if it is closed hard."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


def flood(live: Live, begin: bytes, piece: bytes, size: int) -> tuple[bytes, int, int]:
    """Send `piece` until cut off or `size` bytes are gone.

    Return what came back, the bytes sent, and by how much the process grew meanwhile.
    """
    before = resident(live)
    most = before
    sent = 0
    with connect(live) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(begin)
            while sent < size:
                connection.sendall(piece)
                sent += len(piece)
                most = max(most, resident(live))
            connection.shutdown(socket.SHUT_WR)
        return receive(connection), sent, most - before


def resident(live: Live) -> int:
    """Return how many bytes of memory the process of a service holds."""
    assert live.process is not None
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture(autouse=True)
def still_well(service: Live) -> Iterator[None]:
    """After every test the service answers, and it did not log any exception."""
    assert service.process is not None
    log = Path(f"/proc/{service.process.pid}/fd/2")
    begin = log.stat().st_size
    yield
    assert service.client.get("/v1/pets").status_code == 200
    with log.open("rb") as lines:
        lines.seek(begin)
        assert b"Traceback" not in lines.read()


IMPROPER = {
    "bytes": b"\x00\xff\x01\r\n\r\n",
    "words": b"how are you?\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "named HTTP/0.9": head("GET /livez HTTP/0.9", HOST),
    "named HTTP/2": head("GET /livez HTTP/2.0", HOST),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown version": head("GET /livez HTTP/1.2", HOST),
    "no path": head("GET HTTP/1.1", HOST),
    "no slash": head("GET livez HTTP/1.1", HOST),
    "bytes in path": head("GET /v1/pets/\u00d9\u00a1 HTTP/1.1", HOST),
    "bytes in query": head("GET /v1/pets?\u00ff HTTP/1.1", HOST),
    "URI without host": head("GET http:// HTTP/1.1", HOST),
    "URI with bad port": head("GET http://x:99999/livez HTTP/1.1", HOST),
    "CONNECT": head("CONNECT x:80 HTTP/1.1", HOST),
    "unknown method": head("FOO /v1/pets HTTP/1.1", HOST),
    "small method": head("get /v1/pets HTTP/1.1", HOST),
    "no Host": head("GET /livez HTTP/1.1"),
    "two Hosts": head("GET /livez HTTP/1.1", HOST, HOST),
    "space before colon": head("GET /livez HTTP/1.1", "Host : x"),
    "no colon": head("GET /livez HTTP/1.1", HOST, "nonsense"),
    "folded field": head("GET /livez HTTP/1.1", HOST, "A: b", " c"),
    "NUL in a field": head("GET /livez HTTP/1.1", HOST, "A: b\x00"),
    "lines end in LF": b"GET /livez HTTP/1.1\nHost: x\n\n",
    "length and chunks": head("POST /v1/pets HTTP/1.1", HOST, "Content-Length: 5", CHUNKED),
    "chunks and length": head("POST /v1/pets HTTP/1.1", HOST, CHUNKED, "Content-Length: 5"),
    "two lengths": head("POST /v1/pets HTTP/1.1", HOST, *(f"Content-Length: {n}" for n in (5, 6))),
    "length list": head("POST /v1/pets HTTP/1.1", HOST, "Content-Length: 5, 6"),
    "negative length": head("POST /v1/pets HTTP/1.1", HOST, "Content-Length: -1"),
    "signed length": head("POST /v1/pets HTTP/1.1", HOST, "Content-Length: +5"),
    "huge length": head("POST /v1/pets HTTP/1.1", HOST, f"Content-Length: {'9' * 30}"),
    "other coding": head("POST /v1/pets HTTP/1.1", HOST, "Transfer-Encoding: gzip"),
    "other coding last": head("POST /v1/pets HTTP/1.1", HOST, "Transfer-Encoding: chunked, gzip"),
    "101 fields": head("GET /livez HTTP/1.1", HOST, *["A: b"] * 100),
    "5,000 fields": head("GET /livez HTTP/1.1", HOST, *["A: b"] * 5000),
    "field over 32 KiB": head("GET /livez HTTP/1.1", HOST, "A: " + "b" * 33_000),
    "path over 32 KiB": head("GET /" + "a" * 33_000 + " HTTP/1.1", HOST),
    "fields over 32 KiB": head("GET /livez HTTP/1.1", HOST, *["A: " + "b" * 1000] * 40),
    "field of 200 KiB": head("GET /livez HTTP/1.1", HOST, "A: " + "b" * 200_000),
}  # fmt: skip
BAD_CHUNKS = [
    b"zz\r\n", b"-1\r\n", b"0x1\r\n{\r\n", b"\r\n", b";\r\n", b"2 \r\n{}\r\n", b"2\n{}\n",
    b"F" * 17 + b"\r\n", b"2\r\n{}{}\r\n", b"2\r\n{}\n0\r\n\r\n", b"0\r\nno trailer\r\n\r\n",
]  # fmt: skip
UPLOAD = head("POST /v1/pets HTTP/1.1", HOST, AUTHORIZED, JSON, CHUNKED)
parametrize_improper = pytest.mark.parametrize("data", IMPROPER.values(), ids=IMPROPER)


class TestImproper:
    """What cannot be served is 400, and the connection is closed."""

    @parametrize_improper
    def test_it_is_400_on_a_new_connection(self, service: Live, data: bytes) -> None:
        check_refused(service.raw(data))

    @parametrize_improper
    def test_it_is_400_on_a_kept_connection(self, service: Live, data: bytes) -> None:
        with connect(service) as connection:
            connection.sendall(get("first"))
            assert answers(connection.recv(65536))[0].status_code == 200
            connection.sendall(data)
            check_refused(receive(connection))

    @parametrize_improper
    def test_a_whole_request_before_it_is_answered(self, service: Live, data: bytes) -> None:
        first, *rest = answers(service.raw(get("first") + data))
        assert (first.status_code, first.headers["x-request-id"]) == (200, "first")
        assert [answer.status_code for answer in rest] in ([], [400])

    @pytest.mark.parametrize("chunks", BAD_CHUNKS)
    def test_bad_chunks_are_400(self, service: Live, chunks: bytes) -> None:
        check_refused(service.raw(UPLOAD + chunks))

    @pytest.mark.parametrize("chunks", BAD_CHUNKS)
    def test_a_whole_request_before_bad_chunks_is_answered(
        self, service: Live, chunks: bytes
    ) -> None:
        first, *rest = answers(service.raw(get("first") + UPLOAD + chunks))
        assert (first.status_code, first.headers["x-request-id"]) == (200, "first")
        assert [answer.status_code for answer in rest] in ([], [400])

    def test_a_head_that_comes_in_dribbles_is_not_longer(self, service: Live) -> None:
        with connect(service) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /livez HTTP/1.1\r\n")
            for _ in range(40):
                connection.sendall(b"A: " + b"b" * 995 + b"\r\n")
                time.sleep(0.002)
            check_refused(receive(connection))

    @pytest.mark.parametrize("piece", [b"b" * 20_000, b"A: b\r\n" * 4000], ids=["field", "fields"])
    def test_a_head_without_end_is_400_and_takes_no_memory(
        self, service: Live, piece: bytes
    ) -> None:
        came, sent, grown = flood(service, b"GET /livez HTTP/1.1\r\nA: ", piece, 50_000_000)
        check_refused(came)
        assert sent < 50_000_000
        assert grown < 8_000_000


class TestOdd:
    """What is unusual, but proper, is served."""

    @pytest.mark.parametrize(
        "data",
        [
            head("GET /livez HTTP/1.0"),
            head("GET /livez HTTP/1.1", "Host:", "Connection: close"),
            head("GET http://other/livez HTTP/1.1", HOST, "Connection: close"),
            head("GET /livez HTTP/1.1", HOST, "Connection: close", *["A: b"] * 98),
            head("GET /livez HTTP/1.1", HOST, "Connection: close", "A: " + "b" * 31_000),
            b"\r\n\r\n" + head("GET /livez HTTP/1.1", HOST, "Connection: close"),
        ],
        ids=["HTTP/1.0", "empty Host", "absolute URI", "100 fields", "31 KB", "blank lines"],
    )  # fmt: skip
    def test_it_is_served(self, service: Live, data: bytes) -> None:
        (answer,) = answers(service.raw(data))
        assert (answer.status_code, answer.text) == (200, "ok\n")

    def test_no_method_applies_to_the_whole_service(self, service: Live) -> None:
        (answer,) = answers(service.raw(head("OPTIONS * HTTP/1.1", HOST, "Connection: close")))
        check_error(answer, 404, "not_found")

    @pytest.mark.parametrize(
        "fields",
        [
            ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
        ],
        ids=["websocket", "h2c"],
    )  # fmt: skip
    def test_an_upgrade_is_served_as_a_plain_get(
        self, service: Live, fields: tuple[str, ...]
    ) -> None:
        for data in (b"", b"\x81\x05hello"):
            came = service.raw(head("GET /v1/pets HTTP/1.1", HOST, AUTHORIZED, *fields) + data)
            assert [answer.status_code for answer in answers(came)] == [200]
        (answer,) = answers(service.raw(head("GET /v1/pets HTTP/1.1", HOST, *fields)))
        check_error(answer, 401, "unauthorized")

    def test_a_client_of_http_1_0_is_sent_no_100(self, service: Live) -> None:
        fields = (AUTHORIZED, JSON, "Expect: 100-continue", f"Content-Length: {len(PET)}")
        came = service.raw(head("POST /v1/pets HTTP/1.0", *fields) + PET)
        assert came.startswith(b"HTTP/1.1 201 ")  # RFC 9110, section 10.1.1

    def test_a_trailer_field_is_no_header_field(self, service: Live) -> None:
        upload = head("POST /v1/pets HTTP/1.1", HOST, JSON, CHUNKED, "Connection: close")
        data = upload + chunk(PET) + b"0\r\n" + AUTHORIZED.encode() + b"\r\n\r\n"
        (answer,) = answers(service.raw(data))
        check_error(answer, 401, "unauthorized")

    def test_trailer_fields_without_end_take_no_memory(self, service: Live) -> None:
        begin = UPLOAD + chunk(PET) + b"0\r\n"
        _, sent, grown = flood(service, begin, b"A: " + b"b" * 1000 + b"\r\n", 30_000_000)
        assert sent < 30_000_000
        assert grown < 8_000_000


class TestPipelining:
    """Several requests on one connection."""

    def test_all_are_answered_in_order(self, service: Live) -> None:
        ids = [f"request-{n}" for n in range(60)]
        fields = (HOST, AUTHORIZED, JSON, f"Content-Length: {len(PET)}")
        post = "POST /v1/pets HTTP/1.1"
        data = b"".join(
            (get(id_), head(post, *fields, f"X-Request-Id: {id_}") + PET)[n % 2]
            for n, id_ in enumerate(ids)
        )
        found = answers(service.raw(data, half_close=True))
        assert [answer.headers["x-request-id"] for answer in found] == ids
        assert [answer.status_code for answer in found] == [200, 201] * 30

    def test_pieces_may_be_cut_anywhere(self, service: Live) -> None:
        with connect(service) as connection:
            data = get("a") + UPLOAD + chunk(PET) + b"0\r\n\r\n" + get("b")
            for byte in data:
                connection.sendall(bytes([byte]))
            connection.shutdown(socket.SHUT_WR)
            found = answers(receive(connection))
        assert [answer.status_code for answer in found] == [200, 201, 200]

    def test_the_body_of_a_refused_request_is_no_request(self, service: Live) -> None:
        body = get("smuggled")
        refused = head("POST /v1/pets HTTP/1.1", HOST, f"Content-Length: {len(body)}")
        found = answers(service.raw(refused + body + get("last"), half_close=True))
        assert [answer.status_code for answer in found] == [401, 200]
        assert found[1].headers["x-request-id"] == "last"


BEGUN = {
    "line": b"GET /v1/pe",
    "head": b"GET /v1/pets HTTP/1.1\r\nHost: x\r\n",
    "declared body": head("POST /v1/pets HTTP/1.1", HOST, AUTHORIZED, JSON, "Content-Length: 9"),
    "part of a body": head("POST /v1/pets HTTP/1.1", HOST, AUTHORIZED, JSON, "Content-Length: 9")
    + b"{",
    "chunked body": UPLOAD,
    "part of a chunk": UPLOAD + b"9\r\n{",
}
parametrize_begun = pytest.mark.parametrize("data", BEGUN.values(), ids=BEGUN)


class TestEnd:
    """Clients that end the connection early."""

    @pytest.mark.parametrize(
        ("data", "statuses"),
        [
            (get("a"), [200]),
            (get("a") + get("b"), [200, 200]),
            (UPLOAD + chunk(PET) + b"0\r\n\r\n", [201]),
            (b"", []),
            (b"\r\n", []),
        ],
    )
    def test_half_closed_after_a_whole_request_it_is_answered(
        self, service: Live, data: bytes, statuses: list[int]
    ) -> None:
        found = answers(service.raw(data, half_close=True))
        assert [answer.status_code for answer in found] == statuses

    @parametrize_begun
    def test_half_closed_in_mid_request_is_400(self, service: Live, data: bytes) -> None:
        check_refused(service.raw(data, half_close=True))

    @parametrize_begun
    def test_a_reset_in_mid_request_does_no_harm(self, service: Live, data: bytes) -> None:
        with connect(service) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(get("a") + data)


SLOW = {
    "nothing": (b"", b""),
    "blank lines": (b"", b"\r\n"),
    "half a line": (b"GET /v1", b""),
    "a growing head": (b"GET /v1/pets HTTP/1.1\r\nHost: ", b"x"),
    "a growing body": (UPLOAD, b"1\r\n \r\n"),
    "a growing chunk extension": (UPLOAD + b"1;", b"a"),
    "growing trailer fields": (UPLOAD + chunk(PET) + b"0\r\n", b"A: b\r\n"),
    "a refused body": (head("POST /v1/pets HTTP/1.1", HOST, CHUNKED), b"1\r\n \r\n"),
    "a second request": (head("GET /livez HTTP/1.1", HOST) + b"GET /v1", b""),
    "a kept connection": (head("GET /livez HTTP/1.1", HOST), b""),
}
ANSWERS: dict[str, list[int]] = {
    "nothing": [], "blank lines": [], "a refused body": [401], "a second request": [200, 400],
    "a kept connection": [200],
}  # fmt: skip


class TestSlowness:
    """A request has a limited time to arrive, however its bytes come in."""

    @pytest.fixture(scope="class")
    def endings(self) -> Iterator[dict[str, tuple[bytes, bool]]]:
        """Return, of each slow client, what it got and whether it was cut off."""

        def drip(live: Live, begin: bytes, drop: bytes) -> tuple[bytes, bool]:
            found = b""
            end = time.monotonic() + 5
            with connect(live) as connection, contextlib.suppress(ConnectionError):
                connection.sendall(begin)
                connection.settimeout(0.1)
                while time.monotonic() < end:
                    with contextlib.suppress(TimeoutError):
                        if not (piece := connection.recv(65536)):
                            return found, True
                        found += piece
                    connection.sendall(drop)
                return found, False
            return found, True

        with pytest.MonkeyPatch.context() as patch, in_thread() as live:
            patch.setattr(protocol, "REQUEST_SECONDS", 0.5)
            with ThreadPoolExecutor(len(SLOW)) as pool:
                clients = {name: pool.submit(drip, live, *slow) for name, slow in SLOW.items()}
            yield {name: client.result() for name, client in clients.items()}
            assert live.client.get("/v1/pets").status_code == 200

    @pytest.mark.parametrize("name", SLOW)
    def test_it_is_answered_400_if_begun_and_cut_off(
        self, endings: dict[str, tuple[bytes, bool]], name: str
    ) -> None:
        came, cut_off = endings[name]
        assert [answer.status_code for answer in answers(came)] == ANSWERS.get(name, [400])
        assert cut_off is (name != "a kept connection")


class TestMass:
    """Much of something does not take the service down."""

    @pytest.mark.parametrize(
        ("begin", "status"),
        [
            (head("POST /v1/pets HTTP/1.1", HOST, JSON, CHUNKED), 401),
            (head("GET /v1/pets HTTP/1.1", HOST, AUTHORIZED, CHUNKED), 200),
            (head("GET /nothing HTTP/1.1", HOST, CHUNKED), 404),
            (UPLOAD, 413),
        ],
        ids=["no key", "not wanted", "no path", "over the limit"],
    )
    def test_a_body_without_end_is_answered_then_cut_off(
        self, service: Live, begin: bytes, status: int
    ) -> None:
        came, sent, grown = flood(service, begin, chunk(bytes(50_000)), 50_000_000)
        assert [answer.status_code for answer in answers(came)] == [status]
        assert sent < 50_000_000
        assert grown < 8_000_000

    def test_a_declared_body_without_end_is_answered_then_cut_off(self, service: Live) -> None:
        begin = head("POST /v1/pets HTTP/1.1", HOST, f"Content-Length: {10**12}")
        came, sent, grown = flood(service, begin, bytes(50_000), 50_000_000)
        assert [answer.status_code for answer in answers(came)] == [401]
        assert sent < 50_000_000
        assert grown < 8_000_000

    @parametrize_begun
    def test_500_open_connections_do_not_stop_it(self, service: Live, data: bytes) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(500):
                stack.enter_context(connect(service)).sendall(data)
            assert service.client.get("/v1/pets").status_code == 200
            assert service.client.post("/v1/pets", content=PET, headers=dict([JSON.split(": ")]))
