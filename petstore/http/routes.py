"""The one table of routes: every handler of the application, compiled from its declarations.

Litestar's declarations say what there is: controllers, guards, paths, types of bodies and results.
At start-up each handler becomes an `Operation`, by which `petstore.http.service` serves every
request; Litestar's own dispatch is not used. So a declaration that is not compiled would have no
effect: whatever is not listed in `SUPPORTED` is refused here, by name. docs/decisions/0033 says
why, and has the measurements.
"""

import inspect
import sys
import warnings
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from enum import Enum
from typing import Any, Final, get_args, get_origin

import msgspec
from litestar import Controller, Litestar, Router, get
from litestar.config.app import AppConfig
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg
from litestar.routes import HTTPRoute
from msgspec import Struct

from petstore.http.headers import JSON, Deprecation, FixedHeaders, fixed_headers
from petstore.http.pagination import Collection
from petstore.http.request import ServiceRequest
from petstore.http.response import Response

SUPPORTED: Final = frozenset(
    {
        # What is served, and by which function.
        *("route_handlers", "path", "http_method", "fn", "owner", "name"),
        # The life of the application, which Litestar itself runs.
        *("lifespan", "on_startup", "on_shutdown", "state"),
        # What a request meets.
        *("guards", "request_max_body_size", "status_code", "media_type", "opt"),
        # What the OpenAPI document says.
        *("operation_id", "summary", "description", "tags", "deprecated"),
        # How Litestar resolves annotations.
        *("signature_namespace", "signature_types"),
    }
)
"""The options of the application, its routers, controllers and handlers that have an effect."""


_ALWAYS: Final = (401, 429, 500, 503)
"""The statuses of the errors that every operation has."""


class UnsupportedOptionError(Exception):
    """The application declares something that would have no effect.

    The message names it and says what to do.
    """


class Texts(Struct, frozen=True):
    """What a handler's `opt` tells the OpenAPI document, and the headers of the responses.

    errors -- the statuses of its errors, beside those of every operation
    collection -- whose pages it returns
    creates -- whether its response has a ``Location``, and it accepts an ``Idempotency-Key``
    cacheable -- whether its responses, except errors, have headers of its own instead of
        `DEFAULT_HEADERS`
    """

    errors: tuple[int, ...] = ()
    collection: Collection[Any] | None = None
    creates: bool = False
    deprecation: Deprecation | None = None
    experimental: bool = False
    cacheable: bool = False

    @property
    def statuses(self) -> list[int]:
        """The statuses of all errors that are documented."""
        return sorted({*_ALWAYS, *self.errors})


class Operation(Struct, frozen=True, eq=False):
    """One handler, compiled.

    path -- as it is declared: with the name of its parameter in braces
    scope -- what a request that is routed here has in its ASGI scope
    guards -- outermost first; each is called with the request and the handler
    function -- called with those of these arguments that it takes, by name: `request`, the
        parameter of the path, `data`
    takes_request, parameter, body -- whether it takes the request; the parameter's name, or "";
        the type of `data`, or None
    max_body_bytes -- the maximum length of a body; None for none
    content -- the type of what it returns
    encode -- returns that as bytes
    fixed, fixed_error -- the headers of its responses, and those of its errors
    """

    id: str
    path: str
    handler: HTTPRouteHandler
    scope: dict[str, Any]
    guards: tuple[Callable[[Any, Any], Awaitable[None] | None], ...]
    function: Callable[..., Awaitable[Any]]
    takes_request: bool
    parameter: str
    body: Any
    max_body_bytes: int | None
    content: Any
    encode: Callable[[Any], bytes]
    status: int
    fixed: FixedHeaders
    fixed_error: FixedHeaders
    texts: Texts


