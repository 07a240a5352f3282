"""A repository that keeps every clause but `cost`, in as little code as possible.

It is shared and durable within this process: stores outlive the repositories that open them.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from datetime import datetime
from itertools import count as counter
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace
from petstore_conformance.model.model import matching

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    Access,
    Backend,
    ChangeNeededError,
    ConflictError,
    Expected,
    IdempotencyToken,
    NewPet,
    Notes,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
    StorageError,
    TokenPage,
    TokenRecord,
    TokenReusedError,
    UnavailableError,
    WrongStoreError,
)

Item = Pet | Order | TokenRecord
Token = IdempotencyToken | None


class LocationSettings(Struct, frozen=True):
    """The location of a store."""

    location: str = "given"


class Store:
    """Data that outlives the repository.

    identity -- what `Repository.store` shows
    removed -- whether its location was removed
    records -- value of a token -> what is remembered of the write
    last_id -- the highest id that was assigned or restored, of pets and orders together
    restored -- the highest id that was restored
    extra -- what only a saboteur stores
    """

    def __init__(self) -> None:
        self.identity = uuid4().hex
        self.removed = False
        self.pets: dict[int, Pet] = {}
        self.orders: dict[int, Order] = {}
        self.records: dict[bytes, TokenRecord] = {}
        self.last_id = 0
        self.restored = 0
        self.extra: dict[str, Any] = {}


ALL = PetQuery(0, 1)  # what all pets match

STORES: defaultdict[str, Store] = defaultdict(Store)
LOCATIONS = counter()


class Correct(Repository):
    """Keeps every clause but `cost`. A saboteur overrides the methods that it breaks.

    noted, kept, lock, notes -- what only a saboteur has, for as long as it is open
    loaded -- likewise: what was there when it was opened
    """

    def __init__(self, store: Store) -> None:
        self.data = store
        self.store = store.identity
        self.open = True
        self.noted = set[Any]()
        self.kept: dict[Any, Any] = {}
        self.lock = asyncio.Lock()
        self.notes: Notes | None = None
        self.loaded = Store()
        self.loaded.pets, self.loaded.orders = {**store.pets}, {**store.orders}
        self.loaded.records = {**store.records}

    @staticmethod
    def snapshot(store: Store) -> Store:
        """Return what a handle reads that must show the store as it is now."""
        return deepcopy(store)

    async def check(self) -> None:
        self.require_open()

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.require_open()
        await asyncio.sleep(0)
        if receipt := self.find(token):
            return receipt
        pet_id = self.next_id()
        self.put(Pet(pet_id, new.name, new.category_id, new.status))
        self.record(token, pet_id)
        return Receipt(pet_id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.require_open()
        return self.data.pets.get(pet_id)

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        return self.matching(query)[: query.count]

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        await asyncio.sleep(0)
        if receipt := self.find(token):
            return receipt
        pet = self.data.pets.get(pet_id)
        if pet is None:
            raise NotFoundError("no such pet")
        self.check_available(pet)
        order_id = self.next_order_id()
        self.data.orders[order_id] = Order(order_id, pet_id, OrderStatus.PLACED, at)
        self.set_status(pet_id, PetStatus.PENDING)
        self.record(token, order_id)
        return Receipt(order_id)

    async def get_order(self, order_id: int) -> Order | None:
        self.require_open()
        return self.data.orders.get(order_id)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        self.require_open()
        orders = sorted(self.data.orders.values(), key=lambda order: order.id)
        return matching(orders, query)[: query.count]

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        self.require_open()
        order = self.data.orders.get(order_id)
        if order is None:
            raise NotFoundError("no such order")
        if order.status is status:
            return order
        self.check_placed(order)
        self.data.orders[order_id] = changed = replace(order, status=status)
        self.set_status(order.pet_id, PET_STATUS_BY_ORDER[status])
        return changed

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        self.require_open()
        values = sorted(value for value in self.data.records if value.hex() > cursor)[:count]
        records = [self.data.records[value] for value in values]
        living = [record for record in records if record.until > now]
        return TokenPage(living, values[-1].hex() if len(values) == count else "")

    async def restore(self, items: Sequence[Item]) -> None:
        self.require_open()
        for item in items:
            await asyncio.sleep(0)
            if isinstance(item, TokenRecord):
                self.restore_record(item)
                continue
            of_its_kind = self.data.pets if isinstance(item, Pet) else self.data.orders
            if (stored := of_its_kind.get(item.id)) is not None:
                self.check_same(item, stored)
                continue
            if isinstance(item, Order):
                self.check_pet(item)
            self.raise_counter(item)
            self.add(item)

    def restore_record(self, record: TokenRecord) -> None:
        if self.data.records.setdefault(record.value, record) != record:
            raise ConflictError("a different record has this token")

    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if item != stored:
            raise ConflictError("a different item has this id")

    def check_pet(self, order: Order) -> None:
        pet = self.data.pets.get(order.pet_id)
        if pet is None:
            raise NotFoundError("no such pet")
        if order.status is not OrderStatus.CANCELLED:
            self.check_live(order, pet)

    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError("the pet has another status")
        if any(o.status is not OrderStatus.CANCELLED for o in self.orders_of(pet.id)):
            raise ConflictError("the pet is in another order")

    def orders_of(self, pet_id: int) -> list[Order]:
        return [order for order in self.data.orders.values() if order.pet_id == pet_id]

    def raise_counter(self, item: Pet | Order) -> None:
        """Make later ids higher than that of a restored item."""
        self.data.last_id = max(self.data.last_id, item.id)
        self.data.restored = max(self.data.restored, item.id)

    def add(self, item: Pet | Order) -> None:
        if isinstance(item, Pet):
            self.put(item)
        else:
            self.data.orders[item.id] = item

    def matching(self, query: PetQuery) -> list[Pet]:
        """Return all pets that match, however many."""
        return matching(sorted(self.data.pets.values(), key=lambda pet: pet.id), query)

    def next_id(self) -> int:
        id_ = self.choose_id()
        if id_ > MAX_ID:
            raise StorageError("all ids have been assigned")
        self.data.last_id = max(self.data.last_id, id_)
        return id_

    def choose_id(self) -> int:
        """Return a new id that is higher than all restored ones, or one beyond the maximum."""
        return self.data.last_id + 1

    def next_order_id(self) -> int:
        return self.next_id()

    def put(self, pet: Pet) -> None:
        self.data.pets[pet.id] = pet

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        self.data.pets[pet_id] = replace(self.data.pets[pet_id], status=status)

    def check_available(self, pet: Pet) -> None:
        if pet.status is not PetStatus.AVAILABLE:
            raise ConflictError("the pet is not available")

    def check_placed(self, order: Order) -> None:
        if order.status is not OrderStatus.PLACED:
            raise ConflictError("the order is not placed")

    def find(self, token: Token) -> Receipt | None:
        """Return the receipt of an earlier write with this token, or None."""
        if token is None or token.value not in self.data.records:
            return None
        record = self.data.records[token.value]
        if record.until <= token.now:
            return None
        if record.fingerprint != token.fingerprint:
            raise TokenReusedError("the token was used for another write")
        return Receipt(record.id, replayed=True)

    def record(self, token: Token, id_: int) -> None:
        if token is not None:
            self.delete_expired(token.now)
            record = TokenRecord(token.value, token.fingerprint, token.until, id_)
            self.data.records[token.value] = record

    def delete_expired(self, now: int) -> None:
        records = self.data.records
        expired = [record for record in records.values() if record.until <= now]
        for record in [record for record in expired if self.may_delete(record)][:2]:
            del records[record.value]

    def may_delete(self, _expired: TokenRecord) -> bool:
        return True

    def require_open(self) -> None:
        if not self.open:
            raise UnavailableError("closed")
        if self.data.removed:
            raise WrongStoreError("the store was removed")

    def close(self) -> None:
        self.open = False


async def find(location: str, expected: Expected) -> Store:
    """Return the store at a location; make it there if that is allowed."""
    store = STORES.get(location)
    if expected.store is not None and (store is None or store.identity != expected.store):
        raise WrongStoreError("the store is another one, or there is none")
    if store is None and expected.access is not Access.CREATE:
        raise ChangeNeededError("there is no store")
    return STORES[location]


def remove(location: str) -> None:
    """Remove the store at a location, if there is one."""
    if store := STORES.pop(location, None):
        store.removed = True


@asynccontextmanager
async def scratch(_: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Yield the settings of a new location; remove the location on exit."""
    settings = LocationSettings(f"scratch-{next(LOCATIONS)}")
    try:
        yield settings
    finally:
        remove(settings.location)


def backend(
    repository: type[Correct],
    scratch: Callable[[Any], Any] = scratch,
    swallowed: tuple[type[BaseException], ...] = (),
    find: Callable[[str, Expected], Awaitable[Store]] = find,
) -> Backend:
    """Return a backend that opens repositories of this class.

    swallowed -- what `open` keeps to itself if it is raised in its block
    find -- returns the store at a location
    """

    @asynccontextmanager
    async def open_(settings: LocationSettings, expected: Expected) -> AsyncIterator[Correct]:
        store = await find(settings.location, expected)
        opened = repository(repository.snapshot(store) if expected.snapshot else store)
        opened.notes = expected.notes
        with suppress(*swallowed):
            try:
                yield opened
            finally:
                opened.close()

    return Backend(
        contract=2,
        settings=LocationSettings,
        open=open_,
        scratch=scratch,
        shared=True,
        durable=True,
        snapshots=True,
    )
