"""Random streams of pipelined requests: valid, mutated, and in pieces."""

import re
from random import Random

from tests.support.raw_http import AUTHORIZED, HOST

_METHODS = (b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"DESCRIBE", b"Foo-1")
_TARGETS = (b"/", b"/a?b=c", b"/%41%zz?%", b"//x/../y", b"http://h:1/p?q", b"*", b"/a'b:c@d;e")
_PROTOCOLS = (
    *(b"HTTP/1.1",) * 12,
    *(b"HTTP/1.0",) * 3,
    *(b" HTTP/1.1", b"HTTP/1.2", b"RTSP/1.0", b"ICE/1.0"),
)
_HOSTS = (b"x", b"x:80", b"[::1]:1", b"")
OFFERS = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"upgrade: h2c, foo/2\r\nConnection: keep-alive, Upgrade\r\nUpgrade: TLS/1.2,HTTP/1.1",
    b"Upgrade: websocket",
)
"""Headers with which a client offers another protocol (RFC 9110, section 7.8)."""

_HEADERS = (
    *(b"Connection: keep-alive", b"connection: close", b"Connection: a , Close"),
    *OFFERS,
    *(b"Expect: 100-continue", b"X:", b"X-Long: " + b"v" * 300, b"X:\t a b\t "),
    *(b"Proxy-Connection: close", b"TE: trailers", b"X: / HTTP/1.1"),
)
_BODIES = (b"", b"{}", b"GET / HTTP/1.1\r\nHost: y\r\n\r\n", b"0\r\n\r\n", bytes(range(256)))
_WORDS = (
    *(bytes([byte]) for byte in b'\0\t\n\r !"#%,/:;=?@0Aa\x7f\x80\xff'),
    *(b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\n ", b"0\r\n\r\n", b"5\r\nhello\r\n", b" HTTP/1.1"),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    *(b"\r\nHost: y", b"\r\nContent-Length: 5", b"\r\nContent-Length: 0"),
    *(b"\r\nContent-Length: +5", b"\r\nContent-Length: 00005"),
    b"\r\nContent-Length: 18446744073709551616",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\nTransfer-Encoding: x, chunked",
    b"\r\nTransfer-Encoding:\x0bchunked",
    *(b"\r\nConnection: close", b"\r\nConnection: upgrade"),
)


_SERVICE_HEADERS = (
    HOST.encode(),
    AUTHORIZED.encode(),
    b"X-Request-Id: a-1",
    b"Origin: https://shop.example",
    b"Accept-Encoding: gzip;q=0.5, br",
    b'If-None-Match: W/"a", "b"',
    b"Idempotency-Key: k",
    b"Content-Type: application/json; charset=utf-8",
)
REQUESTS = [
    b"\r\n".join((line + b" HTTP/1.1", *headers, b"", body))
    for line, headers, body in (
        (b"GET /v1/pets?limit=5&status=sold&x=%41+b&cursor=p0000000000000a", _SERVICE_HEADERS, b""),
        (b"GET http://x:80/v1/pets/12", _SERVICE_HEADERS, b""),
        (b"OPTIONS /v1/pets", (*_SERVICE_HEADERS, b"Access-Control-Request-Method: POST"), b""),
        (
            b"POST /v1/pets",
            (*_SERVICE_HEADERS, b"Content-Length: 02"),
            b"{}GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        ),
        (
            b"PATCH /v1/store/orders/1",
            (*_SERVICE_HEADERS, b"Transfer-Encoding: chunked"),
            b"1;a=b\r\n{\r\n1\r\n}\r\n0\r\nA: b\r\n\r\n",
        ),
    )
]
"""Requests to the service, with every header that it reads, and every framing."""


def stream(rng: Random) -> bytes:
    """Return up to five requests; most streams are mutated."""
    return _mutated(rng, b"".join(map(b"".join, _requests(rng, (1, 1, 2, 3, 5)))))


def offering(rng: Random) -> tuple[bytes, bytes]:
    """Return some valid requests, and the same with an upgrade offered in each."""
    requests = _requests(rng, (1, 2, 3))
    offered = [
        (re.sub(rb"(?=\r\nHost: )", b"\r\n" + rng.choice(OFFERS), head), body)
        for head, body in requests
    ]
    return b"".join(map(b"".join, requests)), b"".join(map(b"".join, offered))


def service_stream(rng: Random) -> bytes:
    """Return up to three requests to the service; most streams are mutated."""
    return _mutated(rng, b"".join(rng.choices(REQUESTS, k=rng.choice((1, 1, 2, 3)))))


def split(rng: Random, data: bytes) -> list[bytes]:
    """Return the stream in pieces: some, or each byte on its own."""
    if rng.random() < 0.05:
        return [bytes([byte]) for byte in data]
    places = {rng.randrange(len(data) + 1) for _ in range(rng.choice((1, 2, 4, 10)))}
    ends = [*sorted(places), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


def _requests(rng: Random, counts: tuple[int, ...]) -> list[tuple[bytes, bytes]]:
    return [_request(rng) for _ in range(rng.choice(counts))]


def _request(rng: Random) -> tuple[bytes, bytes]:
    line = b" ".join(map(rng.choice, (_METHODS, _TARGETS, _PROTOCOLS)))
    headers = [b"Host: " + rng.choice(_HOSTS), *rng.sample(_HEADERS, rng.choice((0, 0, 1, 3)))]
    body = rng.choice(_BODIES)
    if body and rng.random() < 0.5:
        headers.append(b"Transfer-Encoding: " + rng.choice((b"chunked", b"Chunked")))
        body = _chunked(rng, body)
    elif body or rng.random() < 0.2:
        headers.append(b"Content-Length: %d" % len(body))
    rng.shuffle(headers)
    blank = b"\r\n" if rng.random() < 0.05 else b""  # RFC 9112, section 2.2
    return blank + b"\r\n".join([line, *headers, b"", b""]), body


def _chunked(rng: Random, body: bytes) -> bytes:
    place = rng.randrange(len(body) + 1)
    chunks = b""
    for part in (body[:place], body[place:]):
        if part:
            size = rng.choice((b"%x", b"%X", b"00%x")) % len(part)
            chunks += size + rng.choice((b"", b"", b";a", b';a="b;c"')) + b"\r\n" + part + b"\r\n"
    return chunks + b"0\r\n" + rng.choice((b"", b"", b"Trailer: u\r\n")) + b"\r\n"


def _mutated(rng: Random, data: bytes) -> bytes:
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        places = [match.start() for match in re.finditer(rb"\b", data)] or [0]
        begin = rng.choice((rng.choice(places), rng.randint(0, len(data))))
        end = begin + rng.choice((0, 0, 1, 2, 8))
        other = rng.choice(places)
        inserted = rng.choice(
            (
                b"",
                data[other : other + 40],
                data[begin : begin + 1] * rng.choice((2, 5000)),
                *rng.sample(_WORDS, 3),
            )
        )
        data = data[:begin] + inserted + data[end:]
    return data if rng.random() < 0.95 else data[: rng.randint(0, len(data))]
