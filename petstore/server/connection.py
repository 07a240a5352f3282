"""The HTTP/1.1 connection: uvicorn's, with limits and with the service's own error responses.

A request that is malformed, too large in its head or too slow gets a 400 with an `Error` body if a
response is still possible, and the connection is closed (RFC 9112, section 2.2; for Host section
3.2).
"""

import asyncio
import re
from enum import Enum, auto
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from petstore.http import errors
from petstore.http.headers import API_HEADERS, NO_SNIFF
from petstore.http.request_id import request_id
from petstore.observability.logs import RequestLine, request_log

MAX_HEAD_BYTES: Final = 32 * 1024
MAX_HEADERS: Final = 100

MAX_PIPELINED: Final = 100
"""The maximum number of pipelined requests; the connection is closed after the last one."""

MAX_DISCARDED_BYTES: Final = 1024 * 1024
"""How many bytes a client may still send after its response before it is cut off."""

REQUEST_SECONDS: Final = 20.0
"""The time limit for a request to arrive, from its first byte (or the connection) to its last."""

RESPONSE_SECONDS: Final = 30.0
"""How long a client may read nothing of a response that is ready for it."""

LINGER_SECONDS: Final = 2.0
"""How long a client may still send after its last response, so that it gets to read it."""


_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=._~:\[\]@%-]*")  # RFC 3986, section 3.2


