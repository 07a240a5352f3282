"""Animals and orders in the memory of one process: everything is gone when it ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct

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
    UnavailableError,
)
from petstore_memory.retries import Retries
from petstore_memory.shelf import Shelves


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Memory has no settings."""


class MemoryRepository(Repository):
    """Shelves of animals and of orders, and the records of retries.

    No method awaits between a check and its change, so each is atomic on the event loop.
    """

    def __init__(self) -> None:
        self._pets = Shelves[Pet](PetStatus)
        self._orders = Shelves[Order](OrderStatus)
        self._retries = Retries()
        self._open = True

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        """Store the animal under the next id."""
        self._check_open()
        if retry and (receipt := self._retries.find(retry)):
            return receipt
        pet = Pet(self._pets.last_id + 1, new.name, new.category_id, new.status)
        self._pets.add(pet)
        if retry:
            self._retries.record(retry, pet.id)
        return Receipt(pet.id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Find the animal on its shelf."""
        self._check_open()
        return self._pets.get(pet_id)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Cut the page out of a shelf."""
        self._check_open()
        return self._pets.page(after, count, status)

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        """Store the order under the next id and reserve its animal."""
        self._check_open()
        if retry and (receipt := self._retries.find(retry)):
            return receipt
        pet = self._pets.get(pet_id)
        if pet is None:
            raise NotFoundError(f"there is no animal {pet_id}")
        if pet.status is not PetStatus.AVAILABLE:
            raise ConflictError(f"animal {pet_id} is not available")
        order = Order(self._orders.last_id + 1, pet_id, OrderStatus.PLACED, at)
        self._orders.add(order)
        self._pets.move(pet, PetStatus.PENDING)
        if retry:
            self._retries.record(retry, order.id)
        return Receipt(order.id)

    async def get_order(self, order_id: int) -> Order | None:
        """Find the order on its shelf."""
        self._check_open()
        return self._orders.get(order_id)

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        """Cut the page out of a shelf."""
        self._check_open()
        return self._orders.page(after, count, status)

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        """Close the order and move its animal."""
        self._check_open()
        order = self._orders.get(order_id)
        if order is None:
            raise NotFoundError(f"there is no order {order_id}")
        if order.status is status:
            return order
        if order.status is not OrderStatus.PLACED:
            raise ConflictError(f"order {order_id} is {order.status}")
        if pet := self._pets.get(order.pet_id):  # there always is: none is ever removed
            self._pets.move(pet, PET_STATUS_BY_ORDER[status])
        return self._orders.move(order, status)

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError("the memory repository is closed")


@asynccontextmanager
async def open_memory(_settings: MemorySettings) -> AsyncIterator[MemoryRepository]:
    """Open an empty repository and close it in the end."""
    repository = MemoryRepository()
    try:
        yield repository
    finally:
        repository.close()


@asynccontextmanager
async def scratch_memory(settings: MemorySettings) -> AsyncIterator[MemorySettings]:
    """Yield the settings: every opened repository is empty and vanishes by itself."""
    yield settings


backend = Backend(
    contract=1,
    settings=MemorySettings,
    open=open_memory,
    scratch=scratch_memory,
    shared=False,
    durable=False,
)
