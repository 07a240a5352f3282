"""Cross-origin requests: which pages of other origins a browser lets call the service.

The CORS protocol of the Fetch standard. A preflight is an OPTIONS request: the edge has answered
which methods the path takes, and this layer says it in the header fields that browsers read.
"""

from typing import Any, Final

from litestar.types import ASGIApp, Message, Receive, Send

from petstore.headers import Field

ALLOWED: Final = (
    b"Authorization, Content-Type, Idempotency-Key, X-Request-Id, traceparent, tracestate"
)
"""Which header fields a page may send."""

EXPOSED: Final = (
    b"Link, Location, Deprecation, Sunset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id,"
    b" Idempotency-Replayed"
)
"""Which header fields of an answer a page may read, beside the few that it always may."""

_MAX_AGE: Final = b"7200"  # seconds that a preflight's answer holds; browsers take no more


class Cors:
    """Wraps the application where other origins may call it.

    origins -- as browsers send them, for instance ``https://shop.example``; ``*`` is any
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._any = "*" in origins
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Add to the answer what lets the page that asked read it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def permit(message: Message) -> None:
            if message["type"] == "http.response.start":
                allow = next((v for name, v in message["headers"] if name == b"allow"), None)
                preflight = scope["method"] == "OPTIONS" and message["status"] == 204
                added = self._fields(scope["headers"], allow if preflight else None)
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, permit)

    def _fields(self, headers: list[Field], methods: bytes | None) -> list[Field]:
        """Return the fields for a request with these headers.

        methods -- what the path takes, if the request may be a preflight
        """
        sent = dict(headers)
        origin = sent.get(b"origin")
        fields = [] if self._any else [(b"vary", b"origin")]  # RFC 9110, section 12.5.5
        if origin is None or not (self._any or origin in self._origins):
            return fields
        fields.append((b"access-control-allow-origin", b"*" if self._any else origin))
        if methods is not None and b"access-control-request-method" in sent:
            fields += [
                (b"access-control-allow-methods", methods),
                (b"access-control-allow-headers", ALLOWED),
                (b"access-control-max-age", _MAX_AGE),
            ]
        else:
            fields.append((b"access-control-expose-headers", EXPOSED))
        return fields
