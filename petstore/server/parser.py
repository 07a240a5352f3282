"""Requests out of bytes: httptools gets each head alone, and each body up to its end.

So it is known where a request begins, and its line can be checked: httptools takes more than HTTP.
It also limits no sizes, refuses methods that it does not know, and stops behind an offered upgrade.
"""

import re
from typing import Final, Protocol

import httptools

from petstore.server.request_head import MAX_HEADERS, HeaderList, MalformedError, check_headers

MAX_HEAD_BYTES: Final = 32 * 1024
"""The maximum size of everything but the body: head, chunk extensions and trailers together.

Also the maximum size of what is parsed at once, so that it cannot hide more than that.
"""

_CHUNK_FRAME_BYTES: Final = 20
"""The framing of one chunk: at most 16 digits and two line breaks."""

# RFC 9112, section 3. A method that is longer than any known one gets no response of its own.
_METHOD: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}"
_LINE: Final = re.compile(rb"(%b) ([^ \r\n]+) HTTP/(1\.[01])\r\n" % _METHOD)
_BEGINNING: Final = re.compile(rb"%b(?: |\Z)" % _METHOD)

_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")

_METHODS: Final = {
    name.encode(): name
    for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")
}
"""What httptools is given under its own name: others it does not know, or not as HTTP."""

_NOT_HTTP: Final = "expected a method, a target and HTTP/1.1 or HTTP/1.0, with single spaces"
_OTHER_PROTOCOLS: Final = {
    b"PROXY ": "the PROXY protocol",
    b"\0\r\nQUIT\n": "the PROXY protocol",  # version 2, behind line breaks
    b"PRI * HTTP/2.0": "HTTP/2",  # RFC 9113, section 3.4
    b"\x16\x03": "TLS",
}
"""What a proxy may begin with that is set up for another server."""

_INVALID: Final = "not a valid HTTP/1.1 request"
_TOO_LARGE: Final = "the head, with chunk extensions and trailers, is too large"


IDLE, HEAD, BODY, DISCARD = range(4)
"""What arrives next on a connection. `DISCARD`: no request, because the last response was sent, or
nothing can be parsed any more.

Not an enumeration: Python 3.11 takes 75 ns for a member of one, ten times a request.
"""


class Receiver(Protocol):
    """What is told of requests; `HttpConnection` says what it does then.

    When a request is started, the parser has its `url` and `headers`. `MalformedError` rejects it.
    While it is serving one, its `active`, no further request is parsed.
    """

    @property
    def active(self) -> object | None: ...  # noqa: D102
    def expect_rest(self) -> None: ...  # noqa: D102
    def start_request(  # noqa: D102
        self, method: str, version: str, *, keep_alive: bool, expects_continue: bool
    ) -> None: ...
    def receive_body(self, data: bytes) -> None: ...  # noqa: D102
    def end_request(self) -> None: ...  # noqa: D102


