"""The HTTP/1.1 connection, on httptools: any ASGI application that does not stream runs on it.

What a client sends is limited in size and time. A request that is malformed, too large in its head
or too slow is rejected if a response is still possible, and the connection is closed (RFC 9112,
section 2.2; for Host section 3.2). uvicorn's server creates the connections, and asks each to
`shutdown`; the sweep of `petstore.server.process` disconnects slow clients.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import unquote

import httptools

from petstore.server import sockets
from petstore.server.exchange import Exchange
from petstore.server.head import (
    MAX_HEADERS,
    HeaderList,
    MalformedError,
    check_headers,
    parse_target,
)
from petstore.server.unread import CountUnread, Unread

MAX_HEAD_BYTES: Final = 32 * 1024
"""The maximum size of everything but the body: head, chunk extensions and trailers together."""

MAX_PIPELINED: Final = 100
"""The maximum number of pipelined requests; the connection is closed after the last one."""

MAX_DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""How many bytes a client may still send after its response before it is cut off.

Many clients read a response only after they have sent their whole body, and never if the connection
is reset before. To discard a MiB takes 1 ms of CPU; a MiB of small requests takes 100 times more.
"""

REQUEST_SECONDS: Final = 20.0
"""The time limit for a request to arrive, from its first byte (or the connection) to its last."""

KEEP_ALIVE_SECONDS: Final = 75.0
"""How long an idle connection is kept: longer than proxies do, so that they close first."""

ARRIVAL_SECONDS: Final = 0.5
"""How long a stop waits for a request whose connection, or a part of it, has arrived."""

LINGER_SECONDS: Final = 2.0
"""How long a client may still send after a 400, so that it gets to read it."""

Reject = Callable[[str, HeaderList, dict[str, Any] | None], tuple[HeaderList, bytes]]
"""Returns headers and body of the 400 for a rejected request.

It is given what is wrong, the headers that have arrived, and the request's scope if the application
knows it.
"""

_log = logging.getLogger("petstore.server")

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
    DISCARD = auto()  # the last response was sent; what still arrives is discarded


# Python 3.11 takes 75 ns for `Phase.IDLE`, ten times a request: 5 % of a request in all.
_IDLE, _HEAD, _BODY, _DISCARD = Phase


