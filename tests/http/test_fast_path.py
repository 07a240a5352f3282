"""The fast path responds as Litestar's own path does, and refuses what it does not honor."""

import asyncio
import inspect
import logging
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Controller, Litestar, MediaType, Request, Response, Router, asgi, get, post
from litestar.background_tasks import BackgroundTask
from litestar.config.allowed_hosts import AllowedHostsConfig
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.config.csrf import CSRFConfig
from litestar.config.response_cache import ResponseCacheConfig
from litestar.connection import WebSocket
from litestar.datastructures import CacheControlHeader, Cookie, ETag, ResponseHeader, State
from litestar.di import Provide
from litestar.dto import DTOConfig, MsgspecDTO
from litestar.events import SimpleEventEmitter, listener
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotAuthorizedException,
    NotFoundException,
)
from litestar.handlers import HTTPRouteHandler
from litestar.logging.config import BaseLoggingConfig
from litestar.middleware import ASGIMiddleware
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Operation
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.plugins import InitPluginProtocol
from litestar.plugins.jinja import JinjaTemplateEngine
from litestar.static_files import StaticFilesConfig
from litestar.stores.memory import MemoryStore
from litestar.template import TemplateConfig
from msgspec import Struct

from petstore.config.settings import Settings
from petstore.http import app as composition
from petstore.http.api.operations import OperationsController
from petstore.http.api.pets import PETS
from petstore.http.body import StrictRequest
from petstore.http.body import read as read_body
from petstore.http.errors import ApiError, not_found
from petstore.http.fast_path import FastPath, FastResponse
from petstore.http.guards import ScopeGuard
from petstore.http.options import UnsupportedOptionError
from tests.support.applications import application, ask
from tests.support.services import in_thread

