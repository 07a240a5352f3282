"""The request pipeline: what happens to every request, from the first to the last step.

Routing, guards, arguments, handler and response are one coroutine, because each further coroutine
adds some percent to the cost of a request (docs/decisions/0033). Each exception becomes an error
response after the table in `petstore.http.errors`.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPMethod
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from litestar.types import Receive, Send

from petstore.config.keys import short_name
from petstore.contract import RefusedError, StorageError, UnavailableError
from petstore.http.body import decode, read_body
from petstore.http.cors import Cors
from petstore.http.errors import (
    SERVICE_STOPPING,
    ApiError,
    ErrorCode,
    encode,
    invalid,
    not_found,
    to_api_error,
    unavailable,
)
from petstore.http.headers import (
    CLOSE,
    JSON,
    REQUEST_ID_PATTERN,
    FixedHeaders,
    Header,
    fixed_headers,
)
from petstore.http.request import Response, ServiceRequest, ServiceState
from petstore.http.routes import Operation, Routes
from petstore.http.shares import SMALL_BODY_BYTES
from petstore.observability.logs import RequestLine, request_log

if TYPE_CHECKING:
    from petstore.observability.metrics import Metrics

_METHODS: Final = frozenset(map(str, HTTPMethod))
"""Those that the log names; a client may make up others."""

_WELL_FORMED_ID: Final = re.compile(REQUEST_ID_PATTERN.encode())
_process: Final = secrets.token_hex(6)
_numbers: Final = count(1)

_log = logging.getLogger("petstore")


class Service:
    """The service as an ASGI application.

    A server whose `send` has a method `respond` gets each response in one call of it, as
    `petstore.server.exchange` says. Any other gets the two ASGI messages.

    routes -- what is served
    state -- what requests refer to as their `service`; whether it is draining
    cors -- adds its headers to responses; None if no other origin may call
    metrics -- counts the requests; None if metrics are off
    trace_id -- returns the id of the current trace; None if traces are off
    """

    def __init__(
        self,
        routes: Routes,
        state: ServiceState,
        *,
        cors: Cors | None = None,
        metrics: "Metrics | None" = None,
        trace_id: Callable[[], str | None] | None = None,
    ) -> None:
        self._routes = routes
        self._state = state
        self._cors = cors
        self._metrics = metrics
        self._trace_id = trace_id

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:  # noqa: C901, PLR0912, PLR0915 - one pipeline, read from top to bottom
        """Respond to a request, or hand the lifespan to Litestar."""
        if scope["type"] != "http":
            await self._routes.app(scope, receive, send)
            return
        observed = self._metrics is not None or request_log.on
        begin = perf_counter() if observed else 0.0
        if self._metrics is not None:
            self._metrics.begin()
        path = scope["path"] = scope["raw_path"].decode("latin-1")
        scope["request_id"] = request_id(scope["headers"])
        operation, segment = self._routes.find(scope["method"], path)
        request = ServiceRequest(scope, receive, send, self._state)
        status = 0  # of the response, once there is one
        failure: ApiError | None = None
        try:
            if operation is None:
                code, headers = self._unrouted(scope["method"], path)
                body, fixed = b"", fixed_headers("")
            else:
                scope |= operation.scope
                arguments: dict[str, Any] = {}
                if operation.parameter:
                    arguments[operation.parameter] = segment
                    scope["path_params"] = {operation.parameter: segment}
                for guard in operation.guards:
                    if (waiting := guard(request, operation.handler)) is not None:
                        await waiting
                if operation.takes_request:
                    arguments["request"] = request
                if operation.body is not None:
                    content = read_body(request, operation.max_body_bytes)
                    if not isinstance(content, bytes):
                        content = await content
                    arguments["data"] = decode(content, operation.body)
                result = await operation.function(**arguments)
                code, headers, fixed = operation.status, [], operation.fixed
                if type(result) is Response:
                    headers = result.headers
                    if result.status is not None:
                        code = result.status
                    result = result.content
                body = operation.encode(result)
                if len(body) > SMALL_BODY_BYTES and request.slot and operation.body is None:
                    self._state.shares.unread.check(scope["auth"], len(body))  # it may have waited
            sending = self._send(request, code, headers, body, fixed)
            if sending is not None:
                await sending
            status = code
        except asyncio.CancelledError:  # the time for requests in flight is over
            if not status:
                failure = unavailable(SERVICE_STOPPING)
                status = failure.status
                await self._fail(request, operation, failure)
            raise
        except Exception as error:  # noqa: BLE001 - every exception becomes a response
            response = to_api_error(error)
            self._report(error, response, request)
            if not status:
                failure = response
                await self._fail(request, operation, response)
                status = response.status
            error.__traceback__ = None  # its frames refer to the error: a reference cycle
        finally:
            if request.slot is not None:
                request.release()
            if observed:
                name = "unknown" if operation is None else operation.id
                status = status or 500  # that of the server
                self._observe(scope, name, status, perf_counter() - begin, failure)

    def _unrouted(self, method: str, path: str) -> tuple[int, list[Header]]:
        """Return the response to OPTIONS: the methods of a path, or of all (RFC 9110, 9.3.7).

        Raises `ApiError` (404, 405) for any other method.
        """
        allow = self._routes.allow(path)
        if allow is None or (path == "*" and method != "OPTIONS"):
            raise not_found("Path")
        if method != "OPTIONS":
            message = f"Method not allowed: this path supports {allow}."
            raise ApiError(ErrorCode.METHOD_NOT_ALLOWED, message, {"allow": allow})
        headers = [(b"allow", allow.encode())]
        if "PATCH" in allow:  # RFC 5789, section 3.1
            headers.append((b"accept-patch", b"application/json"))
        return 204, headers

    def _send(
        self,
        request: ServiceRequest,
        status: int,
        headers: list[Header],
        body: bytes,
        fixed: FixedHeaders,
    ) -> Awaitable[None] | None:
        """Send a whole response: at once, or by what is returned.

        headers -- those of this response; the list is changed
        """
        request.release()
        headers += request.limit_headers
        if self._cors is not None:
            headers += self._cors.headers(request.scope)
        if self._state.draining:
            headers.append(CLOSE)
        id_: bytes = request.scope["request_id"]
        respond = getattr(request.send, "respond", None)
        if respond is None:
            headers = [*fixed.headers, *headers, (b"x-request-id", id_)]
            return _send_messages(request, status, headers, body)
        respond(status, headers, body, (fixed.encoded, b"\r\nx-request-id: ", id_))
        return None

    async def _fail(
        self, request: ServiceRequest, operation: Operation | None, error: ApiError
    ) -> None:
        """Send an error response."""
        fixed = fixed_headers(JSON) if operation is None else operation.fixed_error
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        sending = self._send(request, error.status, headers, encode(error), fixed)
        if sending is not None:
            await sending

    def reject(
        self, message: str, headers: list[Header], scope: dict[str, Any] | None
    ) -> tuple[list[Header], bytes]:
        """Return headers and body of the 400 for a request that the server rejects.

        It is counted and logged, unless the application has the request and does both.

        message -- what is wrong, without what the client has sent
        headers -- those that have arrived
        scope -- that of the request, if the application has it
        """
        error = invalid(f"HTTP: {message}.")
        id_: bytes | None = None if scope is None else scope.get("request_id")
        if id_ is None:
            id_ = request_id(headers)
            if self._metrics is not None:
                self._metrics.reject()
            request_log.write(
                RequestLine(
                    level="info",
                    event="request",
                    request_id=id_.decode(),
                    status=400,
                    code=error.code,
                    reason=error.reason,
                )
            )
        elif scope is not None:
            scope["rejected"] = error.reason  # which its application cannot know
        sent = {"headers": headers, "method": ""}  # the method of a malformed request is unknown
        cors = [] if self._cors is None else self._cors.headers(sent)
        return [*fixed_headers(JSON).headers, *cors, (b"x-request-id", id_)], encode(error)

    def _report(self, error: Exception, response: ApiError, request: ServiceRequest) -> None:
        """Log what the client does not get to see; count failures of the storage and refusals."""
        scope = request.scope
        if self._metrics is not None:
            if isinstance(error, StorageError) and not isinstance(error, RefusedError):
                self._metrics.storage_failed()
            elif response.refusal is not None:
                self._metrics.refuse(response.refusal, short_name(scope.get("auth") or ""))
        id_ = scope["request_id"].decode()
        if isinstance(error, UnavailableError):
            self._state.storage_health.failed(str(error), id_, write=request.writing)
        elif response.status >= 500 and not isinstance(error, ApiError):
            known = isinstance(error, StorageError)  # raised on purpose, with a message for this
            unexpected = error if response.code is ErrorCode.INTERNAL_ERROR and not known else None
            text = str(error) or type(error).__name__
            _log.error("%s", text, exc_info=unexpected, extra={"request_id": id_})

    def _observe(
        self, scope: Any, operation: str, status: int, seconds: float, failure: ApiError | None
    ) -> None:
        """Count and log a request, whether or not the client stayed for the response."""
        if self._metrics is not None:
            self._metrics.end(operation, status, seconds)
        if request_log.on:
            line = RequestLine(
                level="info",
                event="request",
                request_id=scope["request_id"].decode(),
                trace_id=self._trace_id and self._trace_id(),
                method=scope["method"],
                route=scope.get("path_template"),
                status=status,
                milliseconds=round(seconds * 1e6) / 1000,  # `round(x, 3)` takes twice as long
                client=(client := scope.get("auth")) and short_name(client),
            )
            if failure is not None:
                line.code, line.reason = failure.code, scope.get("rejected", failure.reason)
                if line.method not in _METHODS:  # which is an error: no other response has one
                    line.method = "unknown"
            request_log.write(line)


def request_id(headers: Iterable[Header]) -> bytes:
    """Return the client's ``X-Request-Id`` if it is well-formed, otherwise a new id."""
    for name, value in headers:
        if name == b"x-request-id" and _WELL_FORMED_ID.fullmatch(value):
            return value
    return f"{_process}-{next(_numbers):x}".encode()  # `b"%b-%x"` takes 0.2 us more


async def _send_messages(
    request: ServiceRequest, status: int, headers: list[Header], body: bytes
) -> None:
    """Send a response as the two messages of ASGI."""
    if status not in (204, 304):  # RFC 9110, section 8.6
        headers.append((b"content-length", b"%d" % len(body)))
    if request.scope["method"] == "HEAD":
        body = b""
    await request.send({"type": "http.response.start", "status": status, "headers": headers})
    await request.send({"type": "http.response.body", "body": body, "more_body": False})
