"""The one table of routes: every handler of the application, compiled from its declarations.

Litestar's declarations say what there is: controllers, guards, paths, types of bodies and results.
At start-up each handler becomes an `Operation`, by which `petstore.http.service` serves every
request; Litestar's own dispatch is not used. So a declaration that is not compiled has no effect:
tests/http/test_declarations.py finds it. docs/decisions/0033 says why, and has the measurements.
"""

import sys
import warnings
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, get_args, get_origin

import msgspec
from litestar import Litestar
from litestar.config.app import AppConfig
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from msgspec import Struct

from petstore.http.headers import JSON, Deprecation, FixedHeaders, fixed_headers
from petstore.http.pagination import Collection
from petstore.http.request import Response

API_PREFIX: Final = "/v1"
"""The prefix of all paths of the interface."""

_ENCODE: Final[dict[Any, Callable[[Any], bytes]]] = {bytes: bytes, str: str.encode}
"""How content that is not JSON is encoded."""


Guard = Callable[[Any, Any], Awaitable[None] | None]
"""Called with the request and the handler; raises to refuse. Litestar's type names its request."""


class Texts(Struct, frozen=True):
    """What a handler's `opt` tells the OpenAPI document, and the headers of the responses.

    errors -- the statuses of its errors, beside those of every operation
    collection -- whose pages it returns
    creates -- whether its response has a ``Location``, and it accepts an ``Idempotency-Key``
    cacheable -- whether its responses, except errors, have headers of its own instead of
        ``Content-Type`` and `DEFAULT_HEADERS`
    """

    errors: tuple[int, ...] = ()
    collection: Collection[Any] | None = None
    creates: bool = False
    deprecation: Deprecation | None = None
    experimental: bool = False
    cacheable: bool = False


class Operation(Struct, frozen=True, eq=False):
    """One handler, compiled.

    path -- as it is declared: with the name of its parameter in braces
    scope -- what a request that is routed here has in its ASGI scope
    guards -- outermost first; each is called with the request and the handler
    function -- called with those of these arguments that it takes, by name: `request`, the
        parameter of the path, `data`
    takes_request, parameter, body -- whether it takes the request; the parameter's name, or "";
        the type of `data`, or None
    max_body_bytes -- the maximum length of a body
    content -- the type of what it returns
    encode -- returns that as bytes
    fixed, fixed_error -- the headers of its responses, and those of its errors
    """

    id: str
    path: str
    handler: HTTPRouteHandler
    scope: dict[str, Any]
    guards: tuple[Guard, ...]
    function: Callable[..., Awaitable[Any]]
    takes_request: bool
    parameter: str
    body: Any
    max_body_bytes: int
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
    """

    def __init__(self, config: AppConfig, root_path: str = "") -> None:
        with _left_out("litestar.plugins.opentelemetry"), warnings.catch_warnings():
            # Litestar would pass a request of its own; here it passes none.
            warnings.filterwarnings("ignore", r".*Reserved kwarg 'request'")
            self.app: Final = Litestar.from_config(config)
        self.operations: Final[list[Operation]] = []
        self._fixed: dict[str, dict[str, Operation]] = {}
        self._prefixed: dict[str, dict[str, Operation]] = {}
        for route in self.app.routes:
            if not isinstance(route, HTTPRoute):
                continue
            parameter = next(iter(route.path_parameters), "")
            table, prefix = self._fixed, route.path
            if parameter:  # which is at its end
                table, prefix = self._prefixed, route.path_format.rpartition("/")[0]
            methods = table.setdefault(prefix, {})
            for handler in route.route_handlers:
                if handler.fn.__module__ == HTTPRoute.__module__:
                    continue  # made by Litestar for OPTIONS
                operation = _compile(route, handler, parameter, root_path)
                self.operations.append(operation)
                methods |= dict.fromkeys(handler.http_methods, operation)
                if "GET" in handler.http_methods:
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


def _compile(
    route: HTTPRoute, handler: HTTPRouteHandler, parameter: str, root_path: str
) -> Operation:
    name = str(handler.operation_id or handler.handler_name)
    texts = Texts(**handler.opt)
    taken = handler.parsed_fn_signature.parameters
    data = handler.parsed_data_field
    returned = handler.parsed_fn_signature.return_type.annotation
    content = get_args(returned)[0] if get_origin(returned) is Response else returned
    media_type = handler.media_type or JSON
    media_type = media_type.value if isinstance(media_type, Enum) else media_type
    fixed, fixed_error = (
        fixed_headers(type_, root_path, texts.deprecation, cacheable=not type_)
        for type_ in ("" if texts.cacheable else media_type, JSON)
    )
    return Operation(
        id=name,
        path=route.path_format,
        handler=handler,
        scope={"route_handler": handler, "path_params": {}, "path_template": route.path_format},
        guards=tuple(guard for layer in handler.ownership_layers for guard in layer.guards or ()),
        function=handler.fn,
        takes_request="request" in taken,
        parameter=parameter if parameter in taken else "",
        body=None if data is None else data.annotation,
        max_body_bytes=handler.resolve_request_max_body_size() or sys.maxsize,
        content=content,
        encode=_ENCODE.get(content) or msgspec.json.Encoder().encode,
        status=handler.status_code,
        fixed=fixed,
        fixed_error=fixed_error,
        texts=texts,
    )
