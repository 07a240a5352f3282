"""The HTTP/1.1 connection: uvicorn's, with limits and with the service's own error answers.

What is no proper request, too large in its head or too slow is answered 400 with an `Error` body
where an answer is still possible, and the connection is closed (RFC 9112, section 2.2; for Host
section 3.2).
"""

import asyncio
import re
from enum import Enum, auto
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from petstore import errors
from petstore.headers import NO_SNIFF, OF_INTERFACE
from petstore.log import RequestLine, request_log
from petstore.request_id import request_id

MAX_HEAD_BYTES: Final = 32 * 1024
MAX_FIELDS: Final = 100

MAX_PIPELINED: Final = 100
"""How many requests may wait for the one before them; the connection ends behind the last."""

MAX_DISCARDED_BYTES: Final = 1024 * 1024
"""How much a client may go on sending after its answer before the connection is cut."""

REQUEST_SECONDS: Final = 20.0
"""How long a request may take to arrive, from its first byte (or the connection) to its last."""

ANSWER_SECONDS: Final = 30.0
"""How long a client may read nothing of an answer that waits for it."""

LINGER_SECONDS: Final = 2.0
"""How long a client may go on sending after its last answer, so that it still reads it."""


_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=._~:\[\]@%-]*")  # RFC 3986, section 3.2


