"""The outermost ASGI layer: what must happen to every answer, also to unrouted ones.

Whatever is raised becomes a row of the table in `petstore.errors` here. Paths are matched as they
were sent, byte for byte: nothing is unescaped, no slash is added or dropped. ``HEAD`` is answered
as ``GET``, ``OPTIONS`` with the methods of the path.
"""

import asyncio
import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from litestar import Litestar
from litestar.types import Message, Receive, Send

from petstore.api.lean import route
from petstore.contract import StorageError
from petstore.deprecation import deprecation_headers
from petstore.errors import ApiError, Code, not_found, respond, to_api_error, unavailable
from petstore.headers import NO_SNIFF, OF_INTERFACE
from petstore.limits import leave
from petstore.log import RequestLine, request_log
from petstore.request_id import request_id
from petstore.service import Service

if TYPE_CHECKING:
    from petstore.metrics.counting import Metrics

_log = logging.getLogger("petstore")

_INTERFACE: Final = "/v1"
"""What the paths of the interface begin with."""

_CLOSE: Final = (b"connection", b"close")

# No path is longer, and Litestar's routing remembers the last 1,024 of them.
_MAX_PATH: Final = 2048

# No operation has this method, so that the router's 405 lists the methods of the path.
_NO_METHOD: Final = "*"
_INNER_METHOD: Final = {"HEAD": "GET", "OPTIONS": _NO_METHOD}


class Edge:
    """Wraps the application: request ids, exact paths, HEAD, OPTIONS, errors, log, metrics.

    service -- for its public prefix, and to know when it is about to stop
    metrics -- what counts requests, if anything does
    """

    def __init__(self, app: Litestar, service: Service, metrics: "Metrics | None" = None) -> None:
        self._app = app
        self._service = service
        self._metrics = metrics
        self._observed = metrics is not None or request_log.on

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:  # noqa: C901 - a list
        """Answer a request, or pass the lifespan on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = perf_counter()
        method = scope["method"]
        scope["path"] = scope["raw_path"].decode("latin-1")
        scope["request_id"] = request_id(scope["headers"])
        inner = scope
        if method in _INNER_METHOD:
            inner = {**scope, "method": _INNER_METHOD[method]}
        status = 0
        if self._metrics is not None:
            self._metrics.begin()

        async def finish(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                self._finish_head(message, method, inner)
                status = message["status"]
                if inner is not scope:  # for whoever wraps this
                    scope["path_template"] = inner.get("path_template")
            elif method == "HEAD" or status == 204:
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        try:
            await self._route(inner, receive, finish)
        except asyncio.CancelledError:  # the time for requests under way is over
            if not status:
                await respond(unavailable("The service is stopping."), finish)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            answer = _explain(error, scope["request_id"].decode(), answered=bool(status))
            if self._metrics is not None and isinstance(error, StorageError):
                self._metrics.storage_failed()
            if not status:
                await respond(answer, finish)
            error.__traceback__ = None  # or its frames and it would keep each other alive
        finally:
            if not status:
                leave(inner)
            if self._observed:
                self._observe(inner, method, status, perf_counter() - begin)

    def _route(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        """Let a handler answer."""
        path = scope["path"]
        if "//" in path or (path[-1:] == "/" and path != "/") or len(path) > _MAX_PATH:
            raise not_found("This path")
        return route(self._app, scope)(scope, receive, send)

    def _finish_head(self, message: Any, method: str, inner: Any) -> None:
        """Add the header fields that every answer carries; turn a 405 into OPTIONS' answer.

        From now on only the client is waited for.
        """
        leave(inner)
        headers = message["headers"]
        if method == "OPTIONS" and message["status"] == 405:  # RFC 9110, section 9.3.7
            message["status"] = 204
            headers = [field for field in headers if field[0] == b"allow"]
        always = OF_INTERFACE if inner["path"].startswith(_INTERFACE) else ()
        headers = [*headers, (b"x-request-id", inner["request_id"]), NO_SNIFF, *always]
        if "rate_limit" in inner:
            headers += inner["rate_limit"]
        handler = inner.get("route_handler")
        if handler is not None and (deprecation := handler.opt.get("deprecation")) is not None:
            headers += deprecation_headers(deprecation, self._service.root)
        if self._service.draining:
            headers.append(_CLOSE)
        message["headers"] = headers

    def _observe(self, scope: Any, method: str, status: int, seconds: float) -> None:
        """Count and log an answer, whether or not the client was still there to take it."""
        if self._metrics is not None:
            self._metrics.end(_operation(scope), status, seconds)
        if request_log.on:
            request_log.write(
                RequestLine(
                    level="info",
                    event="request",
                    request_id=scope["request_id"].decode(),
                    trace_id=scope.get("trace_id"),
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


def _explain(error: Exception, request_id: str, *, answered: bool) -> ApiError:
    """Return the answer to any exception of a request; log what the client is not told."""
    answer = to_api_error(error)
    if answered or (answer.code.status >= 500 and not isinstance(error, ApiError)):
        unexpected = error if answered or answer.code is Code.INTERNAL_ERROR else None
        _log.error(
            "%s",
            str(error) or type(error).__name__,
            exc_info=unexpected,
            extra={"request_id": request_id},
        )
    return answer
