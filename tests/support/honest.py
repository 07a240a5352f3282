"""A repository that keeps every clause but `cost`, in as little code as possible.

It is shared and durable within this process: stores outlive the repositories that open them.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from itertools import count as counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    Backend,
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    StorageError,
    TokenReusedError,
    UnavailableError,
)


class PlaceSettings(Struct, frozen=True):
    """The place of a store."""

    place: str = "given"


class Store:
    """Data that outlives the repository.

    records -- value of a token -> the token and the id that was assigned
    last_id -- the highest id that was assigned or restored, of pets and orders together
    restored -- the highest id that was restored
    extra -- what only a saboteur stores
    """

    def __init__(self) -> None:
        self.pets: dict[int, Pet] = {}
        self.orders: dict[int, Order] = {}
        self.records: dict[bytes, tuple[IdempotencyToken, int]] = {}
        self.last_id = 0
        self.restored = 0
        self.extra: dict[str, Any] = {}


STORES: defaultdict[str, Store] = defaultdict(Store)
PLACES = counter()


class Honest(Repository):
    """Keeps every clause but `cost`. A saboteur overrides the methods that it breaks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.open = True

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        self.check()
        await asyncio.sleep(0)
        if receipt := self.find(token):
            return receipt
        pet_id = self.next_id()
        self.put(Pet(pet_id, new.name, new.category_id, new.status))
        self.record(token, pet_id)
        return Receipt(pet_id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.check()
        return self.store.pets.get(pet_id)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        self.check()
        return self.matching(after, status)[:count]

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        self.check()
        await asyncio.sleep(0)
        if receipt := self.find(token):
            return receipt
        pet = self.store.pets.get(pet_id)
        if pet is None:
            raise NotFoundError("no such pet")
        self.check_available(pet)
        order_id = self.next_order_id()
        self.store.orders[order_id] = Order(order_id, pet_id, OrderStatus.PLACED, at)
        self.set_status(pet_id, PetStatus.PENDING)
        self.record(token, order_id)
        return Receipt(order_id)

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
        self.set_status(order.pet_id, PET_STATUS_BY_ORDER[status])
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
                self.check_pet(item)
            self.raise_counter(item)
            self.add(item)

    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if item != stored:
            raise ConflictError("a different item has this id")

    def check_pet(self, order: Order) -> None:
        pet = self.store.pets.get(order.pet_id)
        if pet is None:
            raise NotFoundError("no such pet")
        if order.status is not OrderStatus.CANCELLED:
            self.check_live(order, pet)

    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError("the pet has another status")
        others = [o for o in self.store.orders.values() if o.pet_id == pet.id]
        if any(other.status is not OrderStatus.CANCELLED for other in others):
            raise ConflictError("the pet is in another order")

    def raise_counter(self, item: Pet | Order) -> None:
        """Make later ids higher than that of a restored item."""
        self.store.last_id = max(self.store.last_id, item.id)
        self.store.restored = max(self.store.restored, item.id)

    def add(self, item: Pet | Order) -> None:
        if isinstance(item, Pet):
            self.put(item)
        else:
            self.store.orders[item.id] = item

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        pets = sorted(self.store.pets.values(), key=lambda pet: pet.id)
        return [pet for pet in pets if pet.id > after and status in (None, pet.status)]

    def next_id(self) -> int:
        id_ = self.choose_id()
        if id_ > MAX_ID:
            raise StorageError("all ids have been assigned")
        self.store.last_id = max(self.store.last_id, id_)
        return id_

    def choose_id(self) -> int:
        """Return a new id that is higher than all restored ones, or one beyond the maximum."""
        return self.store.last_id + 1

    def next_order_id(self) -> int:
        return self.next_id()

    def put(self, pet: Pet) -> None:
        self.store.pets[pet.id] = pet

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        self.store.pets[pet_id] = replace(self.store.pets[pet_id], status=status)

    def check_available(self, pet: Pet) -> None:
        if pet.status is not PetStatus.AVAILABLE:
            raise ConflictError("the pet is not available")

    def check_placed(self, order: Order) -> None:
        if order.status is not OrderStatus.PLACED:
            raise ConflictError("the order is not placed")

    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        """Return the receipt of an earlier write with this token, or None."""
        if token is None or token.value not in self.store.records:
            return None
        recorded, id_ = self.store.records[token.value]
        if recorded.until <= token.now:
            return None
        if recorded.fingerprint != token.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(id_, replayed=True)

    def record(self, token: IdempotencyToken | None, id_: int) -> None:
        if token is not None:
            self.store.records[token.value] = (token, id_)

    def check(self) -> None:
        if not self.open:
            raise UnavailableError("closed")

    def close(self) -> None:
        self.open = False


@asynccontextmanager
async def scratch(_: PlaceSettings) -> AsyncIterator[PlaceSettings]:
    """Yield the settings of a new place; remove the place on exit."""
    settings = PlaceSettings(f"scratch-{next(PLACES)}")
    try:
        yield settings
    finally:
        STORES.pop(settings.place, None)


def backend(
    repository: type[Honest],
    scratch: Callable[[Any], Any] = scratch,
    swallowed: tuple[type[BaseException], ...] = (),
) -> Backend:
    """Return a backend that opens repositories of this class.

    swallowed -- what `open` keeps to itself if it is raised in its block
    """

    @asynccontextmanager
    async def open_(settings: PlaceSettings) -> AsyncIterator[Honest]:
        opened = repository(STORES[settings.place])
        with suppress(*swallowed):
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
