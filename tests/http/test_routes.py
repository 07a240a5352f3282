"""Litestar's declarations have their effect, or are refused by name at start-up."""

import asyncio
import importlib
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import pytest
from litestar import Controller, Request, Router, asgi, delete, get, head, post, websocket
from litestar import Response as LitestarResponse
from litestar.config.app import AppConfig
from litestar.connection import WebSocket
from litestar.datastructures import Cookie, State
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
from petstore.http.state import ServiceState


class Item(Struct):
    id: int


def config(*handlers: Any, **declared: Any) -> AppConfig:
    return AppConfig(route_handlers=[*handlers], request_max_body_size=1000, **declared)


def serve(*handlers: Any, **declared: Any) -> Callable[..., tuple[int, dict[bytes, bytes], bytes]]:
    """Return a function that sends a request to a service with these handlers."""
    service = Service(Routes(config(*handlers, **declared)), ServiceState())

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
    assert await request.body() == b'{"id": 1}'  # what Litestar offers works, too
    assert request.app.state.name == "shop"
    assert request.query_params.dict() == {"a": ["1", "2"]}
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


def test_a_handler_gets_litestars_request_and_returns_what_it_says() -> None:
    ask = serve(add_item, state=State({"name": "shop"}))
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
            assert (request.path_params, handler.fn.__name__) == ({"item_id": "7"}, "one")
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


@get("/{item_id:int}")
async def typed(item_id: FromPath[int]) -> Item:
    return Item(item_id)


@get("/{item_id:str}/{other:str}")
async def two(item_id: FromPath[str], other: FromPath[str]) -> Item:
    return Item(int(item_id + other))


@get("/")
async def queries(limit: FromQuery[int] = 1) -> Item:
    return Item(limit)


@get("/{item_id:str}")
async def constrained(item_id: Annotated[str, Parameter(max_length=3)]) -> Item:
    return Item(int(item_id))


@post("/")
async def long_list(data: Annotated[list[int], Body(min_items=3)]) -> Item:
    return Item(len(data))


@post("/")
async def form(data: URLEncodedBody[Item]) -> Item:
    return data


@get("/")
async def takes_litestars(request: Request[Any, Any, Any]) -> Item:
    return Item(len(request.headers))


@get("/")
async def gives_a_dict() -> dict[str, int]:
    return {}


@get("/")
async def gives_litestars() -> LitestarResponse[Item]:
    return LitestarResponse(Item(1))


@get("/", media_type="text/plain")
async def gives_text() -> Item:
    return Item(1)


@get("/", sync_to_thread=False)
def synchronous() -> Item:
    return Item(1)


@head("/", media_type="text/plain")
async def own_head() -> None: ...


@get("/", before_requests=change)
async def misspelled() -> Item:
    return Item(1)


class OwnHandler(HTTPRouteHandler):
    pass


@OwnHandler("/", http_method="GET")
async def own_class() -> Item:
    return Item(1)


@get("/items/{name:str}")
async def again(name: FromPath[str]) -> Item:
    return Item(int(name))


@asgi("/mounted", copy_scope=True)
async def mounted(scope: Any, receive: Any, send: Any) -> None: ...


@websocket("/socket")
async def socket(socket: WebSocket[Any, Any, Any]) -> None: ...


@pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        ([typed], "at most one parameter, at its end and of type str"),
        ([two], "at most one parameter"),
        ([queries], "the argument 'limit'"),
        ([constrained], "the constraints on the argument 'item_id'"),
        ([long_list], "the constraints on the argument 'data'"),
        ([form], "the media_type of the argument 'data'"),
        ([takes_litestars], "the argument 'request'"),
        ([gives_a_dict], "the return type dict"),
        ([gives_litestars], "the return type litestar"),
        ([gives_text], "a media_type other than JSON"),
        ([synchronous], "sync"),
        ([own_head], "HEAD is served as GET"),
        ([misspelled], "the opt before_requests"),
        ([own_class], "the class OwnHandler"),
        ([get_item, again], "two handlers"),
        ([mounted], "not an HTTP route"),
        ([socket], "not an HTTP route"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_handler_that_cannot_be_served_is_refused_in_words(
    handlers: list[Any], message: str
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
