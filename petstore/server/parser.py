"""Requests out of bytes, by httptools, and by what it does not do.

It takes more than HTTP for a request line, refuses methods that it does not know, and stops behind
an offered upgrade. It also limits no sizes.
"""

import re
from enum import Enum, auto
from typing import Final, Protocol

import httptools

from petstore.server.head import MAX_HEADERS, HeaderList, MalformedError, check_headers

MAX_HEAD_BYTES: Final = 32 * 1024
"""The maximum size of everything but the body: head, chunk extensions and trailers together.

Also the maximum size of what is fed at once, so that it cannot hide more than that.
"""

_CHUNK_FRAME_BYTES: Final = 20
"""The framing of one chunk: at most 16 digits and two line breaks."""

# Every request line that the parser accepts and that can be valid ends like this.
_LINE_END: Final = re.compile(rb"/1\.[01]\r\n")

_NOT_HTTP: Final = "expected a method, a target and HTTP/1.1 or HTTP/1.0, with single spaces"
_UNKNOWN_METHOD: Final = "the method is unknown, or this is not HTTP/1.1"
_TOO_LARGE: Final = "the head, with chunk extensions and trailers, is too large"

# RFC 9112, section 3. A method that is longer than any known one gets no response of its own.
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}(?= |\Z)")
_REST_OF_LINE: Final = re.compile(rb" [^ \r\n]+ HTTP/1\.[01]\r\n")


