"""Where the service steps outside Litestar's defaults for speed; nowhere else does it.

Each step says how many microseconds of CPU it saves of reading one animal: without it in process,
best of rounds; with all of them 8.8. tests/test_lean.py shows that they behave as the defaults do.
"""

from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from litestar import HttpMethod, Litestar, Request, Response
from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from petstore.contract import Order, Pet

Content = TypeVar("Content")

_encode: Final = msgspec.json.Encoder().encode
_ITEMS: Final = (Pet, Order)
_JSON: Final = (b"content-type", b"application/json")


class Answer:
    """A whole JSON answer, head and body.

    headers -- further header fields, names in lower case
    content -- the body, encoded
    """

    __slots__ = ("_content", "_head")

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        fields += (_JSON, (b"content-length", b"%d" % len(content)))
        self._head: Any = {"type": "http.response.start", "status": status, "headers": fields}
        self._content = content

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it."""
        await send(self._head)
        await send({"type": "http.response.body", "body": self._content, "more_body": False})


class Reply(Response[Content]):
    """A response of content, status and headers alone: 2. Litestar's looks at what else may be."""

    def __init__(
        self, content: Content, *, status_code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.content = content
        self.status_code: int = status_code
        self.headers = headers or {}


class Lean(HTTPRouteHandler):
    """A route handler that costs less."""

    def on_registration(self, app: Litestar) -> None:
        """Take arguments as they were extracted: 1.0.

        Litestar converts them once more. Here all are text of the path, the request itself, or a
        body that `petstore.api.body` has decoded.
        """
        super().on_registration(app)
        assert self.parsed_fn_signature.parameters.keys() <= _ARGUMENTS  # noqa: S101 - at start-up
        self.signature_model.parse_values_from_connection_kwargs = _as_extracted  # type: ignore[method-assign] # replaced on purpose

    async def authorize_connection(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        """Ask the guards: 5.7. Litestar makes a copy of the handler for each."""
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc] # all of ours are async

    async def to_response(
        self, app: Litestar, data: Any, request: Request[Any, Any, Any]
    ) -> ASGIApp:
        """Encode animals and orders at once: 6.6. Litestar builds and configures a response."""
        if isinstance(data, _ITEMS):
            return Answer(self.status_code, {}, _encode(data))
        if isinstance(data, Reply):
            return Answer(data.status_code, data.headers, _encode(data.content))
        return await super().to_response(app, data, request)


get: Final = partial(Lean, http_method=HttpMethod.GET)
post: Final = partial(Lean, http_method=HttpMethod.POST)
patch: Final = partial(Lean, http_method=HttpMethod.PATCH)

_ARGUMENTS: Final = {"self", "request", "data", "pet_id", "order_id"}


def _as_extracted(connection: object, kwargs: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - Litestar's
    return kwargs


def route(app: Litestar, scope: Any) -> ASGIApp:
    """Return what answers a request, found by the application's router, or raise 404 or 405: 3.2.

    An error saves 9 to 12: the edge answers it, without Litestar's layer for exceptions. What that
    layer needs is not prepared, and paths (the edge) and Host (the protocol) are checked before.

    scope -- the ASGI scope; what handlers and guards look for in it is put there
    """
    found = app.asgi_router.handle_routing(path=scope["path"], method=scope["method"])
    answer, scope["route_handler"], _, scope["path_params"], scope["path_template"] = found
    scope["app"] = scope["litestar_app"] = app
    return answer