class HttpConnection(asyncio.Protocol):
    """One connection.

    config -- uvicorn's: the application and the root path
    server_state -- uvicorn's: the set of connections, the set of tasks, the default headers
    app_state -- the state that the application's lifespan has set for its requests
    reject -- makes the response to a rejected request
    count_unread -- is told how much of responses a client leaves unread, if it is much
    closed -- called once the connection is closed
    """

    transport: asyncio.Transport

    def __init__(  # noqa: PLR0913 - two have a default
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        reject: Reject,
        count_unread: CountUnread | None = None,
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._app = config.loaded_app
        self._root_path: str = config.root_path
        self._server = server_state
        self._app_state = app_state
        self._make_rejection = reject
        self._count_unread = count_unread
        self._closed = closed
        self.loop = _loop or asyncio.get_running_loop()
        self._parser = self._new_parser()
        self._phase = _IDLE
        self._deadline: float | None = None  # by when something must happen
        self._stopping = False  # the next response is the last
        # Requests
        self._url = b""
        self._host = b""  # the last valid one
        self._headers: HeaderList = []
        self._active: Exchange | None = None  # the request being served
        self._waiting: deque[Exchange] = deque()  # complete requests behind it, but for the last
        self._last: Exchange | None = None  # the request that arrived last
        self._data = b""  # what is being parsed
        self._head = b""  # what has arrived of an incomplete request line
        self._line_checked = False  # that of the request whose head arrives
        self._method = b""  # of this request, if the parser does not know it
        self._unparsed = b""  # an incomplete request line with such a method
        # The head of a request that offers an upgrade, without the offer; its deadline.
        self._again: tuple[bytes, float | None] | None = None
        self._offset = 0  # where the last of the pieces that `_feed_lines` makes begins
        self._first = False  # whether that line is the first in the data that it began in
        self._rejection = ""  # why the request after those that are being served is rejected
        # What bounds their size
        self._fresh = 0  # bytes that are being parsed, if no request has begun in them yet
        self._overhead = 0  # bytes of this request that are not its body
        self._fields = 0  # the number of headers and trailers
        self._discarded = 0
        # The other direction
        self.write_paused = False
        self._reading = True
        self._read_until: float | None = None  # the deadline when it had last read everything
        self._defaults: HeaderList | None = None
        self._default_bytes = b""

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock: a client that sends nothing is disconnected."""
        self.transport = transport  # type: ignore[assignment] # of a TCP or Unix socket
        self._unread = Unread(self.transport, self._count_unread)
        self._server.connections.add(self)
        self._context = copy_context()  # so that no request inherits that of the one before it
        server, client = (_address(transport, name) for name in ("sockname", "peername"))
        self._base_scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": server,
            "client": client,
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "root_path": self._root_path,
        }
        self._start_clock(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Tell the requests that are being served or are waiting."""
        self._server.connections.discard(self)
        if self._closed is not None:
            self._closed()
        self._deadline = None
        if self._active is not None:
            self._active.disconnect()
        self._active = None
        self._waiting.clear()
        self.resume_writing()
        del self._parser, self._last  # they refer to this connection: a reference cycle

    def data_received(self, data: bytes) -> None:  # noqa: C901, PLR0912 - a call more would cost each read
        """Parse the data; what is not a body must not grow without bound."""
        if len(data) > MAX_HEAD_BYTES:  # so that no read can hide more than that
            for start in range(0, len(data), MAX_HEAD_BYTES):
                self.data_received(data[start : start + MAX_HEAD_BYTES])
            return
        whole = False  # whether it is one request at most, with all of its head
        if self._phase is _IDLE:
            self._fresh = len(data)
            end = data.find(b"\r\n\r\n") + 4
            if end >= 4 and data[0] > 32:
                whole = end == len(data) or data.count(b"/1.") < 2
        elif self._phase is _DISCARD:
            self._discard(data)
            return
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
                if self._phase is _HEAD:  # of a second one, whose line is incomplete
                    self._head, self._first = data, False
            else:
                self._feed_lines(data)
        except httptools.HttpParserUpgrade as stopped:
            rest = data[(0 if whole else self._offset) + stopped.args[0] :]
        except (httptools.HttpParserError, MalformedError) as error:
            unknown = self._begun_with_unknown_method(error, 0 if whole else self._offset)
            if not unknown:
                self._reject_unparsed(error)
                return
        finally:
            self._data = b""
        if unknown:
            self._parse_unknown_method(unknown)
            return
        if rest is not None:
            self._ignore_offer(rest)
            return
        if self._overhead > MAX_HEAD_BYTES:
            if self._phase is _IDLE:  # it is complete, but its application has not seen that
                self._phase = _BODY
            if self._phase is _BODY and self._last is None:  # it has its response
                self.transport.close()
            else:
                self._reject(_TOO_LARGE)
        elif self._phase is _IDLE and self._deadline is None and self._active is None:
            self._start_clock(REQUEST_SECONDS)  # blank lines between requests

    def _feed_lines(self, data: bytes) -> None:
        """Parse data with a pause behind each request line, so that the line can be checked."""
        start = 0
        while start < len(data):
            if self._phase is _HEAD and not self._line_checked:
                end = data.find(b"\n", start) + 1
            else:
                match = _LINE_END.search(data, start)
                end = match.end() if match else 0
            piece = data[start:end] if end else data[start:]
            self._offset = start
            start += len(piece)
            self._parser.feed_data(piece)
            if self._phase is _HEAD and not self._line_checked:
                if not self._head:
                    self._first = self._overhead == len(data)
                self._head += piece
                if piece.endswith(b"\n"):
                    self._check_line()

    def _check_line(self) -> None:
        """Check the request line that has just ended (RFC 9112, section 3).

        The parser takes more: other protocols than HTTP, other versions, more than one space.
        """
        version = self._parser.get_http_version()
        line = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version.encode())
        if version not in ("1.0", "1.1") or not self._head.endswith(line):
            raise MalformedError(_NOT_HTTP)
        self._line_checked = True
        self._head = b""

    def _reject_unparsed(self, error: Exception) -> None:
        """Reject what the parser did not take."""
        unknown = str(error).startswith("Invalid method")
        problem = _UNKNOWN_METHOD if unknown else "not a valid HTTP/1.1 request"
        raised = isinstance(error, httptools.HttpParserCallbackError)
        cause = error.__context__ if raised else error  # what one of the callbacks has raised
        if isinstance(cause, MalformedError):
            problem = str(cause)
        elif raised:
            _log.error("exception while parsing a request", exc_info=cause)
        self._reject(problem)

    def eof_received(self) -> bool:
        """Serve complete requests even if the client has shut down its side."""
        if self._phase in (_HEAD, _BODY):
            self._reject("the request ended before it was complete")
        if self._active is None:
            return False
        for exchange in (self._active, *self._waiting):
            exchange.half_close()
        if not self._rejection:
            self._close_after_last()
        return True  # the transport stays open for the responses

    def pause_writing(self) -> None:
        """Let responses wait: the client reads more slowly than they are written."""
        self.write_paused = True
        if self._active is not None:
            self._unread.begin(self._active.scope)

    def resume_writing(self) -> None:
        """Let responses continue."""
        self.write_paused = False
        self._unread.end()
        if self._active is not None and self._active.complete:
            self._proceed(self._active)

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Start the clock of a request."""
        self._url = b""
        self._headers = []
        self._phase = _HEAD
        self._head = b""
        self._line_checked = False
        self._discarded = 0
        # If other requests came first in the data, the share of this one is not known: count 1.
        self._overhead, self._fresh = self._fresh or 1, 0
        self._start_clock(REQUEST_SECONDS)

    def on_url(self, url: bytes) -> None:
        """Keep a part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header without surrounding whitespace. Drop a trailer."""
        if self._phase is _HEAD:
            self._headers.append((name.lower(), value.strip(b" \t")))  # RFC 9110, section 5.5
            return
        self._fields += 1
        if self._fields > MAX_HEADERS:
            raise MalformedError(f"more than {MAX_HEADERS} headers and trailers")

    def on_headers_complete(self) -> None:
        """Check the head as a whole, then start the request."""
        data = self._data
        end = data.find(b" ") + 1 + len(self._url)  # of the target, in data that begins with it
        version = "1.1"
        if self._overhead != len(data) or not data.startswith(b" HTTP/1.1\r\n", end):
            version = self._check_head()  # it is not alone in its data, not all there, or odd
        checked = check_headers(self._headers, version, self._host)
        self._host, expects_continue, has_body = checked
        if self._parser.should_upgrade():
            if self._parser.get_method() != b"CONNECT":
                self._again = self._without_offer(version), self._deadline
                return
            if has_body:  # it would not be read
                raise MalformedError("a CONNECT request with a body is not supported")
        self._fields = len(self._headers)
        if len(self._waiting) >= MAX_PIPELINED:
            raise MalformedError("too many pipelined requests")
        exchange = Exchange(
            self,
            self._scope(version),
            keep_alive=version == "1.1" and not self._stopping and self._parser.should_keep_alive(),
            expects_continue=expects_continue,
        )
        if self._method:
            exchange.scope["method"] = self._method.decode("ascii")
            exchange.keep_alive, self._method = False, b""
        self._last = exchange
        if self._active is None:
            self._start(exchange)
        else:
            self.pause_reading()
            self._waiting.append(exchange)
        self._phase = _BODY

    def _check_head(self) -> str:
        """Return the version of a request; its line was checked if it can be valid."""
        version = self._parser.get_http_version()
        data = self._data
        if not self._line_checked and not (
            self._overhead == len(data)
            and data.startswith(b"%b %b HTTP/1.0\r\n" % (self._parser.get_method(), self._url))
        ):
            raise MalformedError(_NOT_HTTP)
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if size > MAX_HEAD_BYTES:
            raise MalformedError(_TOO_LARGE)
        self._overhead = max(self._overhead, size)
        return version

    def on_body(self, body: bytes) -> None:
        """Pass the body on, or discard it if the response did not wait for it."""
        self._overhead -= len(body) + _CHUNK_FRAME_BYTES
        if self._last is None or self._last.complete:
            self._discard(body)
        else:
            self._last.feed(body)

    def on_message_complete(self) -> None:
        """Stop the clock: the request is complete."""
        self._phase = _IDLE
        self._deadline = None
        if self._last is not None:
            self._last.end()
        if self._active is None:
            self._rest()

    def _rest(self) -> None:
        """Wait for the next request, and keep nothing of the last one meanwhile."""
        self._deadline = self.loop.time() + KEEP_ALIVE_SECONDS
        self._last = None
        self._url = b""
        self._headers = []

    # The server calls these.

    @property
    def idle_until(self) -> float | None:
        """When the connection will be closed if nothing arrives; None while it is in use."""
        return None if self._active is not None else self._deadline

    def sweep(self, now: float) -> None:
        """Disconnect a client that is too slow. Called once a second."""
        if self._deadline is None or self._deadline != self._read_until:
            self._unread.look(now)
            if not self._unread.size:
                self._read_until = self._deadline
        if self._deadline is None or now < self._deadline or self.transport.is_closing():
            return
        if not self._reading:  # it is the application that is slow
            self._start_clock(REQUEST_SECONDS)
        elif self._phase in (_HEAD, _BODY):
            self._reject("the request took too long to arrive")
        elif self._phase is _IDLE or not self._unread.size:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection because the service stops, after the responses in progress.

        A client that has just connected or sent something gets its response, too.
        """
        self._stopping = True
        new = self._defaults is None  # it has not had a response
        if self._active is not None:
            self._close_after_last()
        elif new or self._phase is _HEAD or sockets.has_data(self.transport):
            self.loop.call_later(ARRIVAL_SECONDS, self._close_unless_active)
        else:
            self.transport.close()

    def _close_unless_active(self) -> None:
        if self._active is None and not self.transport.is_closing():
            self.transport.close()

    # Exchanges call these.

    def pause_reading(self) -> None:
        """Read nothing more from the client for now."""
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        if not self._reading and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()

    def default_headers(self) -> bytes:
        """Return the headers of every response, such as ``Date``, as they are written."""
        if self._server.default_headers is not self._defaults:
            self._defaults = self._server.default_headers
            fields = [b"\r\n%b: %b" % header for header in self._server.default_headers]
            self._default_bytes = b"".join(fields)
        return self._default_bytes

    def response_complete(self, exchange: Exchange) -> None:
        """Proceed, unless the client must read first: then `resume_writing` does."""
        self._server.total_requests += 1
        if exchange.more_body:  # the client may read nothing before it has sent everything
            self.resume_reading()
        if not self.write_paused:
            self._proceed(exchange)

    def finished(self, exchange: Exchange) -> None:
        """Forget the task of an exchange, whose application has returned.

        Cheaper than a callback of the task. A task that is cancelled before it begins never gets
        here and stays in the set, but then the server is stopping.
        """
        self._server.tasks.discard(exchange.task)

    def _proceed(self, exchange: Exchange) -> None:
        """Start the next request, or close the connection."""
        self._active = None
        if self.transport.is_closing():
            return
        if not exchange.keep_alive:
            if exchange.half_closed or (self._phase is _IDLE and not self._waiting):
                self.transport.close()
            else:  # let a client that still sends read its response
                self._linger(self._deadline)
            return
        if self._waiting:
            self._start(self._waiting.popleft())
            return
        self.resume_reading()
        if self._phase is _IDLE:
            self._rest()
        elif self._phase is _DISCARD:
            self._write_rejection(self._rejection, None)
            if exchange.half_closed:  # nothing more will arrive
                self.transport.close()

    def _start(self, exchange: Exchange) -> None:
        self._active = exchange
        exchange.task = self.loop.create_task(exchange.run(self._app), context=self._context.copy())
        self._server.tasks.add(exchange.task)

    def _scope(self, version: str) -> dict[str, Any]:
        if self._url.startswith(b"/") and b"#" not in self._url:  # the usual case
            raw_path, _, query = self._url.partition(b"?")
        else:
            raw_path, query = parse_target(self._url)
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        if self._root_path and path != "*":
            path = self._root_path + path
            raw_path = self._root_path.encode("ascii") + raw_path
        scope = {
            **self._base_scope,
            "method": self._parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }
        if version != "1.1":
            scope["http_version"] = version
        return scope

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _begun_with_unknown_method(self, error: Exception, offset: int) -> bytes:
        """Return a request whose method the parser does not know, from its first byte on.

        Return nothing if the error is another one, or if it is not known where the request begins.

        offset -- where the piece that the parser was given begins in its data
        """
        unknown = str(error).startswith("Invalid method")
        first = self._first if self._head else self._overhead == len(self._data)
        if not (unknown and first and self._phase is _HEAD):
            return b""
        return (self._head + self._data[offset:]).lstrip(b"\r\n")

    def _parse_unknown_method(self, data: bytes) -> None:
        """Parse a request whose method the parser does not know, under another method.

        The application decides what to make of the method. The connection is closed afterwards.

        data -- begins with the request; if its line is incomplete, it is kept for the next data
        """
        method = _METHOD.match(data)
        rest = method and _REST_OF_LINE.match(data, method.end())
        if method is None or (rest is None and b"\n" in data):
            self._reject(_UNKNOWN_METHOD)
        elif rest is None:
            self._unparsed = data
            if len(data) > MAX_HEAD_BYTES:
                self._reject(_TOO_LARGE)
        else:
            self._unparsed, self._method = b"", method[0]
            self._parser = self._new_parser()
            self._phase, deadline = _IDLE, self._deadline
            self.data_received(b"TRACE" + data[method.end() :])
            if self._phase in (_HEAD, _BODY):
                self._deadline = deadline

    def _without_offer(self, version: str) -> bytes:
        """Return the head that has arrived, without the upgrade that it offers."""
        line = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version.encode())
        fields = [b"%b: %b\r\n" % pair for pair in self._headers if pair[0] != b"upgrade"]
        return b"%b%b\r\n" % (line, b"".join(fields))

    def _ignore_offer(self, rest: bytes) -> None:
        """Parse a request that offers an upgrade as if it offered none (RFC 9110, section 7.8).

        The parser has stopped behind its head: it expects another protocol there. So a new one gets
        the head again, without the offer. After CONNECT, nothing that follows is HTTP.

        rest -- what has arrived behind the head; each further offer in it calls this again, which
            `MAX_PIPELINED` limits
        """
        again, self._again = self._again, None
        if again is None:
            if self._last is not None:
                self._last.keep_alive = False
            self._phase = _DISCARD
        elif self._overhead - len(rest) > MAX_HEAD_BYTES:
            self._reject(_TOO_LARGE)
        else:
            head, deadline = again
            self._parser = self._new_parser()
            self.data_received(head)
            if self._phase is _BODY:
                self._deadline = deadline
            if rest:
                self.data_received(rest)

    def _reject(self, message: str) -> None:
        """Respond with 400 if that is still possible, and close the connection.

        Complete requests before the rejected one get their responses first.
        """
        rejected = self._last if self._phase is _BODY else None
        if rejected is not None and rejected in self._waiting:
            self._waiting.remove(rejected)
            rejected = None
        if rejected is not None and rejected is self._active:
            rejected.disconnect()
            self._active = None
        if rejected is not None and rejected.complete:
            self.transport.close()
            return
        active = self._active
        if active is not None and active.complete and active.keep_alive and not self._waiting:
            self._active = None  # its response is written, and only waits for the client
        if self._active is not None:
            self._phase = _DISCARD
            self._deadline = None
            self._rejection = message
            return
        self._write_rejection(message, None if rejected is None else rejected.scope)

    def _write_rejection(self, message: str, scope: dict[str, Any] | None) -> None:
        headers, body = self._make_rejection(message, self._headers, scope)
        length = (b"content-length", b"%d" % len(body))
        headers = [*headers, length, (b"connection", b"close")]
        fields = [b"\r\n%b: %b" % header for header in headers]
        head = b"HTTP/1.1 400 Bad Request%b%b" % (self.default_headers(), b"".join(fields))
        self.transport.write(b"%b\r\n\r\n%b" % (head, body))
        self._linger()

    def _close_after_last(self) -> None:
        """Close the connection after the last request that is being served or waits."""
        last = self._waiting[-1] if self._waiting else self._active
        if last is not None:
            last.keep_alive = False

    def _linger(self, deadline: float | None = None) -> None:
        """Discard what still arrives.

        deadline -- that of a request whose body still arrives
        """
        self._phase = _DISCARD
        self._discarded = 0
        self.resume_reading()
        self._deadline = deadline or self.loop.time() + LINGER_SECONDS
        if self.transport.can_write_eof():
            with suppress(OSError):  # the client is gone
                self.transport.write_eof()

    def _start_clock(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED_BYTES and self._active is None:
            self.transport.close()


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int | None] | None:
    """Return host and port of one end; a Unix socket has no port, or no name at all."""
    found = transport.get_extra_info(name)
    if isinstance(found, tuple):
        return str(found[0]), int(found[1])
    return (found, None) if found else None
