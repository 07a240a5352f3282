"""The one place where requests leave Litestar's own path, because a shorter one is faster.

At start-up every route of the Litestar application is entered into a table. A request whose
handler has ``fast_path`` in its ``opt`` is then served from here: guards, arguments, handler,
response. Other handlers are served by the application itself, in Litestar's own way.

What the fast path does not honor is refused at start-up, by name. tests/http/test_fast_path.py
goes through every option of Litestar and its layers; docs/decisions/0012 has the measurements.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any, Final, TypeVar, get_origin

import msgspec
from litestar import Litestar, MediaType, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, Receive, Send
from litestar.types.empty import Empty

from petstore.http.body import StrictRequest, decode, read
from petstore.http.errors import method_not_allowed, not_found
from petstore.http.guards import ScopeGuard
from petstore.http.headers import JSON_CONTENT, Header
from petstore.http.response import ResponseWriter

Content = TypeVar("Content")

APP_OPTIONS: Final = (
    *("after_exception", "allowed_hosts", "before_send", "compression_config", "cors_config"),
    *("csrf_config", "pdb_on_exception"),
)
"""Options of the application that the fast path skips."""

LAYER_OPTIONS: Final = (
    *("after_request", "after_response", "background", "cache", "cache_control"),
    *("cache_key_builder", "dependencies", "dto", "etag", "middleware", "parameters"),
    *("response_class", "response_cookies", "response_headers", "return_dto", "sync_to_thread"),
    *("type_decoders", "type_encoders"),
)
"""Options of the application, routers, controllers and handlers that the fast path skips."""

_encode: Final = msgspec.json.Encoder().encode


class UnsupportedOptionError(Exception):
    """The application uses something that the fast path does not honor.

    The message names it and says what to do.
    """


class FastResponse(Response[Content]):
    """A response with a content, a status code and headers only, so that less has to be set up."""

    background = None
    cookies = ()  # type: ignore[assignment] # Litestar only reads it
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
        _refuse_options(app, handler)
        names = _refuse_signature(handler, parameter)
        self._handler = handler
        self._function: Callable[..., Awaitable[Any]] = handler.fn
        self._request_class = handler.resolve_request_class()
        self._before_request = handler.resolve_before_request()
        self._status = handler.status_code
        self._names = names
        self._parameter = parameter if parameter in names else ""
        guards = handler.resolve_guards()
        plain = all(isinstance(guard, ScopeGuard) for guard in guards)
        self._checks = [guard.check for guard in guards if plain and isinstance(guard, ScopeGuard)]
        self._guards = [] if plain else guards  # all of them, because they run in order
        self._type = handler.parsed_data_field and handler.parsed_data_field.annotation
        self._limit: Any = handler.resolve_request_max_body_size()
        self._needs_request = bool(
            self._guards
            or self._before_request
            or "request" in names
            or (self._type is not None and self._request_class is not StrictRequest)
        )

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        for check in self._checks:
            check(scope)
        if self._needs_request:
            result = await self._call(self._request_class(scope, receive, send))
        else:
            arguments = self._take(scope)
            if self._type is not None:
                arguments["data"] = decode(await read(scope, receive, self._limit), self._type)
            result = await self._function(**arguments)
        if isinstance(result, Response) and not isinstance(result, FastResponse):
            request: Any = self._request_class(scope, receive, send)
            response = result.to_asgi_response(
                None, request, media_type=MediaType.JSON, status_code=self._status
            )
            await response(scope, receive, send)
            return
        status, headers, body = self._render(result)
        if isinstance(send, ResponseWriter):
            send.respond(status, headers, body)
            return
        headers += [JSON_CONTENT, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _call(self, request: Any) -> Any:
        """Return what the handler, or a function before it, makes of a request."""
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

    def _render(self, result: Any) -> tuple[int, list[Header], bytes]:
        """Return status, headers and body of the response."""
        if not isinstance(result, FastResponse):
            return self._status, [], _encode(result)
        headers = [(name.encode(), value.encode()) for name, value in result.headers.items()]
        return result.status_code or self._status, headers, _encode(result.content)


def propagate(_: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Handle no exception: every error becomes a response in `ServiceMiddleware`."""
    raise error


def _handlers(route: HTTPRoute) -> Iterator[tuple[str, HTTPRouteHandler]]:
    for handler in route.route_handlers:
        for method in handler.http_methods:
            if method != "OPTIONS":  # made by Litestar; `ServiceMiddleware` serves it
                yield method, handler


def _refuse_options(app: Litestar, handler: HTTPRouteHandler) -> None:
    for option in APP_OPTIONS:
        if _is_set(app, option):
            raise _unsupported(handler, option, "the application")
    for plugin in _plugins(app) - _plugins(_bare()):
        raise _unsupported(handler, f"the plugin {plugin}", "the application")
    for layer in handler.ownership_layers:
        where = "itself" if layer is handler else type(layer).__name__
        for option in LAYER_OPTIONS:
            if _is_set(layer, option):
                raise _unsupported(handler, option, where)
        handlers = getattr(layer, "exception_handlers", None) or {}
        standard = (propagate, *_bare().exception_handlers.values())
        if any(function not in standard for function in handlers.values()):
            raise _unsupported(handler, "exception_handlers", where)
    if handler.media_type not in ("", MediaType.JSON):
        raise _unsupported(handler, "media_type", "itself")


@cache
def _bare() -> Litestar:
    """Return an application with only what Litestar adds by itself.

    That depends on what is installed: for Starlette's errors it adds an exception handler.
    """
    return Litestar(openapi_config=None, logging_config=None)


def _plugins(app: Litestar) -> set[str]:
    return {type(plugin).__name__ for plugin in app.plugins}


def _is_set(layer: object, option: str) -> bool:
    value = getattr(layer, option, None)
    return value is not Empty and bool(value)


def _refuse_signature(handler: HTTPRouteHandler, parameter: str) -> set[str]:
    """Return the names of the handler's arguments; refuse those that the fast path cannot give."""
    if not inspect.iscoroutinefunction(handler.fn):
        raise _unsupported(handler, "a function that is not asynchronous", "itself")
    signature = handler.parsed_fn_signature
    for name, field in signature.parameters.items():
        if name in ("request", "scope", "data") or (name == parameter and field.annotation is str):
            continue
        raise _unsupported(handler, f"the argument {name!r}", "itself")
    result = signature.return_type.annotation
    result = get_origin(result) or result
    if not (isinstance(result, type) and issubclass(result, msgspec.Struct | Response)):
        raise _unsupported(handler, f"the return type {signature.return_type.raw!r}", "itself")
    return set(signature.parameters)


def _unsupported(handler: HTTPRouteHandler, what: str, where: str) -> UnsupportedOptionError:
    return UnsupportedOptionError(
        f"the fast path does not honor {what} of {where} for the handler"
        f" {handler.operation_id or handler.handler_name}. Remove it, do it in the handler or in"
        " ServiceMiddleware, or serve the handler in Litestar's own way: opt={'fast_path': False}"
    )