class Phase(Enum):
    """What arrives next on a connection."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DISCARD = auto()  # the last response was sent; what still arrives is discarded


class _RejectedError(Exception):
    """Stops the parser: the request is rejected."""


class HttpConnection(HttpToolsProtocol):
    """One connection of the service."""

    _phase = Phase.IDLE
    _deadline: float | None = None  # by when the current request must have arrived
    _rejection = "not a valid HTTP/1.1 request"
    _chunk = 0  # bytes of the chunk that is being parsed
    _pending = 0  # bytes of earlier chunks that contained no body
    _size = 0  # bytes of the headers and trailers
    _active: RequestResponseCycle | None = (
        None  # the request being served; `cycle` is the one that arrived last
    )
    _before: RequestResponseCycle = None  # type: ignore[assignment] # the one before `cycle`
    _discarded = 0
    _unread = 0  # bytes that the client has not read yet
    _unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP
        """Start the clock: a client that sends nothing is disconnected."""
        super().connection_made(transport)
        self._response_transport = _ResponseTransport(self)
        self._start_clock(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the request being served; uvicorn stops only the one that arrived last."""
        if self._active is not None:
            self._active.disconnected = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data; what is not a body must not grow without bound."""
        if self._phase is Phase.DISCARD:
            self._discard(data)
            return
        self._chunk = len(data)
        super().data_received(data)
        if self._phase in (Phase.HEAD, Phase.BODY):
            self._pending += self._chunk
            if self._pending > MAX_HEAD_BYTES:
                self.send_400_response("the head is too large")
        elif self._phase is Phase.IDLE and self._deadline is None and not self._responding():
            self._start_clock(REQUEST_SECONDS)  # blank lines between requests

    def eof_received(self) -> bool | None:  # type: ignore[override] # asyncio takes True
        """Serve complete requests even if the client has shut down its side."""
        if self._phase in (Phase.HEAD, Phase.BODY):
            self.send_400_response("the request ended before it was complete")
        if self._responding():
            self.cycle.keep_alive = False
            return True  # the transport stays open for the response
        return None

    def sweep(self, now: float) -> None:
        """Disconnect a client that is too slow. The server calls this once a second."""
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif unread and now - self._unread_since >= RESPONSE_SECONDS:
            self.transport.abort()
            return
        if self._deadline is None or now < self._deadline:
            return
        if self._phase in (Phase.HEAD, Phase.BODY):
            self.send_400_response("the request took too long to arrive")
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection because the service stops, after a response in progress."""
        if self._responding():
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start the clock of a request."""
        super().on_message_begin()
        self._phase = Phase.HEAD
        self._size = 0
        self._discarded = 0
        self._pending = -self._chunk  # the chunk in which a head begins does not count
        self._start_clock(REQUEST_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header without surrounding whitespace. Drop a trailer."""
        self._size += len(name) + len(value)
        if self._size > MAX_HEAD_BYTES:
            self._reject("the head is too large")
        if self._phase is Phase.HEAD:
            self.headers.append((name.lower(), value.strip(b" \t")))  # RFC 9110, section 5.5

    def on_headers_complete(self) -> None:
        """Check the head as a whole, then start the request."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._reject("expected version 1.1 or 1.0")
        if len(self.headers) > MAX_HEADERS:
            self._reject(f"more than {MAX_HEADERS} headers")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1 if _HOST.fullmatch(value) else 2
            elif name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        if len(self.url) + self._size > MAX_HEAD_BYTES:
            self._reject("the head is too large")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            self._reject("expected one valid Host header")
        if len(self.pipeline) >= MAX_PIPELINED:
            self._reject("too many requests at once")
        if version == "1.0":
            self.expect_100_continue = False  # RFC 9110, section 10.1.1
        self._before = self.cycle
        super().on_headers_complete()
        self.cycle.transport = self._response_transport  # type: ignore[assignment] # all that it uses
        self._phase = Phase.BODY
        self._pending = -self._chunk

    def on_body(self, body: bytes) -> None:
        """Pass the body on, or discard it if the response did not wait for it."""
        self._pending = -self._chunk
        if self.cycle.response_complete:
            self._discard(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock: the request is complete."""
        self._phase = Phase.IDLE
        self._deadline = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Respond with 400 if that is still possible, and close the connection.

        A complete request that is still being served gets its response first. uvicorn calls this
        if the parser fails; `msg` is then uvicorn's and less precise than ours.
        """
        if self._responding():
            if self.cycle.more_body and self.pipeline:  # it waits behind complete requests
                self.pipeline.popleft()
                self.cycle = self._before
            if not self.cycle.more_body:
                self.cycle.keep_alive = False
                self._phase = Phase.DISCARD
                self._deadline = None
                return
            started = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            started = self._phase is Phase.BODY and self.cycle is not None
        if started:  # the response is on its way, or was sent before the body
            self.transport.close()
            return
        message = self._rejection if msg.startswith("Invalid HTTP") else msg
        body = errors.encode(errors.invalid(f"HTTP: {message}."))
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self._rejected_id()),
            NO_SNIFF,
            *API_HEADERS,
            (b"connection", b"close"),
        ]
        head = b"".join(b"%s: %s\r\n" % field for field in fields)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%s\r\n%s" % (head, body))
        self._linger()

    def _rejected_id(self) -> bytes:
        """Return the id of the rejected request; log it, unless the application does."""
        if self._phase is Phase.BODY:  # the rest of its body did not come
            scope: Any = self.cycle.scope
            if "request_id" in scope:
                return bytes(scope["request_id"])
        id_ = request_id(self.headers or ())
        if request_log.on:
            request_log.write(
                RequestLine(level="info", event="request", request_id=id_.decode(), status=400)
            )
        return id_

    def close(self) -> None:
        """Close the connection after a response, but let a client that still sends read it."""
        if self._phase is Phase.BODY:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._phase = Phase.DISCARD
        self._discarded = 0
        self._start_clock(LINGER_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def _responding(self) -> bool:
        return not (self.cycle is None or self.cycle.response_complete or self.cycle.disconnected)

    def _start_clock(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED_BYTES and not self._responding():
            self.transport.close()

    def _reject(self, message: str) -> None:
        self._rejection = message
        raise _RejectedError

    def _unsupported_upgrade_warning(self) -> None:
        """Serve the request without an upgrade; the parser cannot continue after it."""
        self.cycle.keep_alive = False


class _ResponseTransport:
    """What a response is written to: the transport, closed in the connection's own way."""

    def __init__(self, protocol: HttpConnection) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.close
