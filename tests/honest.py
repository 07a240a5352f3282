"""A repository that keeps every clause, in as little code as that takes.

It is shared and durable within this process: its stores outlive its openings.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count as counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from petstore.contract import (
    PET_STATUS_BY_ORDER,
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
    UnavailableError,
)


class PlaceSettings(Struct, frozen=True):
    """Where a store lives."""

    place: str = "given"


class Store:
    """What outlives an opening."""

    def __init__(self) -> None:
        self.pets: dict[int, Pet] = {}
        self.orders: dict[int, Order] = {}
        self.retries: dict[bytes, tuple[Retry, int]] = {}
        self.last = 0


STORES: defaultdict[str, Store] = defaultdict(Store)
PLACES = counter()


class Honest(Repository):
    """Keeps every clause. Saboteurs override what they do otherwise."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.open = True

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        self.check()
        await asyncio.sleep(0)
        if receipt := self.find(retry):
            return receipt
        number = self.next_id()
        self.put(Pet(number, new.name, new.category_id, new.status))
        self.record(retry, number)
        return Receipt(number)

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.check()
        return self.store.pets.get(pet_id)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        self.check()
        return self.matching(after, status)[:count]

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        self.check()
        await asyncio.sleep(0)
        if receipt := self.find(retry):
            return receipt
        pet = self.store.pets.get(pet_id)
        if pet is None:
            raise NotFoundError("no such animal")
        self.check_available(pet)
        number = self.next_order_id()
        self.store.orders[number] = Order(number, pet_id, OrderStatus.PLACED, at)
        self.move(pet_id, PetStatus.PENDING)
        self.record(retry, number)
        return Receipt(number)

    async def get_order(self, order_id: int) -> Order | None:
        self.check()
        return self.store.orders.get(order_id)

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        self.check()
        orders = sorted(self.store.orders.values(), key=lambda order: order.id)
        return [o for o in orders if o.id > after and status in (None, o.status)][:count]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        self.check()
        order = self.store.orders.get(order_id)
        if order is None:
            raise NotFoundError("no such order")
        if order.status is status:
            return order
        self.check_placed(order)
        self.store.orders[order_id] = changed = replace(order, status=status)
        self.move(order.pet_id, PET_STATUS_BY_ORDER[status])
        return changed

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        self.check()
        for item in items:
            await asyncio.sleep(0)
            stored: Pet | Order | None
            if isinstance(item, Pet):
                stored = self.store.pets.get(item.id)
            else:
                stored = self.store.orders.get(item.id)
            if stored is not None:
                self.check_same(item, stored)
                continue
            if isinstance(item, Order):
                self.check_animal(item)
            self.skip(item)
            self.shelve(item)

    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if item != stored:
            raise ConflictError("there is another one")

    def check_animal(self, order: Order) -> None:
        pet = self.store.pets.get(order.pet_id)
        if pet is None:
            raise NotFoundError("no such animal")
        if order.status is not OrderStatus.CANCELLED:
            self.check_live(order, pet)

    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError("the animal has another status")
        others = [o for o in self.store.orders.values() if o.pet_id == pet.id]
        if any(other.status is not OrderStatus.CANCELLED for other in others):
            raise ConflictError("the animal is in another order")

    def skip(self, item: Pet | Order) -> None:
        """Give out no id up to that of a restored item."""
        self.store.last = max(self.store.last, item.id)

    def shelve(self, item: Pet | Order) -> None:
        if isinstance(item, Pet):
            self.put(item)
        else:
            self.store.orders[item.id] = item

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        pets = sorted(self.store.pets.values(), key=lambda pet: pet.id)
        return [pet for pet in pets if pet.id > after and status in (None, pet.status)]

    def next_id(self) -> int:
        self.store.last += 1
        return self.store.last

    def next_order_id(self) -> int:
        return self.next_id()

    def put(self, pet: Pet) -> None:
        self.store.pets[pet.id] = pet

    def move(self, pet_id: int, status: PetStatus) -> None:
        self.store.pets[pet_id] = replace(self.store.pets[pet_id], status=status)

    def check_available(self, pet: Pet) -> None:
        if pet.status is not PetStatus.AVAILABLE:
            raise ConflictError("the animal is not available")

    def check_placed(self, order: Order) -> None:
        if order.status is not OrderStatus.PLACED:
            raise ConflictError("the order is not placed")

    def find(self, retry: Retry | None) -> Receipt | None:
        """Return the receipt of a write that was carried out before."""
        if retry is None or retry.token not in self.store.retries:
            return None
        recorded, number = self.store.retries[retry.token]
        if recorded.until <= retry.now:
            return None
        if recorded.fingerprint != retry.fingerprint:
            raise TokenReusedError("used otherwise")
        return Receipt(number, replayed=True)

    def record(self, retry: Retry | None, number: int) -> None:
        if retry is not None:
            self.store.retries[retry.token] = (retry, number)

    def check(self) -> None:
        if not self.open:
            raise UnavailableError("closed")

    def close(self) -> None:
        self.open = False


@asynccontextmanager
async def scratch(_: PlaceSettings) -> AsyncIterator[PlaceSettings]:
    """Yield settings of a fresh place, and forget it in the end."""
    settings = PlaceSettings(f"scratch-{next(PLACES)}")
    try:
        yield settings
    finally:
        STORES.pop(settings.place, None)


def backend(repository: type[Honest], scratch: Callable[[Any], Any] = scratch) -> Backend:
    """Return a backend whose repositories are of this class."""

    @asynccontextmanager
    async def open_(settings: PlaceSettings) -> AsyncIterator[Honest]:
        opened = repository(STORES[settings.place])
        try:
            yield opened
        finally:
            opened.close()

    return Backend(
        contract=1,
        settings=PlaceSettings,
        open=open_,
        scratch=scratch,
        shared=True,
        durable=True,
    )