class Routes:
    """The operations by method and path.

    Paths are matched byte for byte as they were sent: nothing is decoded or normalized. A path is
    either fixed or ends with one parameter of type ``str``.

    config -- Litestar's description of the application; `request_max_body_size` must be set
    root_path -- the public prefix of the service

    app -- the Litestar application; its lifespan is that of the service

    Raises `UnsupportedOptionError`.
    """

    def __init__(self, config: AppConfig, root_path: str = "") -> None:
        for field in fields(AppConfig):
            if getattr(config, field.name) != getattr(AppConfig(), field.name):
                _require_supported(field.name, "the application")
        with _left_out("litestar.plugins.opentelemetry"), warnings.catch_warnings():
            # Litestar would pass a request of its own; here it passes none.
            warnings.filterwarnings("ignore", r".*Reserved kwarg 'request'")
            self.app: Final = Litestar.from_config(config)
        self.operations: Final[list[Operation]] = []
        self._fixed: dict[str, dict[str, Operation]] = {}
        self._prefixed: dict[str, dict[str, Operation]] = {}
        for route in self.app.routes:
            if not isinstance(route, HTTPRoute):
                raise UnsupportedOptionError(
                    f"{route.path} is not an HTTP route: mount ASGI applications, WebSockets and"
                    " static files outside this application"
                )
            prefix, parameter = _split(route)
            table = self._prefixed if parameter else self._fixed
            methods = table.setdefault(prefix, {})
            for method, handler in _handlers(route):
                if method in methods:
                    raise UnsupportedOptionError(
                        f"{method} {route.path}: two handlers; give one of them another path"
                    )
                operation = _compile(self.app, route, handler, parameter, root_path)
                self.operations.append(operation)
                methods[method] = operation
                if method == "GET":
                    methods["HEAD"] = operation  # the server leaves the body out

    def find(self, method: str, path: str) -> tuple[Operation | None, str]:
        """Return the operation for a request, and the value of its path's parameter.

        path -- as it was sent
        """
        methods = self._fixed.get(path)
        if methods is not None:
            return methods.get(method), ""
        prefix, _, last = path.rpartition("/")
        methods = self._prefixed.get(prefix) if last else None
        return (None, "") if methods is None else (methods.get(method), last)

    def allow(self, path: str) -> str | None:
        """Return the methods that a path supports, as in ``Allow``; None for an unknown path.

        path -- as it was sent; ``*`` stands for all paths together
        """
        prefix, _, last = path.rpartition("/")
        methods: Iterable[str] | None = self._fixed.get(path) or (
            self._prefixed.get(prefix) if last else None
        )
        if path == "*":
            methods = ChainMap(*self._fixed.values(), *self._prefixed.values())
        return None if methods is None else ", ".join(sorted({*methods, "OPTIONS"}))


@contextmanager
def _left_out(module: str) -> Iterator[None]:
    """Within the block, a module that was not imported yet cannot be.

    Litestar imports this one, where OpenTelemetry is installed, to look for a middleware that is
    not supported here. That takes a sixth of the CPU of a start.
    """
    modules: dict[str, Any] = sys.modules
    found = modules.setdefault(module, None)  # None: `ModuleNotFoundError`
    try:
        yield
    finally:
        if found is None:
            modules.pop(module, None)


def _split(route: HTTPRoute) -> tuple[str, str]:
    """Return a route's path without its parameter, and the parameter's name or ""."""
    if not route.path_parameters:
        return route.path, ""
    (*fixed, last) = route.path_components
    if isinstance(last, str) or last.type is not str or len(route.path_parameters) > 1:
        raise UnsupportedOptionError(
            f"{route.path}: a path has at most one parameter, at its end and of type str;"
            " parse it in the handler, as petstore.http.api.resources.parse_id does"
        )
    return "".join(f"/{component}" for component in fixed), last.name


def _handlers(route: HTTPRoute) -> Iterator[tuple[str, HTTPRouteHandler]]:
    for handler in route.route_handlers:
        if handler.fn.__module__ == HTTPRoute.__module__:
            continue  # made by Litestar for OPTIONS
        for method in handler.http_methods:
            if method in ("HEAD", "OPTIONS"):
                raise UnsupportedOptionError(
                    f"{method} {route.path}: HEAD is served as GET without a body, and OPTIONS from"
                    " the table of routes; remove this handler"
                )
            yield method, handler


