"""What guards and handlers get and return: a request, the state of the service, a response."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

from litestar.types import Receive, Send
from msgspec import Struct

from petstore.contract import Repository
from petstore.http.clock import TokenClock
from petstore.http.headers import Header
from petstore.http.shares import Share, Shares
from petstore.observability.storage_health import StorageHealth

Content = TypeVar("Content")


class ServiceState:
    """The state of one service; guards and handlers get it as their request's `service`.

    root_path -- the public prefix in front of ``/v1``, or the empty string
    document -- the OpenAPI document, as JSON
    shares -- what each client holds of this process
    storage_health -- logs when the storage fails
    repository -- the open store, while the application's lifespan is active
    startup_error -- why the repository could not be opened
    clock -- returns the current time in UTC; tests replace it
    token_clock -- the times of idempotency tokens; tests replace it
    draining -- True once the service is about to stop: it still responds, but closes connections
    """

    repository: Repository

    def __init__(
        self, root_path: str, document: bytes, shares: Shares, storage_health: StorageHealth
    ) -> None:
        self.root_path = root_path
        self.document = document
        self.shares = shares
        self.storage_health = storage_health
        self.startup_error: Exception | None = None
        self.clock: Callable[[], datetime] = partial(datetime.now, UTC)
        self.token_clock = TokenClock()
        self.draining = False


class ServiceRequest:
    """A request, with what the service knows of it. Litestar's own would cost 3 % more.

    scope, receive, send -- as in ASGI. The scope also has `auth`, the name of the client, once its
        key was checked, and `path_params`
    service -- the state of the service
    slot -- where the request holds a slot; None before it has one, and once it was released
    page_bytes -- how large the page may be that is being fetched for it
    limit_headers -- say in the response what the client has left of its rate limit
    writing -- whether the storage was asked to write for it
    """

    __slots__ = (
        *("limit_headers", "page_bytes", "receive", "scope", "send", "service", "slot", "writing"),
    )

    def __init__(self, scope: Any, receive: Receive, send: Send, service: ServiceState) -> None:
        self.scope: Final = scope
        self.receive: Final = receive
        self.send: Final = send
        self.service: Final = service
        self.slot: Share | None = None
        self.page_bytes = 0
        self.limit_headers: tuple[Header, ...] = ()
        self.writing = False

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


class Response(Struct, Generic[Content], gc=False):
    """What a handler returns if its content does not say everything.

    headers -- beside those of every response of the operation, names in lower case; it is changed
    status -- None for that of the operation
    """

    content: Content
    headers: list[Header] = []
    status: int | None = None
