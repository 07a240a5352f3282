"""The outermost layer of the service itself: what happens to every request, routed or not.

Each exception becomes an error response here, after the table in `petstore.http.errors`. ``HEAD``
is served as ``GET`` without a body, ``OPTIONS`` from the table of routes.
"""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from litestar.types import ASGIApp, Message, Receive, Send

from petstore.contract import StorageError
from petstore.http.deprecation import deprecation_headers
from petstore.http.errors import (
    ApiError,
    ErrorCode,
    not_found,
    respond,
    to_api_error,
    unavailable,
)
from petstore.http.headers import API_HEADERS, NO_SNIFF
from petstore.http.limits import release
from petstore.http.request_id import request_id
from petstore.http.state import ServiceState
from petstore.observability.logs import RequestLine, request_log

if TYPE_CHECKING:
    from petstore.observability.metrics import Metrics

_log = logging.getLogger("petstore")

API_PREFIX: Final = "/v1"
"""The prefix of all paths of the interface."""

_CLOSE: Final = (b"connection", b"close")


class ServiceMiddleware:
    """Adds request ids, error responses, HEAD, OPTIONS, common headers, log lines and metrics.

    allow -- returns the methods of a path, as in ``Allow``, or None for an unknown path
    state -- for the public prefix, and whether the service is draining
    metrics -- counts the requests; None if metrics are off
    trace_id -- returns the id of the current trace; None if traces are off
    """

    def __init__(
        self,
        app: ASGIApp,
        allow: Callable[[str], str | None],
        state: ServiceState,
        metrics: "Metrics | None" = None,
        trace_id: Callable[[], str | None] | None = None,
    ) -> None:
        self._app = app
        self._allow = allow
        self._state = state
        self._metrics = metrics
        self._trace_id = trace_id

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:  # noqa: C901 - a sequence of steps
        """Respond to a request, or pass the lifespan on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = perf_counter()
        method = scope["method"]
        scope["path"] = scope["raw_path"].decode("latin-1")
        scope["request_id"] = request_id(scope["headers"])
        inner: Any = {**scope, "method": "GET"} if method == "HEAD" else scope
        status = 0
        if self._metrics is not None:
            self._metrics.begin()

        async def finish(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                self._add_headers(message, inner)
                status = message["status"]
                if inner is not scope:  # for the layers outside
                    scope["path_template"] = inner.get("path_template")
            elif method == "HEAD":
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        try:
            if method == "OPTIONS":
                await self._options(scope["path"], finish)
            else:
                await self._app(inner, receive, finish)
        except asyncio.CancelledError:  # the time for requests in flight is over
            if not status:
                await respond(unavailable("The service is stopping."), finish)
            raise
        except Exception as error:  # noqa: BLE001 - every exception becomes a response
            response = _explain(error, scope["request_id"].decode(), started=bool(status))
            if self._metrics is not None and isinstance(error, StorageError):
                self._metrics.storage_failed()
            if not status:
                await respond(response, finish)
            error.__traceback__ = None  # its frames refer to the error: a reference cycle
        finally:
            if not status:
                release(inner)
            if self._metrics is not None or request_log.on:
                self._observe(inner, method, status, perf_counter() - begin)

    async def _options(self, path: str, send: Send) -> None:
        """Respond with the methods of a path (RFC 9110, section 9.3.7)."""
        allow = self._allow(path)
        if allow is None:
            raise not_found("Path")
        headers = [(b"allow", allow.encode())]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _add_headers(self, message: Any, scope: Any) -> None:
        """Add the headers that every response carries; release the slot of the request."""
        release(scope)
        api = API_HEADERS if scope["path"].startswith(API_PREFIX) else ()
        headers = [*message["headers"], (b"x-request-id", scope["request_id"]), NO_SNIFF, *api]
        if "rate_limit" in scope:
            headers += scope["rate_limit"]
        handler = scope.get("route_handler")
        if handler is not None and (deprecation := handler.opt.get("deprecation")) is not None:
            headers += deprecation_headers(deprecation, self._state.root_path)
        if self._state.draining:
            headers.append(_CLOSE)
        message["headers"] = headers

    def _observe(self, scope: Any, method: str, status: int, seconds: float) -> None:
        """Count and log a request, whether or not the client stayed for the response."""
        if self._metrics is not None:
            self._metrics.end(_operation(scope), status, seconds)
        if request_log.on:
            request_log.write(
                RequestLine(
                    level="info",
                    event="request",
                    request_id=scope["request_id"].decode(),
                    trace_id=self._trace_id and self._trace_id(),
                    method=method,
                    route=scope.get("path_template"),
                    status=status,
                    milliseconds=round(seconds * 1000, 3),
                    client=scope.get("auth"),
                )
            )


def _operation(scope: Any) -> str:
    """Return the id of the operation that a request was routed to."""
    handler = scope.get("route_handler")
    return "unknown" if handler is None else str(handler.operation_id)


def _explain(error: Exception, request_id: str, *, started: bool) -> ApiError:
    """Return the error response for an exception; log what the client does not get to see."""
    response = to_api_error(error)
    if started or (response.status >= 500 and not isinstance(error, ApiError)):
        unexpected = error if started or response.code is ErrorCode.INTERNAL_ERROR else None
        _log.error(
            "%s",
            str(error) or type(error).__name__,
            exc_info=unexpected,
            extra={"request_id": request_id},
        )
    return response
