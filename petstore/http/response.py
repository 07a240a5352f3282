"""What every response passes through: common headers are added, the status is recorded.

A handler's whole response comes in one call. It reaches the server in one call, too, unless a
layer in between has replaced `send`; then it becomes the two ASGI messages.
"""

from typing import Any, Final

from litestar.types import Message, Send

from petstore.http.deprecation import deprecation_headers
from petstore.http.headers import API_HEADERS, API_PREFIX, JSON_CONTENT, NO_SNIFF, Header
from petstore.http.limits import release
from petstore.http.state import ServiceState

EXCHANGE: Final = "petstore.exchange"
"""The key in ``scope["extensions"]`` under which the server offers to take whole responses."""

_CLOSE: Final = (b"connection", b"close")


class CommonHeaders:
    """The headers that every response of one handler carries.

    plain -- whatever its content
    json -- with a JSON body
    encoded -- the latter as the server writes them; empty until it has
    """

    def __init__(self, state: ServiceState, handler: Any, *, api: bool) -> None:
        self.plain: list[Header] = [NO_SNIFF, *(API_HEADERS if api else ())]
        if handler is not None and (deprecation := handler.opt.get("deprecation")) is not None:
            self.plain += deprecation_headers(deprecation, state.root_path)
        self.json = [JSON_CONTENT, *self.plain]
        self.encoded = b""


class ResponseWriter:
    """Sends the response to one request. It can be called as an ASGI `send`.

    outer -- the scope of the request, as the layers outside see it
    scope -- the scope as the handler sees it, where a HEAD is a GET
    send -- that of the server, or of the next layer outside
    common -- the common headers so far, by handler; the writers of one service share them

    status -- the status of the response; 0 before there is one
    held -- status, headers and body of a whole response that waits for `flush`
    """

    __slots__ = (
        "_common",
        "_exchange",
        "_head",
        "_outer",
        "_scope",
        "_send",
        "_state",
        "held",
        "status",
    )

    def __init__(
        self,
        outer: Any,
        scope: Any,
        send: Send,
        state: ServiceState,
        common: dict[tuple[Any, bool], CommonHeaders],
    ) -> None:
        self._outer = outer
        self._scope = scope
        self._send = send
        self._state = state
        self._common = common
        self._head = outer["method"] == "HEAD"
        self.held: tuple[int, list[Header], bytes] | None = None
        self.status = 0
        exchange = scope["extensions"].get(EXCHANGE) if "extensions" in scope else None
        self._exchange = exchange if exchange is not None and exchange.send is send else None

    async def __call__(self, message: Message) -> None:
        """Pass on an ASGI message."""
        if message["type"] == "http.response.start":
            headers = [*message["headers"], *self._start().plain]
            await self._send({**message, "headers": self._complete(headers)})
            self.status = message["status"]  # not before: the server may refuse a header
            return
        if self._head:
            message = {**message, "body": b""}  # type: ignore[assignment] # of the same type
        await self._send(message)

    def respond(self, status: int, headers: list[Header], body: bytes) -> None:
        """Respond with JSON, or with a 204 without a body.

        If the server takes whole responses, it is sent now; otherwise `flush` sends it.

        headers -- without ``Content-Type`` and ``Content-Length``, which are added; the list is
            changed
        """
        common = self._start()
        self._complete(headers)
        if self._exchange is not None and status != 204:
            if not common.encoded:
                common.encoded = self._exchange.encode(common.json)
            self._exchange.respond(status, headers, body, common.encoded)
            self.status = status
        elif status == 204:
            self.held = (status, [*headers, *common.plain], b"")
        else:
            headers.append((b"content-length", b"%d" % len(body)))
            self.held = (status, [*common.json, *headers], b"" if self._head else body)

    async def flush(self) -> None:
        """Send what the server did not take as a whole, in the two ASGI messages."""
        if self.held is not None:
            (status, headers, body), self.held = self.held, None
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            self.status = status
            await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _start(self) -> CommonHeaders:
        """Release the slot of the request; return the headers that its responses have in common."""
        scope = self._scope
        release(scope)
        if scope is not self._outer:
            self._outer["path_template"] = scope.get("path_template")
        key = scope.get("route_handler"), scope["path"].startswith(API_PREFIX)
        common = self._common.get(key)
        if common is None:
            common = self._common[key] = CommonHeaders(self._state, key[0], api=key[1])
        return common

    def _complete(self, headers: list[Header]) -> list[Header]:
        """Add the headers that differ from request to request."""
        headers.append((b"x-request-id", self._scope["request_id"]))
        if "rate_limit" in self._scope:
            headers += self._scope["rate_limit"]
        if self._state.draining:
            headers.append(_CLOSE)
        return headers
