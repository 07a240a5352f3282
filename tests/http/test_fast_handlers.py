"""Whatever a handler takes and returns: the same response on both paths, or refused in words."""

import datetime as dt
from pathlib import Path
from typing import Annotated, Any

import pytest
from litestar import Litestar, MediaType, Request, Response, get, head, post, route
from litestar.background_tasks import BackgroundTask
from litestar.handlers import HTTPRouteHandler
from litestar.params import Body, FromPath, JSONBody, Parameter, URLEncodedBody
from litestar.plugins.jinja import JinjaTemplateEngine
from litestar.response import File, Redirect, ServerSentEvent, Stream, Template
from litestar.template import TemplateConfig
from litestar.types import Scope
from msgspec import Struct

from petstore.http.fast_path import FastPath, FastResponse
from petstore.http.guards import ScopeGuard
from petstore.http.options import UnsupportedOptionError
from tests.support.applications import application, ask

FAST: dict[str, Any] = {"opt": {"fast_path": True}}


class Item(Struct):
    id: int


class Odd(Struct):
    """A struct with fields that only Litestar can encode."""

    path: Path
    day: dt.date


def changed(**attributes: Any) -> FastResponse[Any]:
    """Return a response on which more was set after it was made."""
    response = FastResponse[Any](Item(1))
    for name, value in attributes.items():
        setattr(response, name, value)
    return response


def with_cookie() -> FastResponse[Any]:
    response = FastResponse[Any](Item(1))
    response.set_cookie("c", "v")
    return response


def render(**options: Any) -> Any:
    return FastResponse(Item(1), **options)


done: list[str] = []

RETURNED: dict[str, tuple[Any, Any]] = {  # what a handler returns by its annotation, and does
    "a struct": (Item, lambda: Item(1)),
    "a struct with odd fields": (Odd, lambda: Odd(Path("/p"), dt.date(2026, 1, 2))),
    "another type than it says": (Item, lambda: "text"),
    "a struct instead of a response": (Response[Item], lambda: Item(1)),
    "a response instead of a struct": (Item, lambda: Response(Item(1), status_code=203)),
    "nothing": (Item, lambda: None),
    "a fast response": (Response[Item], lambda: render(headers={"X-Own": "\xe9"}, status_code=203)),
    "a fast text": (Response[str], lambda: FastResponse("text")),
    "fast bytes": (Response[bytes], lambda: FastResponse(b"{}")),
    "an odd fast response": (Response[Odd], lambda: FastResponse(Odd(Path(), dt.date.max))),
    "fast 204": (Response[None], lambda: FastResponse(None, status_code=204)),
    "fast 304": (Response[None], lambda: FastResponse(None, status_code=304)),
    "a content type": (Response[Item], lambda: render(headers={"Content-Type": "application/a"})),
    "a media type": (Response[Item], lambda: changed(media_type="application/problem+json")),
    "a background task": (
        Response[Item],
        lambda: changed(background=BackgroundTask(done.append, "background")),
    ),
    "a cookie": (Response[Item], with_cookie),
    "a text": (Response[str], lambda: Response("text", media_type=MediaType.TEXT)),
    "a redirect": (Redirect, lambda: Redirect("/other")),
    "a stream": (Stream, lambda: Stream(iter([b"a", b"b"]), media_type="text/csv")),
    "events": (ServerSentEvent, lambda: ServerSentEvent("event")),
    "a file": (File, lambda: File(__file__, filename="name.py")),
    "a template": (Template, lambda: Template(template_str="<b>{{ 1 + 1 }}</b>")),
}


@pytest.mark.parametrize("what", RETURNED)
@pytest.mark.filterwarnings("ignore")
def test_a_handler_may_return(what: str) -> None:
    annotation, make = RETURNED[what]

    def app() -> Litestar:
        async def handler() -> Any:
            return make()

        handler.__annotations__["return"] = annotation
        templates = TemplateConfig(engine=JinjaTemplateEngine, directory=Path())
        route_handlers = [get("/items", **FAST)(handler)]
        return application(route_handlers=route_handlers, template_config=templates)

    done.clear()
    fast = ask(FastPath(app()), "GET", "/items", b"", [])
    seen = list(done)
    assert fast == ask(app(), "GET", "/items", b"", [])
    assert seen + seen == done  # both did the same