def _compile(
    app: Litestar, route: HTTPRoute, handler: HTTPRouteHandler, parameter: str, root_path: str
) -> Operation:
    name = str(handler.operation_id or handler.handler_name)
    _, *layers = handler.ownership_layers  # the first is the application
    for layer in layers:
        _require_supported_layer(layer, f"{type(layer).__name__} of {name}")
    if not type(handler).__module__.startswith("litestar."):
        raise _unsupported(f"the class {type(handler).__name__}", name)
    try:
        texts = Texts(**handler.opt)
    except TypeError:
        raise _unsupported(f"the opt {', '.join(handler.opt)}", name) from None
    taken = _arguments(handler, parameter, name)
    data = handler.parsed_data_field
    content, encode = _result(handler, name)
    media_type = handler.media_type or JSON
    media_type = media_type.value if isinstance(media_type, Enum) else media_type
    fixed, fixed_error = (
        fixed_headers(type_, root_path, texts.deprecation, cacheable=cacheable)
        for type_, cacheable in ((media_type, texts.cacheable), (JSON, False))
    )
    return Operation(
        id=name,
        path=route.path_format,
        handler=handler,
        scope={
            "route_handler": handler,
            "path_params": {},
            "path_template": route.path_format,
        },
        guards=tuple(guard for layer in (app, *layers) for guard in layer.guards or ()),
        function=handler.fn,
        takes_request="request" in taken,
        parameter=parameter if parameter in taken else "",
        body=None if data is None else data.annotation,
        max_body_bytes=handler.resolve_request_max_body_size(),
        content=content,
        encode=encode,
        status=handler.status_code,
        fixed=fixed,
        fixed_error=fixed_error,
        texts=texts,
    )


def _require_supported_layer(layer: Any, where: str) -> None:
    """Refuse an option of a router, controller or handler that would have no effect."""
    bare: Any = get("/")(_nothing)
    if isinstance(layer, Router):
        bare = Router("/", route_handlers=[])
    elif isinstance(layer, Controller):
        bare = Controller(Router("/", route_handlers=[]))
    for option in option_names(layer):
        if getattr(layer, option, None) != getattr(bare, option, None):
            _require_supported(option, where)


def option_names(layer: object) -> set[str]:
    """Return the names of the options that a router, controller or handler may have."""
    if isinstance(layer, Controller):
        return {*Controller.__annotations__}
    function = Router.__init__ if isinstance(layer, Router) else HTTPRouteHandler.__init__
    return {*inspect.signature(function).parameters} - {"self"}


async def _nothing() -> None:
    """Serve nothing: the function of a handler with only the options that all handlers have."""


def _require_supported(option: str, where: str) -> None:
    if option not in SUPPORTED:
        raise _unsupported(option, where)


def _arguments(handler: HTTPRouteHandler, parameter: str, name: str) -> set[str]:
    """Return the names of a handler's arguments; refuse those that are not supplied."""
    if not inspect.iscoroutinefunction(handler.fn):
        raise _unsupported("a function that is not asynchronous", name)
    parameters = handler.parsed_fn_signature.parameters
    for argument, field in parameters.items():
        if argument == "request":
            known = field.annotation is ServiceRequest
        else:
            known = argument == "data" or (argument, field.annotation) == (parameter, str)
        if not known:
            raise _unsupported(
                f"the argument {argument!r} (only request of type ServiceRequest, data, and the"
                " parameter of the path, of type str)",
                name,
            )
        given: Any = field.kwarg_definition
        if given is not None and given.is_constrained:
            raise _unsupported(f"the constraints on the argument {argument!r}", name)
        if isinstance(given, BodyKwarg) and given.media_type != RequestEncodingType.JSON:
            raise _unsupported(f"the media_type of the argument {argument!r}", name)
    return set(parameters)


def _result(handler: HTTPRouteHandler, name: str) -> tuple[Any, Callable[[Any], bytes]]:
    """Return the type of a handler's content, and the function that encodes it."""
    returned = handler.parsed_fn_signature.return_type.annotation
    content = get_args(returned)[0] if get_origin(returned) is Response else returned
    if content is bytes:
        return content, bytes
    if content is str:
        return content, str.encode
    item = get_args(content)[0] if get_origin(content) is list else content
    if not (isinstance(item, type) and issubclass(item, Struct) and item is not Response):
        raise _unsupported(
            f"the return type {returned!r} (only a msgspec.Struct, a list of one, str, bytes, or"
            " petstore.http.response.Response of one of these)",
            name,
        )
    if handler.media_type not in ("", JSON):
        raise _unsupported("a media_type other than JSON for a struct", name)
    return content, msgspec.json.Encoder().encode


def _unsupported(what: str, where: str) -> UnsupportedOptionError:
    return UnsupportedOptionError(
        f"{where}: this service does not support {what}. Remove it, or do it in the handler, in a"
        " guard, or in petstore/http/service.py"
    )
