"""The one place where requests leave Litestar's own path, because a shorter one is faster.

At start-up every route of the Litestar application is entered into a table. A request whose
handler has ``fast_path`` in its ``opt`` is then served from here: guards, arguments, handler,
response. Other handlers are served by the application itself, in Litestar's own way.

What the fast path does not honor, `options` refuses at start-up, by name. What a handler returns is
sent from here if it is a struct or a plain `FastResponse`; Litestar renders everything else.
docs/decisions/0024 says why, and has the measurements.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec
from litestar import Litestar, Response
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.serialization import default_serializer
from litestar.types import ASGIApp, Receive, Send

from petstore.http.body import StrictRequest, body_limit, decode, read
from petstore.http.errors import method_not_allowed, not_found
from petstore.http.guards import ScopeGuard
from petstore.http.headers import JSON_CONTENT, Header
from petstore.http.options import (
    UnsupportedOptionError,
    refuse_options,
    refuse_signature,
    returned_struct,
)
from petstore.http.response import ResponseWriter

Content = TypeVar("Content")

_RENDERED: Final = frozenset({"content-length", "content-type"})
"""Headers that Litestar takes into account when it renders a response."""

_encode: Final = msgspec.json.Encoder(enc_hook=default_serializer).encode


class FastResponse(Response[Content]):
    """A response that has only content, status code and headers, so that it is cheap to create.

    Whatever else is set on it later is honored: Litestar then renders it.
    """

    background = None
    encoding = "utf-8"
    media_type = None
    response_type_encoders = {}  # noqa: RUF012 - Litestar only reads it

    def __init__(
        self,
        content: Content,
        *,
        headers: dict[str, str] | None = None,
        status_code: int | None = None,
    ) -> None:
        self.content = content
        self.headers = headers or {}
        self.status_code = status_code

    @cached_property
    def cookies(self) -> list[Cookie]:  # type: ignore[override] # made when one is set
        """The cookies that were set."""
        return []

    def plain_headers(self) -> list[Header] | None:
        """Return the headers of a response that is the JSON of its content and nothing else.

        Return None for any other: Litestar has to render it.
        """
        if (
            self.__dict__  # what `__init__` sets has slots
            or isinstance(self.content, (str, bytes))
            or self.status_code in (204, 304)
        ):
            return None
        headers = []
        for name, value in self.headers.items():
            if (lower := name.lower()) in _RENDERED:
                return None
            headers.append((lower.encode("latin-1"), value.encode("latin-1")))
        return headers


class FastPath:
    """An ASGI application in front of a Litestar application.

    Paths are matched byte for byte as they were sent: nothing is decoded or normalized. Nothing
    is cached. A path is either fixed or ends with one parameter of type ``str``.

    app -- with all its routes registered

    Raises `UnsupportedOptionError`.
    """

    def __init__(self, app: Litestar) -> None:
        self._app = app
        self._fixed: dict[str, _Path] = {}
        self._prefixed: dict[str, _Path] = {}
        for route in app.routes:
            if not isinstance(route, HTTPRoute):
                raise UnsupportedOptionError(
                    f"{route.path} is not an HTTP route: mount ASGI applications, WebSockets and"
                    " static files outside this application"
                )
            path = _Path(route)
            table = self._prefixed if path.parameter else self._fixed
            for method, handler in _handlers(route):
                fast = handler.opt.get("fast_path")
                path.endpoints[method] = (
                    handler,
                    _FastHandler(app, handler, path.parameter) if fast else app,
                )
            known = table.setdefault(path.prefix, path)
            known.endpoints |= path.endpoints
            for method in path.endpoints:
                self._compare(method, path)

    def __call__(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a request, or hand the lifespan to Litestar.

        Raises `ApiError` (404, 405) and whatever guards and the handler raise.
        """
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        path, parameters = self._find(scope["path"])
        if path is None:
            raise not_found("Path")
        endpoint = path.endpoints.get(scope["method"])
        if endpoint is None:
            raise method_not_allowed(path.allow)
        scope["route_handler"], serve = endpoint
        scope["path_template"] = path.template
        scope["path_params"] = parameters
        scope["app"] = scope["litestar_app"] = self._app
        return serve(scope, receive, send)

    def allow(self, path: str) -> str | None:
        """Return the methods that a path supports, as in ``Allow``; None for an unknown path.

        path -- as it was sent; ``*`` stands for all paths together
        """
        if path == "*":
            paths = (*self._fixed.values(), *self._prefixed.values())
            return ", ".join(sorted({method for p in paths for method in p.allow.split(", ")}))
        found, _ = self._find(path)
        return None if found is None else found.allow

    def _compare(self, method: str, path: "_Path") -> None:
        """Refuse a route for which Litestar's router does not find the same handler."""
        sample = path.prefix + "/x" * bool(path.parameter)
        found, parameters = self._find(sample)
        _, handler, _, own_parameters, _ = self._app.asgi_router.handle_routing(sample, method)
        entry = found.endpoints.get(method) if found is not None else None
        if entry is None or entry[0] is not handler or parameters != own_parameters:
            raise UnsupportedOptionError(
                f"{method} {sample} is served by another handler than Litestar's router finds:"
                " two routes overlap; give one of them another path"
            )

    def _find(self, path: str) -> "tuple[_Path | None, dict[str, str]]":
        found = self._fixed.get(path)
        if found is not None:
            return found, {}
        prefix, _, last = path.rpartition("/")
        found = self._prefixed.get(prefix) if last else None
        if found is None:
            return None, {}
        return found, {found.parameter: last}