@pytest.mark.parametrize(
    "result", [Item(2), {"k": 1}, "text", Response("r", status_code=203), None]
)
@pytest.mark.parametrize("annotation", [Item, Response[Item]])
def test_a_function_before_the_request_may_return(annotation: Any, result: object) -> None:
    async def before(_: Any) -> Any:
        return result

    def app() -> Litestar:
        async def handler() -> Any:
            return FastResponse(Item(1))

        handler.__annotations__["return"] = annotation
        return application(route_handlers=[get("/items", before_request=before, **FAST)(handler)])

    fast = ask(FastPath(app()), "GET", "/items", b"", [])
    assert fast == ask(app(), "GET", "/items", b"", [])


async def takes_a_request(request: Request[Any, Any, Any], data: JSONBody[Item]) -> Item:
    request.state.seen = data.id
    return Item(request.state.seen + len(request.headers))


async def takes_a_scope(*, scope: Scope, data: JSONBody[Item | None] = None) -> Item:
    return Item(len(scope["path"]) + bool(data))


async def takes_a_list(data: JSONBody[list[Item]]) -> Item:
    return Item(len(data))


@pytest.mark.parametrize("function", [takes_a_request, takes_a_scope, takes_a_list])
@pytest.mark.parametrize("body", [b'{"id": 3}', b'[{"id": 3}]', b"null", b"", b'{"id": "3"}'])
@pytest.mark.parametrize("limit", [None, 0, 9, 1000])
def test_a_handler_may_take(function: Any, body: bytes, limit: int | None) -> None:
    def app() -> Litestar:
        handler = post("/items", request_max_body_size=limit, **FAST)(function)
        return application(route_handlers=[handler])

    sent = "POST", "/items", body, [(b"content-type", b"application/json")]
    fast = ask(FastPath(app()), *sent)
    assert fast == ask(app(), *sent)
    assert fast[1] != 500


async def constrained(item_id: Annotated[str, Parameter(max_length=3)]) -> Item:
    return Item(len(item_id))


async def form(data: URLEncodedBody[Item]) -> Item:
    return data


async def long_list(data: Annotated[list[int], Body(min_items=3)]) -> Item:
    return Item(len(data))


async def cookies(cookies: dict[str, str]) -> Item:
    return Item(len(cookies))


async def converted(item_id: FromPath[int]) -> Item:
    return Item(item_id)


class OwnHandler(HTTPRouteHandler):
    """A handler class of somebody's own, which may override anything."""


class PlainRequest(Request[Any, Any, Any]):
    """Litestar's request, whose `json` does not convert the body."""


async def simple() -> Item:
    return Item(1)


async def nothing() -> None:
    return None


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (get("/items/{item_id:str}", **FAST)(constrained), "constraints on the argument 'item_id'"),
        (get("/items/{item_id:str}", **FAST)(converted), "argument 'item_id'.*of type str"),
        (post("/items", **FAST)(form), "media_type of the argument 'data'"),
        (post("/items", **FAST)(long_list), "constraints on the argument 'data'"),
        (get("/items", **FAST)(cookies), "argument 'cookies'"),
        (get("/items", request_class=PlainRequest, **FAST)(simple), "request_class"),
        (OwnHandler("/items", http_method="GET", **FAST)(simple), "OwnHandler"),
        (head("/items", **FAST)(nothing), "HEAD /items: ServiceMiddleware serves HEAD"),
        (route("/items", http_method=["OPTIONS"], status_code=200)(simple), "OPTIONS /items"),
        (route("/items", http_method=["GET", "HEAD"], status_code=200)(simple), "HEAD /items"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_the_fast_path_does_not_honor_is_refused(
    handler: HTTPRouteHandler, message: str
) -> None:
    with pytest.raises(UnsupportedOptionError, match=message):
        FastPath(application(route_handlers=[handler]))


def test_a_guard_that_overrides_its_call_is_called() -> None:
    calls: list[str] = []

    class Louder(ScopeGuard):
        async def __call__(self, *arguments: Any) -> None:
            calls.append("loud")
            await super().__call__(*arguments)

    guard = Louder(lambda _: calls.append("checked"))
    handler = get("/items", guards=[guard], **FAST)(simple)
    assert ask(FastPath(application(route_handlers=[handler])), "GET", "/items", b"", [])[0] == 200
    assert calls == ["loud", "checked"]
