"""The HTTP/1.1 connection: any ASGI application that does not stream runs on it.

What a client sends is limited in size and time. A request that is malformed, too large in its head
or too slow is rejected if a response is still possible, and the connection is closed (RFC 9112,
section 2.2; for Host section 3.2). uvicorn's server, or `Listener`, creates the connections, and
asks each to `shutdown`; the sweep of `petstore.server.process` disconnects slow clients.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final
from urllib.parse import unquote

from petstore.http.shares import Share
from petstore.server import sockets
from petstore.server.exchange import STATUS_LINES, Exchange
from petstore.server.parser import BODY, DISCARD, HEAD, IDLE, MAX_HEAD_BYTES, RequestParser
from petstore.server.request_head import HeaderList, MalformedError, parse_target
from petstore.server.send_backlog import SendBacklog

_log = logging.getLogger("petstore.server")

MAX_DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""How many bytes a client may still send after its response before it is cut off.

Many clients read a response only after they have sent their whole body, and never if the connection
is reset before. To discard takes less CPU than to parse small requests (docs/decisions/0003).
"""

REQUEST_SECONDS: Final = 20.0
"""The time limit for a request to arrive, from its first byte (or the connection) to its last."""

ARRIVAL_SECONDS: Final = 0.5
"""How long a stop waits for the rest of a request, or for the first byte of a new connection."""

LINGER_SECONDS: Final = 2.0
"""How long a client may still send after a 400, so that it gets to read it."""

Reject = Callable[[str, HeaderList, dict[str, Any] | None], tuple[HeaderList, bytes]]
"""Returns headers and body of the 400 for a rejected request.

It is given what is wrong, the headers that have arrived, and the request's scope if the application
knows it.
"""

# A number: for `b"#" in url`, CPython makes and drops an error first, which takes 150 to 370 ns.
_FRAGMENT: Final = ord("#")