class _Path:
    """What is served at the paths of one template."""

    def __init__(self, route: HTTPRoute) -> None:
        self.template = route.path_format
        self.endpoints: dict[str, tuple[HTTPRouteHandler, ASGIApp]] = {}
        self.parameter = ""
        self.prefix = route.path
        if route.path_parameters:
            (*fixed, last) = route.path_components
            if isinstance(last, str) or last.type is not str or len(route.path_parameters) > 1:
                raise UnsupportedOptionError(
                    f"{route.path}: a path has at most one parameter, at its end and of type str;"
                    " parse it in the handler, as petstore.http.api.resources.parse_id does"
                )
            self.parameter = last.name
            self.prefix = "".join(f"/{component}" for component in fixed)

    @property
    def allow(self) -> str:
        """The value of ``Allow``: HEAD comes with GET, OPTIONS is always there."""
        methods = {*self.endpoints, "OPTIONS", *(("HEAD",) if "GET" in self.endpoints else ())}
        return ", ".join(sorted(methods))


class _FastHandler:
    """Serves the requests of one handler."""

    def __init__(self, app: Litestar, handler: HTTPRouteHandler, parameter: str) -> None:
        refuse_options(app, handler)
        names = refuse_signature(handler, parameter)
        self._app = app
        self._handler = handler
        self._struct = returned_struct(handler)
        self._function: Callable[..., Awaitable[Any]] = handler.fn
        self._before_request = handler.resolve_before_request()
        self._status = handler.status_code
        self._names = names
        self._parameter = parameter if parameter in names else ""
        guards = handler.resolve_guards()
        plain = all(type(guard) is ScopeGuard for guard in guards)
        self._checks = [guard.check for guard in guards if plain and isinstance(guard, ScopeGuard)]
        self._guards = [] if plain else guards  # all of them, because they run in order
        self._type = handler.parsed_data_field and handler.parsed_data_field.annotation
        self._limit = body_limit(handler)
        self._needs_request = bool(self._guards or self._before_request or "request" in names)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        for check in self._checks:
            check(scope)
        if self._needs_request:
            result = await self._call(StrictRequest(scope, receive, send))
        else:
            arguments = self._take(scope)
            if self._type is not None:
                arguments["data"] = decode(await read(scope, receive, self._limit), self._type)
            result = await self._function(**arguments)
        headers: list[Header] | None = None
        if isinstance(result, self._struct):
            status, headers, body = self._status, [], _encode(result)
        elif isinstance(result, FastResponse):
            headers = result.plain_headers()
            if headers is not None:
                status, body = result.status_code or self._status, _encode(result.content)
        if headers is None:
            request = StrictRequest(scope, receive, send)
            response = await self._handler.to_response(self._app, result, request)
            await response(scope, receive, send)
            return
        if isinstance(send, ResponseWriter):
            send.respond(status, headers, body)
            return
        headers += [JSON_CONTENT, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _call(self, request: Any) -> Any:
        """Return the result of the handler, or of its `before_request` function if that has one."""
        for guard in self._guards:
            await guard(request, self._handler)  # type: ignore[misc] # Litestar made it async
        if self._before_request is not None and (result := await self._before_request(request)):
            return result
        arguments = self._take(request.scope)
        if "request" in self._names:
            arguments["request"] = request
        if self._type is not None:
            arguments["data"] = await request.json()
        return await self._function(**arguments)

    def _take(self, scope: Any) -> dict[str, Any]:
        """Return the arguments that come from the scope."""
        arguments: dict[str, Any] = {}
        if self._parameter:
            arguments[self._parameter] = scope["path_params"][self._parameter]
        if "scope" in self._names:
            arguments["scope"] = scope
        return arguments


def _handlers(route: HTTPRoute) -> Iterator[tuple[str, HTTPRouteHandler]]:
    for handler in route.route_handlers:
        if handler.fn.__module__ == HTTPRoute.__module__:
            continue  # made by Litestar for OPTIONS
        for method in handler.http_methods:
            if method in ("HEAD", "OPTIONS"):
                raise UnsupportedOptionError(
                    f"{method} {route.path}: ServiceMiddleware serves HEAD as GET, and OPTIONS from"
                    " the table of routes; remove this handler, or change ServiceMiddleware"
                )
            yield method, handler
