"""The running service keeps the storage contract through controllers, guards and errors."""

import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from petstore_conformance import RemoteConformance
from petstore_conformance.faults.histories import RecordedResponse
from petstore_conformance.faults.services import ClientConnection, Endpoint, RunningService

from petstore.config.settings import Settings
from petstore.contract import (
    Backend,
    ConflictError,
    Expected,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    Repository,
    TokenPage,
    TokenRecord,
    TokenReusedError,
)
from petstore.http import pagination
from petstore.http.pagination import MAX_LIMIT
from tests.support.services import BACKEND, in_thread, place, process

WORKERS: Final = int(os.environ.get("PETSTORE_TEST_WORKERS", "1"))
LONG: Final = 2**20  # the limit on a body in bytes: the kit creates pets with long names

Item = TypeVar("Item", Pet, Order)


class HttpSettings(Struct, frozen=True):
    """The backend that the service runs on, and where the service is once it runs."""

    backend: str
    host: str = ""
    port: int = 0


class HttpRepository(Repository):
    """A repository whose calls are requests to the service."""

    def __init__(self, target: Endpoint) -> None:
        self.store = "unknown"
        self._target = target
        self._idle: list[ClientConnection] = []
        self._times: dict[int, tuple[datetime, datetime]] = {}

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        response = await self._write("POST", "/pets", msgspec.to_builtins(new), token)
        assert response.status == 201, response
        pet = msgspec.json.decode(response.content, type=Pet)
        assert response.location == f"/v1/pets/{pet.id}"
        assert pet == Pet(pet.id, new.name, new.category_id, new.status)
        return Receipt(pet.id, response.replayed)

    async def get_pet(self, pet_id: int) -> Pet | None:
        return await self._get(f"/pets/{pet_id}", Pet)

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        return await self._list("/pets", "p", query, Pet)

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        response = await self._write("POST", "/store/orders", {"petId": pet_id}, token)
        assert response.status == 201, response
        order = msgspec.json.decode(response.content, type=Order)
        assert response.location == f"/v1/store/orders/{order.id}"
        served, _ = self._times.setdefault(order.id, (order.placed_at, at))
        assert order == Order(order.id, pet_id, OrderStatus.PLACED, served)
        return Receipt(order.id, response.replayed)

    async def get_order(self, order_id: int) -> Order | None:
        order = await self._get(f"/store/orders/{order_id}", Order)
        return order and self._as_placed(order)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        orders = await self._list("/store/orders", "o", query, Order)
        return [self._as_placed(order) for order in orders]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        response = await self._write("PATCH", f"/store/orders/{order_id}", {"status": status})
        assert response.status == 200, response
        return self._as_placed(msgspec.json.decode(response.content, type=Order))

    async def check(self) -> None:
        raise NotImplementedError("the service checks its store by itself")

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        raise NotImplementedError("the HTTP interface has no such operation")

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        raise NotImplementedError("the HTTP interface has no such operation")

    def _as_placed(self, order: Order) -> Order:
        """Give an order the time that the kit passed: the service has its own clock."""
        served, passed = self._times.get(order.id, (order.placed_at, order.placed_at))
        assert order.placed_at == served
        return replace(order, placed_at=passed)

    async def _exchange(
        self, method: str, path: str, body: object = None, key: str = ""
    ) -> RecordedResponse:
        """Send a request over an idle or a new connection; one that is cancelled is closed."""
        connection = self._idle.pop() if self._idle else ClientConnection(self._target)
        try:
            response = await connection.exchange(method, f"/v1{path}", body, key)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        assert response is not None, "503, or the connection broke"
        return response

    async def _write(
        self, method: str, path: str, body: object, token: IdempotencyToken | None = None
    ) -> RecordedResponse:
        response = await self._exchange(method, path, body, token.value.hex() if token else "")
        if response.status == 404:
            raise NotFoundError(str(response))
        if response.status == 409:
            reused = response.item["message"].startswith("Idempotency-Key")
            raise TokenReusedError(str(response)) if reused else ConflictError(str(response))
        return response

    async def _get(self, path: str, type_: type[Item]) -> Item | None:
        response = await self._exchange("GET", path)
        if response.status == 404:
            return None
        assert response.status == 200, response
        return msgspec.json.decode(response.content, type=type_)

    async def _list(
        self, path: str, letter: str, query: PetQuery | OrderQuery, type_: type[Item]
    ) -> list[Item]:
        """Walk from page to page until there are enough items, or no more.

        letter -- that of the cursors of this collection
        """
        items: list[Item] = []
        sent = {"status": query.status} if query.status else {}
        after, more = query.after, True
        while more and len(items) < query.count:
            limit = min(query.count, MAX_LIMIT)
            place = {"limit": limit, "cursor": pagination.encode_cursor(letter, after)}
            response = await self._exchange("GET", f"{path}?{urlencode(place | sent)}")
            assert response.status == 200, response
            items += (page := msgspec.json.decode(response.content, type=list[type_]))  # type: ignore[valid-type]
            assert len(page) == limit or not response.more, "a page is not full"
            after, more = items[-1].id if items else 0, response.more
        return items[: query.count]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._idle:
            connection.close()


@asynccontextmanager
async def open_http(settings: HttpSettings, _: Expected) -> AsyncIterator[HttpRepository]:
    target = Endpoint(RunningService(settings.host, settings.port))
    with closing(HttpRepository(target)) as repository:
        yield repository


@asynccontextmanager
async def scratch_service(settings: HttpSettings) -> AsyncIterator[HttpSettings]:
    """Start a service on an empty place of its backend, as processes if there are several."""
    with ExitStack() as stack:
        if WORKERS == 1:
            roomy = Settings(drain_seconds=0, max_body_bytes=LONG)
            live = stack.enter_context(in_thread(roomy, backend=settings.backend))
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            given = {"backend": settings.backend, **place(settings.backend, directory)}
            given |= {"workers": str(WORKERS), "max_body_bytes": str(LONG), "log": "off"}
            live = stack.enter_context(process(Path(directory), **given))
        yield HttpSettings(settings.backend, live.host, live.port)


served = Backend(
    contract=2,
    settings=HttpSettings,
    open=open_http,
    scratch=scratch_service,
    shared=False,
    durable=False,
    max_name_bytes=LONG - 1000,
)


class TestService(RemoteConformance):
    """On memory, or on the backend of PETSTORE_TEST_BACKEND with PETSTORE_TEST_WORKERS."""

    backend = served
    settings = HttpSettings(BACKEND)
    machine_examples = 10
