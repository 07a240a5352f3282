"""One request and its response: the ASGI 3.0 side of a connection.

What an application is given as `send` is the `Exchange`. An application that knows it hands over a
whole response in one call, and takes a body that has arrived: see `Exchange.respond` and
`Exchange.take_body`. Any other receives ASGI messages, and sends two, the second with the whole
body: nothing streams. Every header is checked before the first byte is written.
"""

import asyncio
import logging
import re
from asyncio import CancelledError
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any, Final, Protocol

from petstore.server.request_head import HeaderList

HIGH_WATER_BYTES: Final = 64 * 1024
"""The connection is not read while more than this of a body waits for the application."""

_log = logging.getLogger("petstore.server")

_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",  # RFC 9110; Python before 3.13 has those of RFC 7231
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}".encode() for status in range(100, 600)
}
_LENGTHS: Final = {length: b"\r\ncontent-length: %d" % length for length in range(2048)}
"""The usual ones: to make one anew takes 0.2 us."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_NOT_IN_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # section 5.5
_NO_CONTENT: Final = frozenset({204, 304})  # and 1xx, which an application cannot send
# A body from this size on is not copied behind its head: not the reference nor the document, for
# which clients need no key.
_LARGE_BYTES: Final = 32 * 1024
_CLOSE: Final = (b"connection", b"close")


class Carrier(Protocol):
    """What an exchange needs of its connection; `HttpConnection` says what each does."""

    transport: asyncio.Transport

    def pause_reading(self) -> None: ...  # noqa: D102
    def resume_reading(self) -> None: ...  # noqa: D102
    def start_of_response(self, status: int) -> bytes: ...  # noqa: D102
    def response_complete(self, exchange: "Exchange", size: int) -> None: ...  # noqa: D102
    def finished(self, exchange: "Exchange") -> None: ...  # noqa: D102


class Exchange:
    """A request in flight on a connection.

    connection -- what it came on, and what the response is written to
    scope -- the ASGI scope of the request
    keep_alive -- whether the connection may stay open after the response
    expects_continue -- whether the client waits for ``100 Continue`` before it sends the body
    task -- what serves it, once it has been started
    """

    task: "asyncio.Task[None]"
    more_body = True
    complete = False  # whether the response was handed over
    disconnected = False
    half_closed = False
    _body: bytes | bytearray = b""  # what has arrived of it and was not received yet
    _delivered = False  # whether the application has received the end of the body
    _start: dict[str, Any] | None = None  # the first of two messages
    _news: asyncio.Event | None = None  # what each `receive` waits for

    def __init__(
        self,
        connection: Carrier,
        scope: dict[str, Any],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self._connection = connection
        self.scope = scope
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue

    async def run(self, app: Any) -> None:
        """Let the application serve the request. Whatever it does, the client gets a response."""
        try:
            if not self.disconnected:
                await app(self.scope, self.receive, self)
            if not (self.complete or self.disconnected):
                _log.error("the ASGI application returned without completing its response")
        except (KeyboardInterrupt, SystemExit):
            raise
        except CancelledError:  # the server is stopping
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the client is waiting
            _log.error("exception in the ASGI application", exc_info=error)
        finally:
            if not (self.complete or self.disconnected):
                self.keep_alive = False
                headers = [(b"content-type", b"text/plain; charset=utf-8")]
                self.respond(500, headers, b"Internal Server Error")
            self._connection.finished(self)

    def feed(self, data: bytes) -> None:
        """Take a part of the body."""
        if not self._body:
            self._body = data  # usually this is all of it
        elif isinstance(self._body, bytes):
            self._body = bytearray(self._body + data)
        else:
            self._body += data
        if len(self._body) > HIGH_WATER_BYTES:
            self._connection.pause_reading()
        if self._news:
            self._news.set()

    def end(self) -> None:
        """Mark the request as complete."""
        self.more_body = False
        if self._news:
            self._news.set()

    def disconnect(self) -> None:
        """Mark the client as gone, or its request as rejected."""
        self.disconnected = True
        if self._news:
            self._news.set()

    def half_close(self) -> None:
        """Mark the end of what the client sends: it may be gone, or still reading."""
        self.half_closed = True
        if self._news:
            self._news.set()

    async def receive(self) -> dict[str, Any]:
        """Return the next ASGI event: a part of the body, or ``http.disconnect``.

        A client that has closed its side counts as gone here, but a response is still written.
        """
        if self.expects_continue:
            self.expects_continue = False
            if not (self.complete or self.disconnected or self._connection.transport.is_closing()):
                self._connection.transport.write(_CONTINUE)
        while not (self.disconnected or self.complete):
            if self._body or (not self.more_body and not self._delivered):
                body, self._body = bytes(self._body), b""
                self._delivered = not self.more_body
                return {"type": "http.request", "body": body, "more_body": self.more_body}
            if self.half_closed:
                break
            self._connection.resume_reading()
            self._news = self._news or asyncio.Event()
            self._news.clear()
            await self._news.wait()
        return {"type": "http.disconnect"}

    def take_body(self, most: int) -> bytes | None:
        """Return what is not yet received of the body, if all of it has arrived; otherwise None.

        This is `receive` without a coroutine, for an application whose `send` is the exchange.

        most -- the number of bytes from which on it is left to `receive`, too
        """
        if (
            self.more_body
            or self._delivered
            or self.disconnected
            or self.complete
            or self.expects_continue
            or len(self._body) > most
        ):
            return None
        body, self._body, self._delivered = bytes(self._body), b"", True
        return body

    def respond(
        self,
        status: int,
        headers: HeaderList,
        body: bytes,
        encoded: Iterable[bytes] = (),
        length: int | None = None,
    ) -> None:
        """Send a whole response at once. This never waits: the next request does.

        headers -- without ``Content-Length``, which is added where the status permits a body
        encoded -- further headers but ``Connection``, valid and as they are written, in any pieces:
            each begins with the line break of the line before
        length -- of a body that was left out for HEAD

        Raises `RuntimeError` for an invalid header, and for a second response.
        """
        if self.complete:
            raise RuntimeError("there was a response before")
        start = self._connection.start_of_response(status)
        parts = [start, *map(_encode, headers), *encoded]
        if status in _NO_CONTENT:
            body = b""
        else:
            size = len(body) if length is None else length
            parts.append(_LENGTHS.get(size) or b"\r\ncontent-length: %d" % size)
        if self.expects_continue and self.more_body:  # the client may send its body, or not
            self.keep_alive = False
        if _CLOSE in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            parts.append(b"\r\nconnection: close")
        parts.append(b"\r\n\r\n")
        if self.scope["method"] == "HEAD":
            body = b""
        self.complete = True
        self._body = b""
        if self._news:
            self._news.set()
        if self.disconnected:
            return
        if len(body) < _LARGE_BYTES:
            parts.append(body)
            self._connection.transport.write(b"".join(parts))
        else:
            self._connection.transport.writelines((b"".join(parts), body))
        self._connection.response_complete(self, len(body))

    async def __call__(self, message: Any) -> None:
        """Take an ASGI message: ``http.response.start``, then one ``http.response.body``.

        Raises `RuntimeError` for one that does not fit, and for an invalid header.
        """
        if message["type"] == "http.response.start":
            self._start = message
        elif self._start is None or message.get("more_body", False):
            raise RuntimeError("expected a start and one body with all of the response")
        else:
            headers = [pair for pair in self._start["headers"] if pair[0] != b"content-length"]
            length = None
            if self.scope["method"] == "HEAD":
                sent = dict(self._start["headers"])
                length = int(sent.get(b"content-length", len(message["body"])))
            self.respond(self._start["status"], headers, message["body"], length=length)


def _encode(header: tuple[bytes, bytes]) -> bytes:
    """Return a header as it is written. Raises `RuntimeError` if it is invalid."""
    name, value = header
    if _NOT_IN_VALUE.search(value):
        raise RuntimeError(f"the response's header {name!r} has a control character in its value")
    return _start_of_line(name) + value


@cache
def _start_of_line(name: bytes) -> bytes:
    """Return a header up to its value. Raises `RuntimeError` if its name is not one."""
    if not _TOKEN.fullmatch(name):
        raise RuntimeError(f"the response has an invalid header name: {name!r}")
    return b"\r\n%b: " % name.lower()
