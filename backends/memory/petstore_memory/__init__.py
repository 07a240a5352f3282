"""Pets and orders in the memory of one process: everything is lost when it ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import uuid4

from msgspec import Struct

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
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
    PetStatus,
    Receipt,
    Repository,
    TokenPage,
    TokenRecord,
    UnavailableError,
    WrongStoreError,
)
from petstore_memory.idempotency import IdempotencyRecords
from petstore_memory.table import Table


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """There are no settings."""


class MemoryRepository(Repository):
    """A table of pets, a table of orders, and the records of tokens.

    No method awaits between a check and its change, so each is atomic on the event loop. After
    `close`, each raises `UnavailableError`.
    """

    def __init__(self) -> None:
        self._pets = Table[Pet](PetStatus)
        self._orders = Table[Order](OrderStatus)
        self._records = IdempotencyRecords()
        self.store = uuid4().hex
        self._live_pet_ids: set[int] | None = None  # of placed and completed orders, for `restore`
        self._open = True

    async def check(self) -> None:
        """Do nothing: nobody else has this store."""
        self._check_open()

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        """Store the pet under the next id."""
        self._check_open()
        if token and (receipt := self._records.find(token)):
            return receipt
        pet = Pet(self._pets.next_id(), new.name, new.category_id, new.status)
        self._pets.add(pet)
        if token:
            self._records.add(token, pet.id)
        return Receipt(pet.id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Find the pet in its table."""
        self._check_open()
        return self._pets.get(pet_id)

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        """Read the page from the table."""
        self._check_open()
        return self._pets.page(query)

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        """Store the order under the next id and make its pet pending."""
        self._check_open()
        if token and (receipt := self._records.find(token)):
            return receipt
        self._live_pet_ids = None
        pet = self._pets.get(pet_id)
        if pet is None:
            raise NotFoundError(f"there is no pet {pet_id}")
        if pet.status is not PetStatus.AVAILABLE:
            raise ConflictError(f"pet {pet_id} is not available")
        order = Order(self._orders.next_id(), pet_id, OrderStatus.PLACED, at)
        self._orders.add(order)
        self._pets.set_status(pet, PetStatus.PENDING)
        if token:
            self._records.add(token, order.id)
        return Receipt(order.id)

    async def get_order(self, order_id: int) -> Order | None:
        """Find the order in its table."""
        self._check_open()
        return self._orders.get(order_id)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        """Read the page from the table."""
        self._check_open()
        return self._orders.page(query)

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Complete or cancel the order and change the status of its pet."""
        self._check_open()
        self._live_pet_ids = None
        order = self._orders.get(order_id)
        if order is None:
            raise NotFoundError(f"there is no order {order_id}")
        if order.status is status:
            return order
        if order.status is not OrderStatus.PLACED:
            raise ConflictError(f"order {order_id} is {order.status}")
        if pet := self._pets.get(order.pet_id):  # always true: pets are never removed
            self._pets.set_status(pet, PET_STATUS_BY_ORDER[status])
        return self._orders.set_status(order, status)

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        """Read the records in the order of their tokens; the cursor is the last one's, in hex."""
        self._check_open()
        records = self._records.page(bytes.fromhex(cursor), count, now)
        return TokenPage(records, records[-1].value.hex() if len(records) == count else "")

    async def restore(self, items: Sequence[Pet | Order | TokenRecord]) -> None:
        """Store the items one after the other, up to the first that is refused."""
        self._check_open()
        for item in items:
            if isinstance(item, TokenRecord):
                self._records.restore(item)
                continue
            table: Table[Any] = self._pets if isinstance(item, Pet) else self._orders
            found = table.get(item.id)
            if found is None:
                if isinstance(item, Order):
                    self._check_restorable(item)
                table.add(item)
            elif found != item:
                raise ConflictError(f"its id is taken by {found}")

    def _check_restorable(self, order: Order) -> None:
        pet = self._pets.get(order.pet_id)
        if pet is None:
            raise NotFoundError(f"there is no pet {order.pet_id}")
        if order.status is not OrderStatus.CANCELLED:
            if pet.status is not PET_STATUS_BY_ORDER[order.status]:
                raise ConflictError(f"pet {pet.id} is {pet.status or 'without status'}")
            if self._live_pet_ids is None:
                live = (OrderStatus.PLACED, OrderStatus.COMPLETED)
                pages = [self._orders.page(OrderQuery(0, MAX_ID, status)) for status in live]
                self._live_pet_ids = {other.pet_id for page in pages for other in page}
            if pet.id in self._live_pet_ids:
                raise ConflictError(f"pet {pet.id} is in another order")
            self._live_pet_ids.add(pet.id)

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError("the memory repository is closed")


@asynccontextmanager
async def open_memory(
    _settings: MemorySettings, expected: Expected
) -> AsyncIterator[MemoryRepository]:
    """Yield an empty repository and close it when the context exits.

    Raises `WrongStoreError` if a store is expected: none outlives its repository. A storage that
    can be misconfigured or out of reach raises `SettingsError` or `UnavailableError` here.
    """
    if expected.store is not None:
        raise WrongStoreError("memory keeps no store")
    repository = MemoryRepository()
    try:
        yield repository
    finally:
        repository.close()


@asynccontextmanager
async def scratch_memory(settings: MemorySettings) -> AsyncIterator[MemorySettings]:
    """Yield the settings: every opened repository is empty, and nothing is left to be removed."""
    yield settings


backend = Backend(
    contract=2,
    settings=MemorySettings,
    open=open_memory,
    scratch=scratch_memory,
    shared=False,
    durable=False,
)
