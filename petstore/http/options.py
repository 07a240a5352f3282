"""Which options of Litestar the fast path honors; every other one is refused at start-up.

An option that is new in Litestar fails tests/http/test_fast_path.py until it is classified here.
"""

import inspect
from functools import cache
from typing import Any, Final, get_origin

import msgspec
from litestar import Litestar, MediaType, Request, Response
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg
from litestar.types.empty import Empty

from petstore.http.body import StrictRequest

APP_OPTIONS: Final = (
    "after_exception",
    "allowed_hosts",
    "before_send",
    "compression_config",
    "cors_config",
    "csrf_config",
    "logging_config",
    "pdb_on_exception",
)
"""Options of the application that the fast path skips."""

LAYER_OPTIONS: Final = (
    "after_request",
    "after_response",
    "background",
    "cache",
    "cache_control",
    "cache_key_builder",
    "dependencies",
    "dto",
    "etag",
    "middleware",
    "parameters",
    "response_class",
    "response_cookies",
    "response_headers",
    "return_dto",
    "sync_to_thread",
    "type_decoders",
    "type_encoders",
)
"""Options of the application, routers, controllers and handlers that the fast path skips."""


class UnsupportedOptionError(Exception):
    """The application uses something that the fast path does not honor.

    The message names it and says what to do.
    """


def propagate(_: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Handle no exception: every error becomes a response in `ServiceMiddleware`."""
    raise error


def refuse_options(app: Litestar, handler: HTTPRouteHandler) -> None:
    """Refuse what is set on the application or on a layer around a handler, but not honored."""
    for option in APP_OPTIONS:
        if _is_set(app, option):
            raise _unsupported(handler, f"{option} of the application")
    for plugin in _plugins(app) - _plugins(_bare()):
        raise _unsupported(handler, f"the plugin {plugin.__name__} of the application")
    for layer in handler.ownership_layers:
        _refuse_layer(handler, layer)
    if handler.resolve_request_class() is not StrictRequest:
        raise _unsupported(handler, "a request_class other than StrictRequest")
    if not type(handler).__module__.startswith("litestar."):
        raise _unsupported(handler, f"the class {type(handler).__name__}")
    if handler.media_type not in ("", MediaType.JSON):
        raise _unsupported(handler, "media_type")


def _refuse_layer(handler: HTTPRouteHandler, layer: object) -> None:
    where = "" if layer is handler else f" of {type(layer).__name__}"
    for option in LAYER_OPTIONS:
        if _is_set(layer, option):
            raise _unsupported(handler, f"{option}{where}")
    handlers = getattr(layer, "exception_handlers", None) or {}
    standard = (propagate, *_bare().exception_handlers.values())
    if any(function not in standard for function in handlers.values()):
        raise _unsupported(handler, f"exception_handlers{where}")


@cache
def _bare() -> Litestar:
    """Return an application with only what Litestar adds by itself.

    That depends on what is installed: for Starlette's errors it adds an exception handler.
    """
    return Litestar(openapi_config=None, logging_config=None)


def _plugins(app: Litestar) -> set[type]:
    return {type(plugin) for plugin in app.plugins}


def _is_set(layer: object, option: str) -> bool:
    value = getattr(layer, option, None)
    return value is not Empty and bool(value)


def refuse_signature(handler: HTTPRouteHandler, parameter: str) -> set[str]:
    """Return the names of the arguments; refuse those that the fast path cannot supply."""
    if not inspect.iscoroutinefunction(handler.fn):
        raise _unsupported(handler, "a function that is not asynchronous")
    signature = handler.parsed_fn_signature
    for name, field in signature.parameters.items():
        taken = name in ("request", "scope", "data") or (name, field.annotation) == (parameter, str)
        if not taken:
            what = f"the argument {name!r} (only request, scope, data and a parameter of the path,"
            raise _unsupported(handler, f"{what} of type str)")
        given: Any = field.kwarg_definition
        if given is not None and given.is_constrained:
            raise _unsupported(handler, f"the constraints on the argument {name!r}")
        if isinstance(given, BodyKwarg) and given.media_type != RequestEncodingType.JSON:
            raise _unsupported(handler, f"the media_type of the argument {name!r}")
    if returned_struct(handler) == () and not signature.return_type.is_subclass_of(Response):
        what = f"the return type {signature.return_type.raw!r} (only a msgspec.Struct, a Response)"
        raise _unsupported(handler, what)
    return set(signature.parameters)


def returned_struct(handler: HTTPRouteHandler) -> Any:
    """Return the struct that a handler returns by its annotation, or ()."""
    result = handler.parsed_fn_signature.return_type.annotation
    result = get_origin(result) or result
    return result if isinstance(result, type) and issubclass(result, msgspec.Struct) else ()


def _unsupported(handler: HTTPRouteHandler, what: str) -> UnsupportedOptionError:
    name = handler.operation_id or handler.handler_name
    return UnsupportedOptionError(
        f"the handler {name}: the fast path does not honor {what}. Remove it or set it to None, do"
        " it in the handler or in ServiceMiddleware, or serve the handler in Litestar's own way:"
        " opt={'fast_path': False}"
    )