class Phase(Enum):
    """What arrives next on a connection."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DISCARD = auto()  # no request: the last response was sent, or nothing can be parsed any more


# Python 3.11 takes 75 ns for `Phase.IDLE`, ten times a request: 5 % of a request in all.
_IDLE, _HEAD, _BODY, _DISCARD = Phase


class Receiver(Protocol):
    """What is told of requests: the connection."""

    def begin_request(self) -> None:
        """Take note of the first byte of a request."""

    def start_request(
        self, method: str, version: str, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        """Take a request whose head has arrived: the parser has its `url` and `headers`.

        Raises `MalformedError` if it is to be rejected.
        """

    def receive_body(self, data: bytes) -> None:
        """Take a part of the body."""

    def end_request(self) -> None:
        """Take note that the request is complete."""


class RequestParser:
    """Parses the requests on a connection, in whatever pieces they arrive.

    receiver -- is told of each
    phase -- what arrives next
    url, headers -- of the request whose head has arrived last
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._parser = self._new_parser()
        self.phase = _IDLE
        self.url = b""
        self.headers: HeaderList = []
        self._host = b""  # the last valid one
        self._data = b""  # what is being parsed
        # Request lines
        self._line = b""  # what has arrived of an incomplete one
        self._line_checked = False
        self._offset = 0  # where the last of the pieces that `_feed_lines` makes begins
        self._first = False  # whether that line is the first in the data that it began in
        # Requests that are parsed again
        self._method = b""  # of this request, if httptools does not know it
        self._unparsed = b""  # an incomplete request line with such a method
        self._without_offer: bytes | None = None  # the head of one that offers an upgrade
        self._again = False  # whether what begins next has begun before
        # Sizes
        self._fresh = 0  # bytes that are being parsed, if no request has begun in them yet
        self._overhead = 0  # bytes of this request that are not its body
        self._fields = 0  # the number of headers and trailers

    def feed(self, data: bytes) -> None:  # noqa: C901, PLR0912 - a call more would cost each read
        """Parse the next piece, of `MAX_HEAD_BYTES` at most.

        Raises `MalformedError`; then nothing more can be parsed.
        """
        whole = False  # whether it is one request at most, with all of its head
        if self.phase is _IDLE:
            self._fresh = len(data)
            end = data.find(b"\r\n\r\n") + 4
            if end >= 4 and data[0] > 32:
                whole = end == len(data) or data.count(b"/1.") < 2
        else:
            self._overhead += len(data)
            if self._unparsed:
                self._parse_unknown_method(self._unparsed + data)
                return
        self._data = data
        unknown, rest = b"", None
        try:
            if whole:
                self._parser.feed_data(data)
                if self.phase is _HEAD:  # of a second one, whose line is incomplete
                    self._line, self._first = data, False
            else:
                self._feed_lines(data)
        except httptools.HttpParserUpgrade as stopped:
            rest = data[(0 if whole else self._offset) + stopped.args[0] :]
        except (httptools.HttpParserError, MalformedError) as error:
            unknown = self._begun_with_unknown_method(error, 0 if whole else self._offset)
            if not unknown:
                raise _explain(error) from None
        finally:
            self._data = b""
        if unknown:
            self._parse_unknown_method(unknown)
        elif rest is not None:
            self._ignore_offer(rest)
        elif self._overhead > MAX_HEAD_BYTES:
            if self.phase is _IDLE:  # it is complete, but its application has not seen that
                self.phase = _BODY
            raise MalformedError(_TOO_LARGE)

    def forget(self) -> None:
        """Keep nothing of the last request."""
        self.url = b""
        self.headers = []

    def close(self) -> None:
        """End all parsing: otherwise a reference cycle would remain."""
        del self._parser, self._receiver

    # httptools calls these.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.url = b""
        self.headers = []
        self.phase = _HEAD
        self._line = b""
        self._line_checked = False
        # If other requests came first in the data, the share of this one is not known: count 1.
        self._overhead, self._fresh = self._fresh or 1, 0
        if self._again:
            self._again = False
        else:
            self._receiver.begin_request()

    def on_url(self, url: bytes) -> None:
        """Keep a part of the target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header without surrounding whitespace. Drop a trailer."""
        if self.phase is _HEAD:
            self.headers.append((name.lower(), value.strip(b" \t")))  # RFC 9110, section 5.5
            return
        self._fields += 1
        if self._fields > MAX_HEADERS:
            raise MalformedError(f"more than {MAX_HEADERS} headers and trailers")
        # RFC 9110, section 6.5.1. httptools would heed it, and ignore all that follows.
        if name.lower() in (b"connection", b"proxy-connection"):
            raise MalformedError("expected no Connection among the trailers")

    def on_headers_complete(self) -> None:
        """Check the head as a whole, then start the request."""
        data, parser = self._data, self._parser
        end = data.find(b" ") + 1 + len(self.url)  # of the target, in data that begins with it
        version = "1.1"
        if self._overhead != len(data) or not data.startswith(b" HTTP/1.1\r\n", end):
            version = self._check_head()  # it is not alone in its data, not all there, or odd
        checked = check_headers(self.headers, version, self._host)
        self._host, expects_continue, has_body = checked
        method = parser.get_method()
        keep_alive = parser.should_keep_alive()
        if parser.should_upgrade():
            if method != b"CONNECT":
                self._without_offer = self._repeat_head(method, version)
                return
            if has_body:  # it would not be read
                raise MalformedError("a CONNECT request with a body is not supported")
            keep_alive = False
        self._fields = len(self.headers)
        if self._method:
            method, self._method = self._method, b""
            keep_alive = False
        self._receiver.start_request(
            method.decode("ascii"),
            version,
            keep_alive=keep_alive and version == "1.1",
            expects_continue=expects_continue,
        )
        self.phase = _BODY

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        self._overhead -= len(body) + _CHUNK_FRAME_BYTES
        self._receiver.receive_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self.phase = _IDLE
        if self._without_offer is None:
            self._receiver.end_request()

    # Request lines

    def _feed_lines(self, data: bytes) -> None:
        """Parse data with a pause behind each request line, so that the line can be checked."""
        start = 0
        while start < len(data):
            if self.phase is _HEAD and not self._line_checked:
                end = data.find(b"\n", start) + 1
            else:
                match = _LINE_END.search(data, start)
                end = match.end() if match else 0
            piece = data[start:end] if end else data[start:]
            self._offset = start
            start += len(piece)
            self._parser.feed_data(piece)
            if self.phase is _HEAD and not self._line_checked:
                if not self._line:
                    self._first = self._overhead == len(data)
                self._line += piece
                if piece.endswith(b"\n"):
                    self._check_line()

    def _check_line(self) -> None:
        """Check the request line that has just ended (RFC 9112, section 3).

        httptools takes more: other protocols than HTTP, other versions, more than one space.
        """
        version = self._parser.get_http_version()
        line = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self.url, version.encode())
        if version not in ("1.0", "1.1") or not self._line.endswith(line):
            raise MalformedError(_NOT_HTTP)
        self._line_checked = True
        self._line = b""

    def _check_head(self) -> str:
        """Return the version of a request; its line was checked if it can be valid."""
        version = self._parser.get_http_version()
        data = self._data
        if not self._line_checked and not (
            self._overhead == len(data)
            and data.startswith(b"%b %b HTTP/1.0\r\n" % (self._parser.get_method(), self.url))
        ):
            raise MalformedError(_NOT_HTTP)
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HEAD_BYTES:
            raise MalformedError(_TOO_LARGE)
        self._overhead = max(self._overhead, size)
        return version

    # Requests that are parsed again

    def _begun_with_unknown_method(self, error: Exception, offset: int) -> bytes:
        """Return a request whose method httptools does not know, from its first byte on.

        Return nothing if the error is another one, or if it is not known where the request begins.

        offset -- where the piece that httptools was given begins in its data
        """
        first = self._first if self._line else self._overhead == len(self._data)
        if not (_is_of_method(error) and first and self.phase is _HEAD):
            return b""
        return (self._line + self._data[offset:]).lstrip(b"\r\n")

    def _parse_unknown_method(self, data: bytes) -> None:
        """Parse a request whose method httptools does not know, under another method.

        The application decides what to make of the method. The connection is closed afterwards.

        data -- begins with the request; if its line is incomplete, it is kept for the next data
        """
        method = _METHOD.match(data)
        rest = method and _REST_OF_LINE.match(data, method.end())
        if method is None or (rest is None and b"\n" in data):
            raise MalformedError(_UNKNOWN_METHOD)
        if rest is None:
            self._unparsed = data
            if len(data) > MAX_HEAD_BYTES:
                raise MalformedError(_TOO_LARGE)
        else:
            self._unparsed, self._method = b"", method[0]
            self._parse_again(b"TRACE" + data[method.end() :])

    def _repeat_head(self, method: bytes, version: str) -> bytes:
        """Return the head that has arrived, without the upgrade that it offers."""
        line = b"%b %b HTTP/%b\r\n" % (method, self.url, version.encode())
        fields = [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]
        return b"%b%b\r\n" % (line, b"".join(fields))

    def _ignore_offer(self, rest: bytes) -> None:
        """Parse a request that offers an upgrade as if it offered none (RFC 9110, section 7.8).

        httptools has stopped behind its head: it expects another protocol there. So a new one gets
        the head again, without the offer. After CONNECT, nothing that follows is HTTP.

        rest -- what has arrived behind the head; each further offer in it calls this again, which
            the limit on pipelined requests bounds
        """
        head, self._without_offer = self._without_offer, None
        if head is None:
            self.phase = _DISCARD
            return
        if self._overhead - len(rest) > MAX_HEAD_BYTES:
            raise MalformedError(_TOO_LARGE)
        self._parse_again(head)
        if rest:
            self.feed(rest)

    def _parse_again(self, data: bytes) -> None:
        """Parse a request whose beginning was parsed before."""
        self._parser = self._new_parser()
        self.phase, self._again = _IDLE, True
        for start in range(0, len(data), MAX_HEAD_BYTES):
            self.feed(data[start : start + MAX_HEAD_BYTES])

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser


def _is_of_method(error: Exception) -> bool:
    return str(error).startswith("Invalid method")


def _explain(error: Exception) -> BaseException:
    """Return what is wrong with what httptools did not take, or what a callback has raised."""
    if isinstance(error, httptools.HttpParserCallbackError) and error.__context__ is not None:
        return error.__context__
    if isinstance(error, MalformedError):
        return error
    return MalformedError(
        _UNKNOWN_METHOD if _is_of_method(error) else "not a valid HTTP/1.1 request"
    )
