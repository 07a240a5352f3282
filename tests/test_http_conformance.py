"""The running service keeps the storage contract: controllers, guard and errors are under it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from petstore import paging
from petstore.conformance import RemoteConformance
from petstore.contract import (
    Backend,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    Retry,
    TokenReusedError,
)
from petstore.paging import MAX_LIMIT
from petstore.settings import Settings
from tests.live import BACKEND, KEY, in_thread

Item = TypeVar("Item", Pet, Order)


class HttpSettings(Struct, frozen=True):
    """Which backend the service runs on, and where it is once it runs."""

    backend: str
    url: str = ""


class HttpRepository(Repository):
    """A repository whose calls are requests to the service."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._times: dict[int, tuple[datetime, datetime]] = {}

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        answer = await self._write("POST", "/v1/pets", msgspec.json.encode(new), retry)
        assert answer.status_code == 201, answer.text
        pet = msgspec.json.decode(answer.content, type=Pet)
        assert answer.headers["location"] == f"/v1/pets/{pet.id}"
        assert pet == Pet(pet.id, new.name, new.category_id, new.status)
        return _receipt(pet.id, answer)

    async def get_pet(self, pet_id: int) -> Pet | None:
        return await self._get(f"/v1/pets/{pet_id}", Pet)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        return await self._list("/v1/pets", Pet, paging.cursor("p", after), count, status)

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        body = msgspec.json.encode({"petId": pet_id})
        answer = await self._write("POST", "/v1/store/orders", body, retry)
        assert answer.status_code == 201, answer.text
        order = msgspec.json.decode(answer.content, type=Order)
        assert answer.headers["location"] == f"/v1/store/orders/{order.id}"
        receipt = _receipt(order.id, answer)
        served, _ = self._times.setdefault(order.id, (order.placed_at, at))
        assert order == Order(order.id, pet_id, OrderStatus.PLACED, served)
        return receipt

    async def get_order(self, order_id: int) -> Order | None:
        order = await self._get(f"/v1/store/orders/{order_id}", Order)
        return order and self._as_placed(order)

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        cursor = paging.cursor("o", after)
        orders = await self._list("/v1/store/orders", Order, cursor, count, status)
        return [self._as_placed(order) for order in orders]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        body = msgspec.json.encode({"status": status})
        answer = await self._write("PATCH", f"/v1/store/orders/{order_id}", body)
        assert answer.status_code == 200, answer.text
        return self._as_placed(msgspec.json.decode(answer.content, type=Order))

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        raise NotImplementedError("the interface has no such operation")

    def _as_placed(self, order: Order) -> Order:
        """Give an order the time that the kit said: the service has a clock of its own."""
        served, said = self._times.get(order.id, (order.placed_at, order.placed_at))
        assert order.placed_at == served
        return replace(order, placed_at=said)

    async def _write(
        self, method: str, path: str, body: bytes, retry: Retry | None = None
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        if retry is not None:
            headers["Idempotency-Key"] = retry.token.hex()
        answer = await self._client.request(method, path, content=body, headers=headers)
        if answer.status_code == 404:
            raise NotFoundError(answer.text)
        if answer.status_code == 409:
            reused = answer.json()["message"].startswith("Idempotency-Key")
            raise TokenReusedError(answer.text) if reused else ConflictError(answer.text)
        return answer

    async def _get(self, path: str, type_: type[Item]) -> Item | None:
        answer = await self._client.get(path)
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=type_)

    async def _list(
        self, path: str, type_: type[Item], cursor: str, count: int, status: str | None
    ) -> list[Item]:
        """Walk from page to page until there are enough items, or no more."""
        items: list[Item] = []
        query = f"limit={min(count, MAX_LIMIT)}&cursor={cursor}"
        url: str | None = f"{path}?{query}" + (f"&status={status}" if status else "")
        while url is not None and len(items) < count:
            answer = await self._client.get(url)
            assert answer.status_code == 200, answer.text
            items += msgspec.json.decode(answer.content, type=list[type_])  # type: ignore[valid-type]
            url = answer.links.get("next", {}).get("url")
        return items[:count]


def _receipt(number: int, answer: httpx.Response) -> Receipt:
    assert answer.headers.get("idempotency-replayed") in (None, "true")
    return Receipt(number, replayed="idempotency-replayed" in answer.headers)


@asynccontextmanager
async def open_http(settings: HttpSettings) -> AsyncIterator[HttpRepository]:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=settings.url, headers=headers, timeout=30) as client:
        yield HttpRepository(client)


@asynccontextmanager
async def scratch_service(settings: HttpSettings) -> AsyncIterator[HttpSettings]:
    """Start a service on an empty place of its backend."""
    roomy = Settings(drain_seconds=0, max_body_bytes=2**20)  # the kit has long names
    with in_thread(roomy, backend=settings.backend) as live:
        yield HttpSettings(settings.backend, live.url)


served = Backend(
    contract=1,
    settings=HttpSettings,
    open=open_http,
    scratch=scratch_service,
    shared=False,
    durable=False,
)


class TestService(RemoteConformance):
    """On memory, or on what PETSTORE_TEST_BACKEND says."""

    backend = served
    settings = HttpSettings(BACKEND)
    machine_examples = 10