class RequestParser:
    """Parses the requests on a connection, in whatever pieces they arrive.

    receiver -- is told of each
    phase -- what arrives next
    url, headers -- of the request whose head has arrived last
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self.phase = IDLE
        self.url = b""
        self.headers: HeaderList = []
        self._host = b""  # the last valid one
        self._head = bytearray()  # what has arrived of an incomplete one
        self._line_checked = False  # whether that is more than its line
        self._keep_alive = True  # whether another request may follow
        self._complete = False  # whether httptools has seen the end of the request
        self._length = 0  # of the rest of the body; 0 if it is chunked
        self._overhead = 0  # bytes of this request that are not its body
        self._fields = 0  # the number of headers and trailers

    def feed(self, data: bytes) -> int:
        """Parse the next piece, of `MAX_HEAD_BYTES` at most; return how much of it was parsed.

        The rest begins with a request that must wait for the one being served.

        Raises `MalformedError`; then nothing more can be parsed.
        """
        begin, new, kept = 0, False, len(self._head)
        if kept:
            if not self._keep_head(data):
                return len(data)
            data = bytes(self._head)
            self._head.clear()
        while begin < len(data):
            if self.phase == IDLE:
                if data[begin] in b"\r\n":
                    begin = _line_breaks_end(data, begin)
                elif not self._keep_alive:  # nothing behind the last request is parsed
                    self.phase = DISCARD
                    return len(data) - kept
                elif self._receiver.active is not None:
                    break
                else:
                    self.phase = HEAD
                    self._complete = False
                    new = True
                    begin = self._feed_head(data, begin)
            elif self.phase == BODY:
                begin = self._feed_body(data, begin)
            else:
                begin = self._feed_head(data, begin)
        if new and self.phase != IDLE:  # most requests arrive at once
            self._receiver.expect_rest()
        return begin - kept

    def close(self) -> None:
        """End all parsing: otherwise a reference cycle would remain."""
        del self._parser, self._receiver

    # httptools calls these.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header without surrounding whitespace. Drop a trailer."""
        if self.phase == HEAD:
            self.headers.append((name.lower(), value.strip(b" \t")))  # RFC 9110, section 5.5
            return
        self._fields += 1
        if self._fields > MAX_HEADERS:
            raise MalformedError(f"more than {MAX_HEADERS} headers and trailers")
        # RFC 9110, section 6.5.1. httptools would heed it, and ignore all that follows.
        if name.lower() in (b"connection", b"proxy-connection"):
            raise MalformedError("expected no Connection among the trailers")

    def on_headers_complete(self) -> None:
        """Ask whether the connection stays open: afterwards httptools has forgotten it."""
        self._keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        self._overhead -= len(body) + _CHUNK_FRAME_BYTES
        self._receiver.receive_body(body)

    def on_message_complete(self) -> None:
        """Note the end of the request."""
        self._complete = True

    def _feed_head(self, data: bytes, begin: int) -> int:
        """Start a request if its head is complete, else keep that; return where the rest begins."""
        end = data.find(b"\r\n\r\n", begin) + 4
        if end < 4:
            self._line_checked = False
            self._keep_head(data[begin:])
            return len(data)
        self._overhead = end - begin
        if self._overhead > MAX_HEAD_BYTES:
            raise MalformedError(_TOO_LARGE)
        line = _LINE.match(data, begin)
        if line is None:
            raise MalformedError(_explain(data[begin:], _NOT_HTTP))
        name, self.url, number = line.groups()
        version = "1.1" if number == b"1.1" else "1.0"
        method = _METHODS.get(name)
        self._parse(data[begin:end] if method else b"POST" + data[line.end(1) : end])
        checked = check_headers(self.headers, version, self._host)
        self._host, expects_continue, self._length = checked
        self._fields = len(self.headers)
        self._keep_alive = self._keep_alive and version == "1.1"
        self._receiver.start_request(
            method or name.decode("ascii"),
            version,
            keep_alive=self._keep_alive,
            expects_continue=expects_continue,
        )
        self.phase = BODY
        if self._complete:
            self._end_request()
        return end

    def _keep_head(self, data: bytes) -> bool:
        """Keep a part of an incomplete head; return whether it is complete now.

        Each byte is looked at once, for a client may send a head in as many pieces as it has bytes.
        """
        start = max(0, len(self._head) - 3)  # of what may be its end
        self._head += data
        if self._head.find(b"\r\n\r\n", start) >= 0:
            return True
        if _BARE_LINE_FEED.search(self._head, start):  # its end, for a client that errs
            raise MalformedError(_explain(self._head, _INVALID))
        if not self._line_checked:
            self._line_checked = b"\n" in data
            head = self._head
            if not (_LINE.match(head) if self._line_checked else _BEGINNING.match(head)):
                raise MalformedError(_explain(head, _NOT_HTTP))
        if len(self._head) > MAX_HEAD_BYTES:
            raise MalformedError(_TOO_LARGE)
        return False

    def _feed_body(self, data: bytes, begin: int) -> int:
        """Parse what belongs to the body, or to its framing; return where the rest begins."""
        if self._length:
            end = min(begin + self._length, len(data))
            self._length -= end - begin
        elif data[begin] in b"\r\n":  # the empty line at its end may have begun in earlier data
            end = _line_breaks_end(data, begin)
        else:
            end = data.find(b"\r\n\r\n", begin) + 4
            if end < 4:
                end = len(data)
        self._overhead += end - begin
        self._parse(data[begin:end])
        self._overhead = max(self._overhead, 0)  # a body earns nothing for its trailers
        if self._overhead > MAX_HEAD_BYTES:
            raise MalformedError(_TOO_LARGE)
        if self._complete:
            self._end_request()
        return end

    def _end_request(self) -> None:
        self.phase = IDLE
        self.url, self.headers = b"", []  # an idle connection keeps nothing of its last request
        self._receiver.end_request()

    def _parse(self, data: bytes) -> None:
        """Give httptools a head, or a part of the body."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ignore_offer(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError:
            raise MalformedError(_INVALID) from None

    def _ignore_offer(self, head: bytes) -> None:
        """Parse a head that offers an upgrade as if it offered none (RFC 9110, section 7.8).

        httptools expects another protocol behind it, so a new one gets the head again.
        """
        line = head.partition(b"\r\n")[0]
        fields = [b"\r\n%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self.headers = []
        self._complete = False
        self._parse(b"%b%b\r\n\r\n" % (line, b"".join(fields)))


def _explain(head: bytes | bytearray, otherwise: str) -> str:
    """Return what is wrong with a head: it is one of another protocol, or else."""
    for beginning, name in _OTHER_PROTOCOLS.items():
        if head.startswith(beginning):
            return (
                f"expected HTTP/1.1 without TLS, not {name}: switch that off in the client or proxy"
            )
    return otherwise


def _line_breaks_end(data: bytes, begin: int) -> int:
    """Return where the line breaks that begin here end."""
    return len(data) - len(data[begin:].lstrip(b"\r\n"))
