"""What responses of this service go through: common headers are added, the status is kept.

A whole response can be given in one call. It then reaches the server in one call, too, unless
a layer in between has replaced `send`; otherwise it becomes the two ASGI messages.
"""

from typing import Any, Final

from litestar.types import Message, Send

from petstore.http.deprecation import deprecation_headers
from petstore.http.headers import API_HEADERS, API_PREFIX, NO_SNIFF, Header
from petstore.http.limits import release
from petstore.http.state import ServiceState

EXCHANGE: Final = "petstore.exchange"
"""The key in ``scope["extensions"]`` under which the server offers to take whole responses."""

_CLOSE: Final = (b"connection", b"close")


class ResponseWriter:
    """Sends the response to one request. It can be called as an ASGI `send`.

    outer -- the scope of the request, as the layers outside see it
    scope -- the same as the handler sees it: a HEAD is a GET there
    send -- what the server, or the next layer outside, has given

    status -- the status of the response; 0 before there is one
    """

    __slots__ = ("_exchange", "_head", "_outer", "_scope", "_send", "_state", "status")

    def __init__(self, outer: Any, scope: Any, send: Send, state: ServiceState) -> None:
        self._outer = outer
        self._scope = scope
        self._send = send
        self._state = state
        self._head = outer["method"] == "HEAD"
        self.status = 0
        exchange = scope.get("extensions", {}).get(EXCHANGE)
        self._exchange = exchange if exchange is not None and exchange.send is send else None

    async def __call__(self, message: Message) -> None:
        """Pass on an ASGI message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._complete([*message["headers"]])}
        elif self._head:
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def respond(self, status: int, headers: list[Header], body: bytes) -> None:
        """Send a whole response.

        headers -- without ``Content-Length``, which is added; the list is changed
        """
        self.status = status
        headers = self._complete(headers)
        if self._exchange is not None:
            await self._exchange.respond(status, headers, body)
            return
        if status != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        body = b"" if self._head else body
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _complete(self, headers: list[Header]) -> list[Header]:
        """Add the headers that every response carries; release the slot of the request."""
        scope = self._scope
        release(scope)
        if scope is not self._outer:
            self._outer["path_template"] = scope.get("path_template")
        headers += ((b"x-request-id", scope["request_id"]), NO_SNIFF)
        if scope["path"].startswith(API_PREFIX):
            headers += API_HEADERS
        if "rate_limit" in scope:
            headers += scope["rate_limit"]
        handler = scope.get("route_handler")
        if handler is not None and (deprecation := handler.opt.get("deprecation")) is not None:
            headers += deprecation_headers(deprecation, self._state.root_path)
        if self._state.draining:
            headers.append(_CLOSE)
        return headers