class HttpConnection(asyncio.Protocol):
    """One connection.

    config -- uvicorn's: the application
    server_state -- uvicorn's: the set of connections, the set of tasks, the default headers
    app_state -- the state that the application's lifespan has set for its requests
    reject -- makes the response to a rejected request
    keep_alive -- for how many seconds an idle connection is kept
    unread -- counts what each client has not read yet; None if it does not matter
    closed -- called once the connection is closed

    active -- the request being served
    """

    transport: asyncio.Transport

    def __init__(  # noqa: PLR0913 - three have a default
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        reject: Reject,
        keep_alive: float = 75,
        unread: Share | None = None,
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._app = config.loaded_app
        self._server = server_state
        self._app_state = app_state
        self._make_rejection = reject
        self._keep_alive = keep_alive
        self._unread = unread
        self._closed = closed
        self.loop = _loop or asyncio.get_running_loop()
        self._parser = RequestParser(self)
        self._deadline: float | None = None  # by when something must happen
        self._stopping = False  # the last request that has arrived gets the last response
        # Requests
        self.active: Exchange | None = None
        self._last: Exchange | None = None  # the request that arrived last
        self._unparsed = b""  # the last read, if requests in it wait for the one being served
        self._parsed = 0  # how much of that has been parsed
        self._discarded = 0
        # The other direction
        self._responses = 0  # how many there have been
        self.write_paused = False
        self._reading = True
        self._defaults: HeaderList | None = None
        self._starts: dict[int, bytes] = {}  # of responses, by status, with those headers

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock: a client that sends nothing is disconnected."""
        self.transport = transport  # type: ignore[assignment] # of a TCP or Unix socket
        self._backlog = SendBacklog(self.transport, self._unread)
        self._server.connections.add(self)
        self._context = copy_context()  # so that no request inherits that of the one before it
        server, client = (_address(transport, name) for name in ("sockname", "peername"))
        self._base_scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": server,
            "client": client,
            "scheme": "http",
            "root_path": "",
            "method": "",  # from here on, each request sets its own: a copy need not grow
            "path": "",
            "raw_path": b"",
            "query_string": b"",
            "headers": [],
            "state": {},
        }
        self._start_clock(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """Tell the request that is being served."""
        self._server.connections.discard(self)
        if self._closed is not None:
            self._closed()
        self._deadline = None
        if self.active is not None:
            self.active.disconnect()
        self.active = None
        self._unparsed = b""
        self.resume_writing()
        self._parser.close()
        del self._parser, self._last  # they refer to this connection: a reference cycle

    def data_received(self, data: bytes, begin: int = 0) -> None:
        """Parse the data, but no request before the response to the one before it.

        So what waits takes the memory of one read, however many requests it has.
        """
        if self._unparsed:
            self._unparsed += data
            return
        parser = self._parser
        try:
            while begin < len(data):
                piece = data[begin : begin + MAX_HEAD_BYTES]
                if parser.phase == DISCARD:
                    self._discard(piece)
                    begin += len(piece)
                    continue
                used = parser.feed(piece)
                begin += used
                if used < len(piece):
                    self._unparsed, self._parsed = data, begin
                    self.pause_reading()
                    break
        except MalformedError as error:
            if parser.phase == BODY and self._last is None:  # it has its response
                self.transport.close()
            else:
                self._reject(str(error))
            parser.phase = DISCARD
        except Exception:  # noqa: BLE001 - no memory, or a bug: a response could be the wrong one
            _log.exception("exception while parsing a request")
            self.transport.abort()
            parser.phase = DISCARD
        if self._stopping:
            self._close_after_last()

    def eof_received(self) -> bool:
        """Serve complete requests even if the client has shut down its side."""
        if self._parser.phase in (HEAD, BODY):
            self._reject("the request ended before it was complete")
        if self.active is None:
            return False
        self.active.half_close()
        self._stopping = True
        self._close_after_last()
        return True  # the transport stays open for the responses

    def pause_writing(self) -> None:
        """Let responses wait: the client reads more slowly than they are written."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Let responses continue."""
        self.write_paused = False
        self._backlog.end()
        if self.active is not None and self.active.complete:
            self._proceed(self.active)

    # The parser calls these.

    def expect_rest(self) -> None:
        """Start the clock of a request that has begun to arrive."""
        self._start_clock(REQUEST_SECONDS)

    def start_request(
        self, method: str, version: str, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        """Serve a request whose head has arrived."""
        self._discarded = 0
        self._last = self.active = exchange = Exchange(
            self,
            self._scope(method, version),
            keep_alive=keep_alive,
            expects_continue=expects_continue,
        )
        # Not `create_task`, which gives each task a name of its own: both take 0.3 us.
        run, context = exchange.run(self._app), self._context.copy()
        exchange.task = asyncio.Task(run, loop=self.loop, name="request", context=context)
        self._server.tasks.add(exchange.task)

    def receive_body(self, data: bytes) -> None:
        """Pass the body on, or discard it if the response did not wait for it."""
        if self._last is None or self._last.complete:
            self._discard(data)
        else:
            self._last.feed(data)

    def end_request(self) -> None:
        """Stop the clock: the request is complete."""
        self._deadline = None
        if self._last is not None:
            self._last.end()
        if self.active is None:
            self._rest()

    def _rest(self) -> None:
        """Wait for the next request, and keep nothing of the last one meanwhile."""
        self._deadline = self.loop.time() + self._keep_alive
        self._last = None

    # The server calls these.

    @property
    def idle_until(self) -> float | None:
        """When the connection will be closed if nothing arrives; None while it is in use."""
        return None if self.active is not None else self._deadline

    def sweep(self, now: float) -> None:
        """Disconnect a client that is too slow. Called once a second."""
        self._backlog.sweep(now, self._responses)
        if self._deadline is None or self.transport.is_closing():
            return
        if not self._reading:  # it is the application that is slow
            self._start_clock(REQUEST_SECONDS)
        if now < self._deadline:
            return
        if self._parser.phase in (HEAD, BODY):
            self._reject("the request took too long to arrive")
        elif self._parser.phase == IDLE or not self._backlog.size:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection because the service stops, after the responses in progress.

        A client that has just connected or sent something gets its response, too.
        """
        self._stopping = True
        new = self._defaults is None  # it has not had a response
        if self.active is not None:
            self._close_after_last()
        elif new or self._parser.phase == HEAD or sockets.has_data(self.transport):
            self.loop.call_later(ARRIVAL_SECONDS, self._close_unless_active)
        else:
            self.transport.close()

    def _close_unless_active(self) -> None:
        if self.active is None and not self.transport.is_closing():
            self.transport.close()

    # Exchanges call these.

    def pause_reading(self) -> None:
        """Read nothing more from the client for now."""
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        if not (self._reading or self._unparsed or self.transport.is_closing()):
            self._reading = True
            self.transport.resume_reading()

    def start_of_response(self, status: int) -> bytes:
        """Return the status line, and the headers of every response, such as ``Date``."""
        if self._server.default_headers is not self._defaults:
            self._defaults = self._server.default_headers
            self._starts = {}
        start = self._starts.get(status)
        if start is None:
            fields = [b"\r\n%b: %b" % header for header in self._server.default_headers]
            start = self._starts[status] = b"".join([STATUS_LINES[status], *fields])
        return start

    def response_complete(self, exchange: Exchange, size: int) -> None:
        """Proceed, unless the client must read first: then `resume_writing` does.

        size -- that of the response's body in bytes
        """
        self._responses += 1
        if exchange.more_body:  # the client may read nothing before it has sent everything
            self.resume_reading()
        if self.write_paused:
            self._backlog.begin(exchange.scope.get("auth"), size)
        else:
            self._proceed(exchange)

    def finished(self, exchange: Exchange) -> None:
        """Forget the task of an exchange, whose application has returned.

        Cheaper than a callback of the task. A task that is cancelled before it begins never gets
        here and stays in the set, but then the server is stopping.
        """
        self._server.tasks.discard(exchange.task)

    def _proceed(self, exchange: Exchange) -> None:
        """Start the next request, or close the connection."""
        self.active = None
        if self.transport.is_closing():
            return
        if not exchange.keep_alive:
            if exchange.half_closed or (self._parser.phase == IDLE and not self._unparsed):
                self.transport.close()
            else:  # let a client that still sends read its response
                self._linger(self._deadline)
            return
        if self._parser.phase == IDLE:
            self._rest()
        if self._unparsed:
            data, self._unparsed = self._unparsed, b""
            self.data_received(data, self._parsed)
        if not self._reading:
            self.resume_reading()

    def _scope(self, method: str, version: str) -> dict[str, Any]:
        url = self._parser.url
        if url.startswith(b"/") and _FRAGMENT not in url:  # the usual case
            raw_path, _, query = url.partition(b"?")
        else:
            raw_path, query = parse_target(url)
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        scope = self._base_scope.copy()
        scope["method"] = method
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["query_string"] = query
        scope["headers"] = self._parser.headers
        scope["state"] = self._app_state.copy()
        if version != "1.1":
            scope["http_version"] = version
        return scope

    def _reject(self, message: str) -> None:
        """Respond with 400 if that is still possible, and close the connection."""
        rejected = self._last if self._parser.phase == BODY else None
        if rejected is not None and rejected is self.active:
            rejected.disconnect()
            self.active = None
        if rejected is not None and rejected.complete:
            self.transport.close()
            return
        scope = None if rejected is None else rejected.scope
        headers, body = self._make_rejection(message, self._parser.headers, scope)
        length = (b"content-length", b"%d" % len(body))
        headers = [*headers, length, (b"connection", b"close")]
        fields = [b"\r\n%b: %b" % header for header in headers]
        head = b"".join([self.start_of_response(400), *fields])
        self.transport.write(b"%b\r\n\r\n%b" % (head, body))
        self._responses += 1
        self._linger()

    def _close_after_last(self) -> None:
        """Close the connection after the request that is being served, if none waits behind it."""
        if self.active is not None and not self._unparsed:
            self.active.keep_alive = False

    def _linger(self, deadline: float | None = None) -> None:
        """Discard what still arrives.

        deadline -- that of a request whose body still arrives
        """
        self._parser.phase = DISCARD
        self._unparsed = b""
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
        if self._discarded > MAX_DISCARDED_BYTES and self.active is None:
            self.transport.close()


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int | None] | None:
    """Return host and port of one end; a Unix socket has no port, or no name at all."""
    found = transport.get_extra_info(name)
    if isinstance(found, tuple):
        return str(found[0]), int(found[1])
    return (found, None) if found else None
