"""A request as guards and handlers get it."""

from collections.abc import Awaitable
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.types import Receive, Send

from petstore.http.body import check_whole, read
from petstore.http.headers import Header
from petstore.http.shares import SMALL_BODY_BYTES, Share
from petstore.http.state import ServiceState


class LateSlot:
    """A slot of Litestar's own part of a request, which is made when something asks for it.

    Not `__getattr__`: with that, Python specializes no access to any attribute of a request.
    """

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, request: "ServiceRequest", owner: object) -> Any:
        """Return the value of the slot."""
        try:
            return self._slot.__get__(request, owner)
        except AttributeError:
            super(ServiceRequest, request).__init__(request.scope, request.receive, request.send)
            return self._slot.__get__(request, owner)

    def __set__(self, request: "ServiceRequest", value: object) -> None:
        """Set the value of the slot."""
        self._slot.__set__(request, value)


class ServiceRequest(Request[Any, str, State]):
    """Litestar's request, with what this service adds to it.

    service -- the state of the service
    slot -- where the request holds a slot; None before it has one, and once it was released
    page_bytes -- how large the page may be that is being fetched for it
    limit_headers -- say in the response what the client has left of its rate limit

    `auth`, a property of Litestar, is the name of the client.
    """

    __slots__ = ("_content", "limit_headers", "page_bytes", "service", "slot")

    def __init__(self, scope: Any, receive: Receive, send: Send, service: ServiceState) -> None:
        # Litestar's own part is made when something asks for it: it would cost each request 3 %.
        self.scope = scope
        self.receive = receive
        self.send = send
        self.service: Final = service
        self.slot: Share | None = None
        self.page_bytes = 0
        self.limit_headers: tuple[Header, ...] = ()
        self._content: bytes | None = None

    def whole_body(self, limit: int | None) -> bytes | None:
        """Return the body if all of it has arrived and it is small; None if `body` must wait.

        limit -- the maximum length in bytes; None for none

        Raises `ApiError` as `body` does.
        """
        take = getattr(self.send, "take_body", None)
        if take is not None and (body := take(SMALL_BODY_BYTES)) is not None:
            check_whole(self.scope["headers"], body, limit)
            self._content = body
        return self._content

    async def body(self) -> bytes:
        """Return the body as it was sent. Raises `ApiError` as `petstore.http.body.read` does."""
        if self._content is None:
            limit = self.route_handler.resolve_request_max_body_size()
            bodies = self.service.shares.bodies
            headers, client = self.scope["headers"], self.scope.get("auth", "")
            self._content = await read(headers, self.receive, limit, bodies, client)
        return self._content

    def acquire_page(self, count: int) -> Awaitable[None] | None:
        """Begin to fetch a page of so many items; return what must be awaited first, if anything.

        What is returned raises `ApiError` (503) if the client's turn does not come in time.
        """
        shares = self.service.shares
        size = count * shares.max_item_bytes
        if shares.pages.acquire(size):
            self.page_bytes = size
            return None
        return self._wait_for_page(size)

    async def _wait_for_page(self, size: int) -> None:
        await self.service.shares.pages.wait(self.scope["auth"], size)
        self.page_bytes = size

    def release(self) -> None:
        """Release what the request holds.

        This happens when the response starts: a client that reads slowly holds no slot.
        """
        if self.slot is not None:
            self.slot.release(self.scope["auth"])
            self.slot = None
        if self.page_bytes:
            self.service.shares.pages.release(self.page_bytes)
            self.page_bytes = 0


for _class in (Request, ASGIConnection):
    for _name in {*_class.__slots__} - {"scope", "receive", "send"}:
        setattr(ServiceRequest, _name, LateSlot(getattr(_class, _name)))