JSON = {"Content-Type": "application/json"}
PET = b'{"name": "R\xc3\xa9x", "categoryId": 7, "status": "available"}'
REQUESTS: list[tuple[str, str, bytes, dict[str, str]]] = [
    ("GET", "/v1/pets", b"", {}),
    ("POST", "/v1/pets", PET, JSON),
    ("POST", "/v1/pets", PET, JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", PET, JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", b'{"name": ""}', JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", b"{}", {"Content-Type": "text/plain"}),
    ("POST", "/v1/pets", b"n" * 70_000, JSON),
    ("GET", "/v1/pets", b"", {}),
    ("GET", "/v1/pets?limit=1&status=available", b"", {}),
    ("GET", "/v1/pets?limit=0", b"", {}),
    ("GET", "/v1/pets/1", b"", {}),
    ("HEAD", "/v1/pets/1", b"", {}),
    ("GET", "/v1/pets/99", b"", {}),
    ("GET", "/v1/pets/%31", b"", {}),
    ("GET", "/v1/pets/1", b"", {"Authorization": "Bearer wrong"}),
    ("OPTIONS", "/v1/pets", b"", {}),
    ("DELETE", "/v1/pets/1", b"", {}),
    ("GET", "/v1/nothing", b"", {}),
    ("POST", "/v1/store/orders", b'{"petId": 1}', JSON),
    ("POST", "/v1/store/orders", b'{"petId": 1}', JSON),
    ("GET", "/v1/store/orders", b"", {}),
    ("GET", "/v1/store/orders/1", b"", {}),
    ("PATCH", "/v1/store/orders/1", b'{"status": "completed"}', JSON),
    ("PATCH", "/v1/store/orders/9", b"", {}),
    ("GET", "/livez", b"", {}),
    ("GET", "/readyz", b"", {}),
    ("GET", "/docs", b"", {}),
]


def responses() -> Iterator[tuple[object, ...]]:
    """Send the requests to a fresh service; yield of each response what must be the same.

    On memory always: partitions of a Redis Cluster assign ids in another order each time.
    """
    with in_thread(backend="memory") as live:
        for method, path, body, headers in REQUESTS:
            response = live.client.request(
                method, path, content=body, headers=headers | {"X-Request-Id": "x"}
            )
            fields = sorted(header for header in response.headers.items() if header[0] != "date")
            text = response.text.partition('"placedAt"')[0]
            yield method, path, response.status_code, fields, text


def test_the_service_responds_as_it_does_on_litestars_own_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast = list(responses())
    router = composition.api_router

    def slow_router(*guards: Any) -> Router:
        slow = router(*guards)
        slow.opt["fast_path"] = False
        return slow

    monkeypatch.setattr(composition, "api_router", slow_router)
    for mine, own in zip(fast, responses(), strict=True):
        assert mine == own


def test_no_operation_of_the_interface_is_rendered_by_litestar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered = []
    original = HTTPRouteHandler.to_response

    async def to_response(self: HTTPRouteHandler, *arguments: Any, **named: Any) -> Any:
        rendered.append(self.operation_id)
        return await original(self, *arguments, **named)

    monkeypatch.setattr(HTTPRouteHandler, "to_response", to_response)
    assert {status for _, _, status, *_ in responses()} >= {200, 201, 404, 409}
    assert set(rendered) == {"livez", "readyz", "docs"}


# Every option of Litestar, one at a time, on an application with one controller.


class Item(Struct):
    id: int


class ItemDTO(MsgspecDTO[Item]):
    config = DTOConfig(rename_strategy="upper")


class Items(Controller):
    path = "/items"
    opt = {"fast_path": True}  # noqa: RUF012 - Litestar reads it

    @get("/")
    async def all_(self) -> Response[list[Item]]:
        return FastResponse([Item(1)], headers={"x-own": "1"})

    @get("/{item_id:str}")
    async def one(self, item_id: FromPath[str]) -> Item:
        if item_id == "0":
            raise not_found("Item")
        if item_id == "teapot":
            raise HTTPException("no coffee", status_code=418)
        if item_id == "value":
            raise ValueError("a bug")
        return Item(int(item_id))

    @post("/")
    async def add(self, data: JSONBody[Item], request: Request[Any, Any, Any]) -> Response[Item]:
        return Response(data, headers={"x-state": str(request.app.state.get("k"))})


ITEM_REQUESTS: list[tuple[str, str, bytes, list[tuple[bytes, bytes]]]] = [
    ("GET", "/items", b"", [(b"accept-encoding", b"gzip"), (b"origin", b"http://other.example")]),
    ("GET", "/items/1", b"", [(b"host", b"other.example")]),
    ("GET", "/items/0", b"", []),
    ("GET", "/items/teapot", b"", []),
    ("GET", "/items/value", b"", []),
    ("POST", "/items", b'{"id": 3}', [(b"content-type", b"application/json")]),
    ("POST", "/items", b"{", [(b"content-type", b"application/json")]),
    ("POST", "/items", b'{"id": 33333}', [(b"content-type", b"application/json")]),
]


def changes(response: Any) -> Any:
    response.headers["x-changed"] = "1"
    return response


async def ignores(*_: Any) -> None:
    return None


async def responds(_: Any) -> Response[Any]:
    return Response({"k": "v"}, status_code=203, media_type="application/vnd.own+json")


def refuses(*_: Any) -> None:
    raise NotAuthorizedException("refused")


class Adds(ASGIMiddleware):
    async def handle(self, scope: Any, receive: Any, send: Any, next_app: Any) -> None:
        async def add(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-middleware", b"1")]
            await send(message)

        await next_app(scope, receive, add)


class Plugin(InitPluginProtocol):
    def on_app_init(self, app_config: Any) -> Any:
        app_config.response_headers = [ResponseHeader(name="x-plugin", value="1")]
        return app_config


class OtherResponse(Response[Any]):
    def render(self, *_: Any, **__: Any) -> bytes:
        return b"other"


class OtherRequest(StrictRequest):
    """A request class of the application's own."""


class StandardLogging(BaseLoggingConfig):
    """Leaves the process's logging as it is, but logs exceptions."""

    log_exceptions = "always"
    traceback_line_limit = -1

    def configure(self) -> Any:
        return logging.getLogger

    @staticmethod
    def set_level(logger: Any, level: int) -> None: ...


@asynccontextmanager
async def lifespan(_: Litestar) -> AsyncIterator[None]:
    yield


@listener("event")
async def listen() -> None: ...


with warnings.catch_warnings(action="ignore"):  # deprecated, but still an option
    STATIC_FILES = StaticFilesConfig(path="/static", directories=["."])

LAYERED: dict[str, Any] = {  # options that Litestar has on every layer
    "after_request": changes,
    "after_response": ignores,
    "before_request": responds,
    "cache_control": CacheControlHeader(max_age=1),
    "dependencies": {"extra": Provide(ignores)},
    "dto": ItemDTO,
    "etag": ETag(value="e"),
    "exception_handlers": {ValueError: lambda *_: Response("handled")},
    "guards": [refuses],
    "include_in_schema": False,
    "middleware": [Adds()],
    "opt": {"k": 1},
    "parameters": {"extra": QueryParameter(name="extra", required=True)},
    "path": "/prefix",
    "request_class": OtherRequest,
    "request_max_body_size": 12,
    "response_class": OtherResponse,
    "response_cookies": [Cookie("c", "v")],
    "response_headers": [ResponseHeader(name="x-all", value="1")],
    "return_dto": ItemDTO,
    "security": [{"key": []}],
    "signature_namespace": {"Item": Item},
    "signature_types": [Item],
    "tags": ["t"],
    "type_decoders": [(lambda _: False, lambda *_: None)],
    "type_encoders": {Item: lambda _: "encoded"},
    "websocket_class": WebSocket,
}
APP: dict[str, Any] = LAYERED | {
    "after_exception": [ignores],
    "allowed_hosts": AllowedHostsConfig(["petstore.example"]),
    "before_send": [ignores],
    "compression_config": CompressionConfig(backend="gzip", minimum_size=1),
    "cors_config": CORSConfig(allow_origins=["http://other.example"]),
    "csrf_config": CSRFConfig(secret="s" * 32),
    "debug": True,
    "debugger_module": __import__("pdb"),
    "event_emitter_backend": SimpleEventEmitter,
    "experimental_features": [],
    "lifespan": [lifespan],
    "listeners": [listen],
    "logging_config": StandardLogging(),
    "multipart_form_part_limit": 5,
    "on_app_init": [lambda config: config],
    "on_shutdown": [ignores],
    "on_startup": [ignores],
    "openapi_config": OpenAPIConfig(title="t", version="1"),
    "pdb_on_exception": True,
    "plugins": [Plugin()],
    "response_cache_config": ResponseCacheConfig(default_expiration=1),
    "route_handlers": [Items],
    "state": State({"k": 1}),
    "static_files_config": [STATIC_FILES],
    "stores": {"s": MemoryStore()},
    "template_config": TemplateConfig(engine=JinjaTemplateEngine, directory=Path()),
}
HANDLER: dict[str, Any] = {
    name: value
    for name, value in LAYERED.items()
    if name not in ("parameters", "path", "signature_types", "websocket_class")
} | {
    "background": BackgroundTask(ignores),
    "cache": True,
    "cache_key_builder": lambda _: "key",
    "content_encoding": "base64",
    "content_media_type": "image/png",
    "deprecated": True,
    "description": "text",
    "media_type": MediaType.TEXT,
    "name": "item",
    "operation_class": Operation,
    "operation_id": "getItem",
    "raises": [HTTPException],
    "response_description": "text",
    "responses": {},
    "status_code": 202,
    "summary": "text",
}
REFUSED_AS = {"plugins": "Plugin", "static_files_config": "static files"}


def check(name: str, make: Callable[[], Litestar], prefix: str = "/prefix/items") -> None:
    """Check that an option is honored as on Litestar's own path, or refused by name.

    prefix -- what the paths begin with if the option is `path`
    """
    fast = fast_or_refused(name, make())
    for method, path, body, headers in ITEM_REQUESTS if fast else ():
        sent = path.replace("/items", prefix) if name == "path" else path
        assert ask(fast, method, sent, body, headers) == ask(make(), method, sent, body, headers)


def fast_or_refused(name: str, app: Litestar) -> FastPath | None:
    """Return the fast path of an application, or None if it refuses an option by its name."""
    try:
        return FastPath(app)
    except UnsupportedOptionError as error:
        if REFUSED_AS.get(name, name) in str(error):
            return None
        raise


def test_every_option_is_tried() -> None:
    def names(class_: Any) -> set[str]:
        return set(inspect.signature(class_.__init__).parameters) - {"self", "kwargs"}

    assert names(Litestar) == APP.keys()
    assert names(Router) - {"route_handlers"} == LAYERED.keys()
    fixed = {"path", "http_method", "sync_to_thread"}  # tried below
    assert names(HTTPRouteHandler) - fixed == HANDLER.keys()
    slots = {slot for slot in Controller.__slots__ if slot != "owner"}
    assert slots == LAYERED.keys()


@pytest.mark.parametrize("name", APP)
@pytest.mark.filterwarnings("ignore")
def test_an_option_of_the_application_is_honored_or_refused(name: str) -> None:
    check(name, lambda: application(**{"route_handlers": [Items], name: APP[name]}))


@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.filterwarnings("ignore")
def test_an_option_of_a_router_is_honored_or_refused(name: str) -> None:
    def make() -> Litestar:
        options: dict[str, Any] = {"path": "/"} | {name: LAYERED[name]}
        return application(route_handlers=[Router(route_handlers=[Items], **options)])

    check(name, make)


@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.filterwarnings("ignore")
def test_an_option_of_a_controller_is_honored_or_refused(name: str) -> None:
    def make() -> Litestar:
        class Changed(Items):
            locals()[name] = LAYERED[name]

        return application(route_handlers=[Changed])

    check(name, make, "/prefix")


@pytest.mark.parametrize("name", HANDLER)
@pytest.mark.filterwarnings("ignore")
def test_an_option_of_a_handler_is_honored_or_refused(name: str) -> None:
    def make() -> Litestar:
        options = {"opt": {}} | {name: HANDLER[name]}
        options["opt"] = {**options["opt"], "fast_path": True}

        @get("/items/{item_id:str}", **options)
        async def one(item_id: FromPath[str]) -> Item:
            return Item(int(item_id))

        return application(route_handlers=[one])

    fast = fast_or_refused(name, make())
    if fast:
        assert ask(fast, *ITEM_REQUESTS[1]) == ask(make(), *ITEM_REQUESTS[1])


def test_refused_options_are_served_on_litestars_own_path() -> None:
    options: dict[str, Any] = {"response_headers": {"x-all": "1"}, "opt": {"fast_path": False}}

    @get("/items/{item_id:str}", **options)
    async def one(item_id: FromPath[str]) -> Item:
        return Item(int(item_id))

    status, headers, _ = ask(FastPath(application(route_handlers=[one])), *ITEM_REQUESTS[1])
    assert (status, (b"x-all", b"1") in headers) == (200, True)  # type: ignore[operator]


# Which handler a request is routed to.

METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE", "PROPFIND")
SEGMENTS = st.sampled_from(
    ("v1", "pets", "store", "orders", "1", "01", "docs", "livez", "openapi.json", "", ".", "..")
) | st.text(max_size=8)


@cache
def service() -> tuple[Litestar, FastPath]:
    """Return the routes of the service, behind Litestar's router and behind the table."""
    app = application(route_handlers=[composition.api_router(), OperationsController])
    return app, FastPath(app)


def by_the_table(method: str, path: str) -> object:
    """Return the operation that a request is routed to, or the status of the error."""
    scope = {"type": "http", "method": method, "path": path}
    try:
        call: Any = service()[1](scope, None, None)  # type: ignore[arg-type] # never awaited
    except ApiError as error:
        return int(error.status)
    call.close()
    return scope["route_handler"].operation_id  # type: ignore[attr-defined]


def by_litestar(method: str, path: str) -> object:
    try:
        found = service()[0].asgi_router.handle_routing(path=path, method=method)
    except (NotFoundException, MethodNotAllowedException) as error:
        return error.status_code
    return found[1].operation_id  # type: ignore[union-attr]


@given(
    method=st.sampled_from(METHODS),
    path=st.lists(SEGMENTS, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts)),
    encoded=st.booleans(),
)
def test_the_table_routes_as_litestars_router_does(method: str, path: str, encoded: bool) -> None:
    if encoded:
        path = quote(path, safe="/")
    mine = by_the_table(method, path)
    if "//" in path or path[1:].endswith("/"):  # Litestar normalizes these; here they are others
        assert mine == 404
    else:
        assert mine == by_litestar(method, path)


def test_the_table_knows_every_route_of_litestar() -> None:
    app, table = service()
    for route in app.routes:
        path = re.sub(r"\{\w+\}", "x", route.path_format)
        methods = {*route.methods, "OPTIONS", *(("HEAD",) if "GET" in route.methods else ())}
        assert table.allow(path) == ", ".join(sorted(methods))
        for method in route.methods - {"OPTIONS"}:
            assert by_the_table(method, path) == by_litestar(method, path)


# What a handler may look like.


async def typed(item_id: FromPath[int]) -> Item:
    return Item(item_id)


async def two(item_id: FromPath[str], other_id: FromPath[str]) -> Item:
    return Item(int(item_id) + int(other_id))


async def queries(request: Request[Any, Any, Any], limit: FromQuery[int] = 1) -> Item:
    return Item(limit)


async def gives_a_dict() -> dict[str, int]:
    return {"id": 1}


def synchronous() -> Item:
    return Item(1)


@pytest.mark.parametrize(
    ("path", "function", "message"),
    [
        ("/items/{item_id:int}", typed, "of type str"),
        ("/items/{item_id:str}/parts/{other_id:str}", two, "at most one parameter"),
        ("/items", queries, "'limit'"),
        ("/items", gives_a_dict, "return type"),
        ("/items", synchronous, "not asynchronous"),
    ],
)
def test_a_handler_that_does_not_fit_is_refused_in_words(
    path: str, function: Any, message: str
) -> None:
    sync: dict[str, Any] = (
        {} if inspect.iscoroutinefunction(function) else {"sync_to_thread": False}
    )
    handler = get(path, opt={"fast_path": True}, **sync)(function)
    with pytest.raises(UnsupportedOptionError, match=message):
        FastPath(application(route_handlers=[handler]))


def test_each_guard_runs_once_and_in_order_whatever_its_kind() -> None:
    calls: list[str] = []

    async def plain(*_: Any) -> None:
        calls.append("plain")

    scoped = ScopeGuard(lambda _: calls.append("scoped"))

    @get("/items", guards=[scoped, plain, scoped], opt={"fast_path": True})
    async def handler() -> Item:
        return Item(1)

    assert ask(FastPath(application(route_handlers=[handler])), "GET", "/items", b"", [])[0] == 200
    assert calls == ["scoped", "plain", "scoped"]


def test_a_body_message_may_leave_out_what_asgi_makes_optional() -> None:
    async def read(*events: dict[str, object]) -> bytes:
        messages = iter(events)

        async def receive() -> Any:
            return {"type": "http.request"} | next(messages)

        headers = [(b"content-type", b"application/json")]
        return await read_body({"headers": headers}, receive, 100)

    assert asyncio.run(read({"more_body": True}, {"body": b"{}"})) == b"{}"


@pytest.mark.parametrize("path", ["/v1/pets", "/docs"])  # whole; in two ASGI messages
@pytest.mark.parametrize("origins", ["", "*"])
def test_a_response_that_the_server_refuses_is_an_error_with_its_request_id(
    path: str, origins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "<a\r\nset-cookie: b>"
    monkeypatch.setattr(PETS, "page", lambda *_: ([], bad))
    monkeypatch.setattr("petstore.http.api.operations._PAGE_HEADERS", {"link": bad})
    with in_thread(Settings(drain_seconds=0, cors_origins=origins)) as live:
        response = live.client.get(path, headers={"X-Request-Id": "abc"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "abc")
    assert response.json()["code"] == "internal_error"


def test_a_route_that_litestars_router_finds_differently_is_refused() -> None:
    @get("/items/{item_id:str}")
    async def one(item_id: FromPath[str]) -> Item:
        return Item(int(item_id))

    @post("/items/{other_id:str}")
    async def other(other_id: FromPath[str]) -> Item:
        return Item(int(other_id))

    FastPath(application(route_handlers=[one]))
    with pytest.raises(UnsupportedOptionError, match="POST /items/x is served by another"):
        FastPath(application(route_handlers=[one, other]))


def test_what_is_not_an_http_route_is_refused() -> None:
    @asgi("/mounted", copy_scope=True)
    async def mounted(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(UnsupportedOptionError, match="/mounted"):
        FastPath(application(route_handlers=[mounted]))


def test_an_unexpected_error_is_logged_under_its_request_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with in_thread() as live:
        monkeypatch.setattr(live.state.repository, "list_pets", fail)
        with caplog.at_level(logging.ERROR, "petstore"):
            response = live.client.get("/v1/pets", headers={"X-Request-Id": "abc"})
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "a bug" not in response.text
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.__dict__["request_id"] == "abc"
    assert record.exc_info is not None


def test_every_operation_asks_for_a_key() -> None:
    with in_thread() as live, httpx.Client(base_url=live.url) as client:
        for path in ("/v1/pets", "/v1/pets/1", "/v1/store/orders", "/v1/store/orders/1"):
            assert client.get(path).status_code == 401
