"""Litestar's declarations have their effect, or are refused by name at start-up."""

import asyncio
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import pytest
from litestar import Controller, Request, Router, asgi, delete, get, head, post, websocket
from litestar import Response as LitestarResponse
from litestar.config.app import AppConfig
from litestar.connection import WebSocket
from litestar.datastructures import Cookie
from litestar.di import Provide
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.params import Body, FromPath, FromQuery, JSONBody, Parameter, URLEncodedBody
from msgspec import Struct

from petstore.http.guards import service_guard
from petstore.http.request import ServiceRequest
from petstore.http.response import Response
from petstore.http.routes import SUPPORTED, Routes, UnsupportedOptionError, option_names
from petstore.http.service import Service
from petstore.http.shares import Shares
from petstore.http.state import ServiceState
from petstore.observability.storage_health import StorageHealth


class Item(Struct):
    id: int


def config(*handlers: Any, **declared: Any) -> AppConfig:
    return AppConfig(route_handlers=[*handlers], request_max_body_size=1000, **declared)


def serve(*handlers: Any, **declared: Any) -> Callable[..., tuple[int, dict[bytes, bytes], bytes]]:
    """Return a function that sends a request to a service with these handlers."""
    state = ServiceState("", b"", Shares(1, 1), StorageHealth(None), lambda: None)
    service = Service(Routes(config(*handlers, **declared)), state)

    def ask(method: str, path: str, body: bytes = b"") -> tuple[int, dict[bytes, bytes], bytes]:
        sent: list[Any] = []
        query = path.partition("?")[2].encode()
        scope = {
            "type": "http",
            "method": method,
            "raw_path": path.partition("?")[0].encode(),
            "query_string": query,
            "headers": [(b"content-type", b"application/json")],
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(service(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

    return ask


@get("/items/{item_id:str}", status_code=203)
async def get_item(item_id: FromPath[str]) -> Item:
    return Item(int(item_id))


@get("/text", media_type="text/plain")
async def get_text() -> str:
    return "text"


@delete("/text", status_code=200)
async def keep_text() -> str:
    raise MethodNotAllowedException("It stays", headers={"allow": "GET"})


@post("/items")
async def add_item(request: ServiceRequest, data: JSONBody[Item]) -> Response[list[Item]]:
    assert request.scope["query_string"] == b"a=1&a=2"
    return Response([data, data], [(b"x-own", b"1")], 202, "application/vnd.items+json")


def test_a_handler_serves_as_it_is_declared() -> None:
    ask = serve(get_item, get_text, keep_text, Router("/shop", route_handlers=[add_item]))
    status, headers, body = ask("GET", "/items/7")
    assert (status, headers[b"content-type"], body) == (203, b"application/json", b'{"id":7}')
    status, headers, body = ask("HEAD", "/items/7")
    assert (status, headers[b"content-length"], body) == (203, b"8", b"")
    status, headers, body = ask("GET", "/text")
    assert (status, headers[b"content-type"], body) == (200, b"text/plain", b"text")
    assert ask("POST", "/text")[0] == 405
    status, headers, body = ask("DELETE", "/text")
    assert (status, headers[b"allow"]) == (405, b"GET")
    assert body == b'{"code":"method_not_allowed","message":"It stays.","status":405}'
    assert ask("OPTIONS", "/items/7")[1][b"allow"] == b"GET, HEAD, OPTIONS"
    assert ask("GET", "/items/7/")[0] == ask("GET", "/items/")[0] == ask("GET", "/")[0] == 404


def test_a_handler_gets_the_request_and_returns_what_it_says() -> None:
    ask = serve(add_item)
    status, headers, body = ask("POST", "/items?a=1&a=2", b'{"id": 1}')
    assert (status, body) == (202, b'[{"id":1},{"id":1}]')
    assert headers[b"content-type"] == b"application/vnd.items+json"
    assert headers[b"x-own"] == b"1"


def test_handlers_of_one_path_may_name_its_parameter_differently() -> None:
    @delete("/items/{other:str}", status_code=200)
    async def remove(other: FromPath[str]) -> Item:
        return Item(-int(other))

    ask = serve(get_item, remove)
    assert (ask("GET", "/items/7")[2], ask("DELETE", "/items/7")[2]) == (b'{"id":7}', b'{"id":-7}')


def test_guards_of_all_layers_run_once_each_outermost_first() -> None:
    calls: list[str] = []

    def guard(name: str, *, waits: bool = False) -> Any:
        async def wait() -> None:
            calls.append(name)

        @service_guard
        def check(request: ServiceRequest, handler: Any) -> Any:
            assert (request.scope["path_params"], handler.fn.__name__) == ({"item_id": "7"}, "one")
            return wait() if waits else calls.append(name)

        return check

    class Items(Controller):
        guards = (guard("controller", waits=True),)

        @get("/items/{item_id:str}", guards=[guard("handler")])
        async def one(self, item_id: FromPath[str]) -> Item:
            return Item(int(item_id))

    router = Router("/shop", route_handlers=[Items], guards=[guard("router")])
    ask = serve(router, guards=[guard("application", waits=True)])
    assert ask("GET", "/shop/items/7")[0] == 200
    assert calls == ["application", "router", "controller", "handler"]


# What a reader of Litestar's documentation might add, as it is written there.


class Adds(ASGIMiddleware):
    async def handle(self, scope: Any, receive: Any, send: Any, next_app: Any) -> None:
        await next_app(scope, receive, send)


async def change(response: Any) -> Any:
    return response


@pytest.mark.parametrize(
    "declared",
    [
        {"middleware": [Adds()]},
        {"after_request": change},
        {"before_request": change},
        {"dependencies": {"item": Provide(change)}},
        {"exception_handlers": {ValueError: change}},
        {"response_headers": {"x-own": "1"}},
        {"response_cookies": [Cookie("a", "b")]},
        {"type_encoders": {int: str}},
        {"request_class": Request},
        {"include_in_schema": False},
        {"security": [{"other": []}]},
    ],
    ids=lambda declared: next(iter(declared)),
)
def test_an_option_that_would_have_no_effect_is_refused_on_every_layer(
    declared: dict[str, Any],
) -> None:
    (option,) = declared

    class Items(Controller):
        @get("/")
        async def one(self) -> Item:
            return Item(1)

    for name, value in declared.items():
        setattr(Items, name, value)
    handler = get("/", **declared)(get_text.fn)
    for handlers, own in (
        ([get_text], declared),
        ([Router("/", route_handlers=[get_text], **declared)], {}),
        ([Items], {}),
        ([handler], {}),
    ):
        with pytest.raises(UnsupportedOptionError, match=f"does not support {option}"):
            Routes(config(*handlers, **own))


def test_every_other_option_of_litestar_is_compared_with_its_default() -> None:
    """An option that is new in Litestar is refused until it is listed, whatever it is."""
    for field in fields(AppConfig):
        if field.name not in SUPPORTED:
            odd = config(get_text)
            setattr(odd, field.name, object())
            with pytest.raises(
                UnsupportedOptionError, match=f"support {field.name}.*Remove it, or do it in"
            ):
                Routes(odd)
    router = Router("/", route_handlers=[])
    unseen = [
        option
        for layer in (router, Controller(router), get("/")(get_text.fn))
        for option in option_names(layer) - SUPPORTED
        if not hasattr(layer, option)
    ]
    assert unseen == ["kwargs"]  # of a handler: they become its opt, which is checked


def handler(declared: Any, returns: Any = Item, **arguments: Any) -> Any:
    """Return a handler that is declared with these annotations, and is never called."""

    async def function(**_: Any) -> None: ...

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=type_)
        for name, type_ in arguments.items()
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {**arguments, "return": returns}
    return declared(function)


with warnings.catch_warnings(action="ignore"):  # Litestar warns, too

    @get("/")
    def synchronous() -> Item:
        return Item(1)


class OwnHandler(HTTPRouteHandler):
    pass


@asgi("/mounted", copy_scope=True)
async def mounted(scope: Any, receive: Any, send: Any) -> None: ...


@websocket("/socket")
async def socket(socket: WebSocket[Any, Any, Any]) -> None: ...


@pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
@pytest.mark.parametrize(
    ("message", "handlers"),
    [
        (
            "at most one parameter, at its end and of type str",
            [handler(get("/{a:int}"), a=FromPath[int])],
        ),
        (
            "at most one parameter",
            [handler(get("/{a:str}/{b:str}"), a=FromPath[str], b=FromPath[str])],
        ),
        ("the argument 'limit'", [handler(get("/"), limit=FromQuery[int])]),
        (
            "the constraints on the argument 'a'",
            [handler(get("/{a:str}"), a=Annotated[str, Parameter(max_length=3)])],
        ),
        (
            "the constraints on the argument 'data'",
            [handler(post("/"), data=Annotated[list[int], Body(min_items=3)])],
        ),
        ("the media_type of the argument 'data'", [handler(post("/"), data=URLEncodedBody[Item])]),
        ("the argument 'request'", [handler(get("/"), request=Request[Any, Any, Any])]),
        ("the return type dict", [handler(get("/"), dict[str, int])]),
        ("the return type litestar", [handler(get("/"), LitestarResponse[Item])]),
        ("a media_type other than JSON", [handler(get("/", media_type="text/plain"))]),
        ("a function that is not asynchronous", [synchronous]),
        ("HEAD is served as GET", [handler(head("/", media_type="text/plain"), None)]),
        ("the opt before_requests", [handler(get("/", before_requests=change))]),
        ("the class OwnHandler", [handler(OwnHandler("/", http_method="GET"))]),
        ("two handlers", [get_item, handler(get("/items/{name:str}"), name=FromPath[str])]),
        ("not an HTTP route", [mounted]),
        ("not an HTTP route", [socket]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_handler_that_cannot_be_served_is_refused_in_words(
    message: str, handlers: list[Any]
) -> None:
    with pytest.raises(UnsupportedOptionError, match=message):
        Routes(config(*handlers))


def test_what_litestar_would_import_in_vain_is_left_out_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = "litestar.plugins.opentelemetry"
    monkeypatch.delitem(sys.modules, plugin, raising=False)
    Routes(config(get_item))
    assert plugin not in sys.modules
    assert importlib.import_module(plugin)  # it can still be imported
