"""The outermost layer of the service itself: what happens to every request, routed or not.

Each exception becomes an error response here, after the table in `petstore.http.errors`. ``HEAD``
is served as ``GET`` without a body, ``OPTIONS`` from the table of routes.
"""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from litestar.types import ASGIApp, Receive, Send

from petstore.config.keys import short_name
from petstore.contract import StorageError, UnavailableError
from petstore.http.errors import (
    ApiError,
    ErrorCode,
    encode,
    not_found,
    to_api_error,
    unavailable,
)
from petstore.http.limits import release
from petstore.http.request_id import request_id
from petstore.http.response import CommonHeaders, ResponseWriter
from petstore.http.state import ServiceState
from petstore.observability.logs import RequestLine, request_log

if TYPE_CHECKING:
    from petstore.observability.metrics import Metrics

_WRITES: Final = frozenset({"DELETE", "PATCH", "POST", "PUT"})

_log = logging.getLogger("petstore")


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
        self._common: dict[tuple[Any, bool], CommonHeaders] = {}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:  # noqa: C901 - a sequence of steps
        """Respond to a request, or pass the lifespan on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        observed = self._metrics is not None or request_log.on
        begin = perf_counter() if observed else 0
        method = scope["method"]
        scope["path"] = scope["raw_path"].decode("latin-1")
        scope["request_id"] = request_id(scope["headers"])
        scope["service"] = self._state
        inner: Any = {**scope, "method": "GET"} if method == "HEAD" else scope
        writer = ResponseWriter(scope, inner, send, self._state, self._common)
        if self._metrics is not None:
            self._metrics.begin()
        try:
            if method == "OPTIONS":
                self._options(scope["path"], writer)
            else:
                await self._app(inner, receive, writer)
            if writer.held:
                await writer.flush()
        except asyncio.CancelledError:  # the time for requests in flight is over
            if not writer.status:
                await _respond(unavailable("The service is stopping."), writer)
            raise
        except Exception as error:  # noqa: BLE001 - every exception becomes a response
            response = to_api_error(error)
            self._report(error, response, scope, started=bool(writer.status))
            if not writer.status:
                await _respond(response, writer)
            error.__traceback__ = None  # its frames refer to the error: a reference cycle
        finally:
            if not writer.status:
                release(inner)
            if observed:
                self._observe(inner, method, writer.status, perf_counter() - begin)

    def _options(self, path: str, writer: ResponseWriter) -> None:
        """Respond with the methods of a path, or of the service: ``*`` (RFC 9110, 9.3.7)."""
        allow = self._allow(path)
        if allow is None:
            raise not_found("Path")
        writer.respond(204, [(b"allow", allow.encode())], b"")

    def _report(self, error: Exception, response: ApiError, scope: Any, *, started: bool) -> None:
        """Log what the client does not get to see; count failures of the storage."""
        if isinstance(error, StorageError) and self._metrics is not None:
            self._metrics.storage_failed()
        request_id = scope["request_id"].decode()
        if isinstance(error, UnavailableError) and not started:
            self._state.storage_health.failed(
                str(error), request_id, write=scope["method"] in _WRITES
            )
        elif started or (response.status >= 500 and not isinstance(error, ApiError)):
            unexpected = error if started or response.code is ErrorCode.INTERNAL_ERROR else None
            _log.error(
                "%s",
                str(error) or type(error).__name__,
                exc_info=unexpected,
                extra={"request_id": request_id},
            )

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
                    client=(client := scope.get("auth")) and short_name(client),
                )
            )


def _operation(scope: Any) -> str:
    """Return the id of the operation that a request was routed to."""
    handler = scope.get("route_handler")
    return "unknown" if handler is None else str(handler.operation_id)


async def _respond(error: ApiError, writer: ResponseWriter) -> None:
    """Send an error response."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    writer.respond(error.status, headers, encode(error))
    await writer.flush()
