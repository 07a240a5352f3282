"""Requests that are written byte by byte, and the responses to them."""

import socket
from collections.abc import Iterable
from typing import Final

import pytest
from httpx import Headers, Response

from petstore.http.errors import ErrorCode
from tests.support.responses import check_error
from tests.support.services import KEY, Live
from tests.support.waiting import HANG_SECONDS

HOST: Final = "Host: x"
CLOSE: Final = "Connection: close"
AUTHORIZED: Final = f"Authorization: Bearer {KEY}"
JSON: Final = "Content-Type: application/json"
CHUNKED: Final = "Transfer-Encoding: chunked"

LIMIT: Final = 65536  # the maximum length of a body in bytes

_CODES: Final = {int(code.status): str(code) for code in ErrorCode}


def head(line: str, *headers: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join((f"{line} HTTP/1.1", *headers, "", "")).encode("latin-1")


def begin_body(live: Live, framing: str, body: bytes = b"", *, key: str = KEY) -> socket.socket:
    """Send a request that creates a pet, and of its body only the beginning."""
    connection = socket.create_connection((live.host, live.port), timeout=HANG_SECONDS)
    authorized = f"Authorization: Bearer {key}"
    connection.sendall(head("POST /v1/pets", HOST, authorized, JSON, framing) + body)
    return connection


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def parse_responses(raw: bytes, *, bodies: bool = True) -> list[Response]:
    """Parse everything received on a connection; check what every response must have.

    bodies -- False if the requests were HEAD: their responses have no bodies
    """
    found = []
    while raw:
        top, _, raw = raw.partition(b"\r\n\r\n")
        line, *lines = top.split(b"\r\n")
        assert line.startswith(b"HTTP/1.1 ")
        pairs = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
        headers = Headers(pairs)
        length = int(headers.get("content-length", "0")) if bodies else 0
        assert len(raw) >= length
        response = Response(int(line.split()[1]), headers=headers, content=raw[:length])
        raw = raw[length:]
        found.append(response)
        assert response.status_code == 100 or response.headers["x-request-id"]
        assert response.status_code < 500
        if response.status_code >= 400 and bodies:
            check_error(response, response.status_code, _CODES[response.status_code])
    return found


def statuses(raw: bytes) -> list[int]:
    """Return the status code of every response received on a connection."""
    return [response.status_code for response in parse_responses(raw)]


def request(
    live: Live, line: str, *headers: str, body: bytes = b"", key: str = AUTHORIZED
) -> Response:
    """Send one request over a new connection; return the response.

    line -- the request line without the version
    key -- the Authorization header, or nothing
    """
    length = [f"Content-Length: {len(body)}"] if body else []
    raw = live.raw(head(line, HOST, CLOSE, *[key] * bool(key), *length, *headers) + body)
    # Random bytes may be several requests: the first response is the one to this request.
    response = parse_responses(raw, bodies=not line.startswith("HEAD "))[0]
    if response.is_error or line.split(" ", 1)[1].startswith("/v1"):
        assert response.headers["cache-control"] == "no-store"
    return response


def each(name: str, values: Iterable[object]) -> pytest.MarkDecorator:
    """Run a test with each of these values; long ones are shortened in its name to their end."""
    return pytest.mark.parametrize(name, values, ids=lambda v: ascii(v).replace(r"\r\n", "|")[-60:])
