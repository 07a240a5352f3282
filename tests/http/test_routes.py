"""Litestar's declarations have their effect."""

import asyncio
import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
from litestar import Controller, Router, delete, get, post
from litestar.config.app import AppConfig
from litestar.params import FromPath, JSONBody
from msgspec import Struct

from petstore.http.errors import ApiError, ErrorCode
from petstore.http.request import Response, ServiceRequest, ServiceState
from petstore.http.routes import Routes
from petstore.http.service import Service
from petstore.http.shares import Shares
from petstore.observability.storage_health import StorageHealth


class Item(Struct):
    id: int


def config(*handlers: Any, **declared: Any) -> AppConfig:
    return AppConfig(route_handlers=[*handlers], request_max_body_size=1000, **declared)


def serve(*handlers: Any, **declared: Any) -> Callable[..., tuple[int, dict[bytes, bytes], bytes]]:
    """Return a function that sends a request to a service with these handlers."""
    state = ServiceState("", b"", Shares(1, 1), StorageHealth(None))
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
    raise ApiError(ErrorCode.METHOD_NOT_ALLOWED, "It stays.", {"allow": "GET"})


@post("/items")
async def add_item(request: ServiceRequest, data: JSONBody[Item]) -> Response[list[Item]]:
    assert request.scope["query_string"] == b"a=1&a=2"
    return Response([data, data], [(b"x-own", b"1")], 202)


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


def test_what_litestar_would_import_in_vain_is_left_out_of_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = "litestar.plugins.opentelemetry"
    monkeypatch.delitem(sys.modules, plugin, raising=False)
    Routes(config(get_item))
    assert plugin not in sys.modules
    assert importlib.import_module(plugin)  # it can still be imported