class Phase(Enum):
    """What arrives next on a connection."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    NOTHING = auto()  # answered for the last time; what still arrives is thrown away


class RefusedError(Exception):
    """Stops the parser: the request cannot be served."""


class Protocol(HttpToolsProtocol):
    """One connection of the service."""

    _phase = Phase.IDLE
    _deadline: float | None = None  # when what is arriving must have arrived
    _refusal = "no proper HTTP/1.1 request"
    _piece = 0  # bytes of the piece that is being parsed
    _pending = 0  # bytes of the pieces before it that were all head, or framing of a body
    _size = 0  # bytes of the header and trailer fields
    _active: RequestResponseCycle | None = None  # what is being answered; `cycle` arrived last
    _before: RequestResponseCycle = None  # type: ignore[assignment] # what arrived before `cycle`
    _discarded = 0
    _unread = 0  # bytes that wait for the client to read
    _unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # TCP
        """Start the clock: a client that sends nothing does not stay."""
        super().connection_made(transport)
        self._closing = Closing(self)
        self._start_clock(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop what is being answered; uvicorn only stops what arrived last."""
        if self._active is not None:
            self._active.disconnected = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; what is no body must not grow for ever."""
        if self._phase is Phase.NOTHING:
            self._discard(data)
            return
        self._piece = len(data)
        super().data_received(data)
        if self._phase in (Phase.HEAD, Phase.BODY):
            self._pending += self._piece
            if self._pending > MAX_HEAD_BYTES:
                self.send_400_response("the head is too large")
        elif self._phase is Phase.IDLE and self._deadline is None and not self._answering():
            self._start_clock(REQUEST_SECONDS)  # blank lines between requests

    def eof_received(self) -> bool | None:  # type: ignore[override] # asyncio takes True
        """Answer what was completely sent, although the client sends no more."""
        if self._phase in (Phase.HEAD, Phase.BODY):
            self.send_400_response("the request ended before it was complete")
        if self._answering():
            self.cycle.keep_alive = False
            return True  # the transport stays open for the answer
        return None

    def sweep(self, now: float) -> None:
        """Cut off a client that is too slow. The server calls this every second."""
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif unread and now - self._unread_since >= ANSWER_SECONDS:
            self.transport.abort()
            return
        if self._deadline is None or now < self._deadline:
            return
        if self._phase in (Phase.HEAD, Phase.BODY):
            self.send_400_response("the request took too long to arrive")
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection as the service stops, behind the answer that is due."""
        if self._answering():
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        """Start the clock of a request."""
        super().on_message_begin()
        self._phase = Phase.HEAD
        self._size = 0
        self._discarded = 0
        self._pending = -self._piece  # the piece in which a head begins does not count
        self._start_clock(REQUEST_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field, as it was sent but for blanks around it. Drop a trailer field."""
        self._size += len(name) + len(value)
        if self._size > MAX_HEAD_BYTES:
            self._refuse("the head is too large")
        if self._phase is Phase.HEAD:
            self.headers.append((name.lower(), value.strip(b" \t")))  # RFC 9110, section 5.5

    def on_headers_complete(self) -> None:
        """Check the head as a whole, then start the request."""
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse("expected version 1.1 or 1.0")
        if len(self.headers) > MAX_FIELDS:
            self._refuse(f"more than {MAX_FIELDS} header fields")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1 if _HOST.fullmatch(value) else 2
            elif name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        if len(self.url) + self._size > MAX_HEAD_BYTES:
            self._refuse("the head is too large")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            self._refuse("expected one Host header field, with a host")
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse("too many requests at once")
        if version == "1.0":
            self.expect_100_continue = False  # RFC 9110, section 10.1.1
        self._before = self.cycle
        super().on_headers_complete()
        self.cycle.transport = self._closing  # type: ignore[assignment] # all that it uses
        self._phase = Phase.BODY
        self._pending = -self._piece

    def on_body(self, body: bytes) -> None:
        """Hand the body on, or throw it away where the request was answered without it."""
        self._pending = -self._piece
        if self.cycle.response_complete:
            self._discard(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock: the request is here."""
        self._phase = Phase.IDLE
        self._deadline = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 where that is still possible, and close the connection.

        A whole request that is still being answered gets its answer first. uvicorn calls this
        for what the parser does not take; `msg` is then its own and says less than ours.
        """
        if self._answering():
            if self.cycle.more_body and self.pipeline:  # it waits behind whole requests
                self.pipeline.popleft()
                self.cycle = self._before
            if not self.cycle.more_body:
                self.cycle.keep_alive = False
                self._phase = Phase.NOTHING
                self._deadline = None
                return
            started = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            started = self._phase is Phase.BODY and self.cycle is not None
        if started:  # the answer is on its way, or was given without the body
            self.transport.close()
            return
        message = self._refusal if msg.startswith("Invalid HTTP") else msg
        body = errors.body(errors.invalid(f"HTTP: {message}."))
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self._id_of_refused()),
            NO_SNIFF,
            *OF_INTERFACE,
            (b"connection", b"close"),
        ]
        head = b"".join(b"%s: %s\r\n" % field for field in fields)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%s\r\n%s" % (head, body))
        self._linger()

    def _id_of_refused(self) -> bytes:
        """Return the id of what is refused; log it, unless the application does."""
        if self._phase is Phase.BODY:  # the rest of its body did not come
            scope: Any = self.cycle.scope
            if "request_id" in scope:
                return bytes(scope["request_id"])
        number = request_id(self.headers or ())
        if request_log.on:
            request_log.write(
                RequestLine(level="info", event="request", request_id=number.decode(), status=400)
            )
        return number

    def close(self) -> None:
        """Close the connection behind an answer, but let a client that still sends read it."""
        if self._phase is Phase.BODY:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        self._phase = Phase.NOTHING
        self._discarded = 0
        self._start_clock(LINGER_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def _answering(self) -> bool:
        return not (self.cycle is None or self.cycle.response_complete or self.cycle.disconnected)

    def _start_clock(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED_BYTES and not self._answering():
            self.transport.close()

    def _refuse(self, message: str) -> None:
        self._refusal = message
        raise RefusedError

    def _unsupported_upgrade_warning(self) -> None:
        """Serve the request as if it asked for no upgrade; the parser cannot go on after it."""
        self.cycle.keep_alive = False


class Closing:
    """What an answer is written to: the transport, closed as its protocol says."""

    def __init__(self, protocol: Protocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.close
