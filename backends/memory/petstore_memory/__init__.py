"""Animals and orders in the memory of one process: everything is gone when it ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct

from petstore.contract import (
    MAX_ID,
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

    No method awaits between a check and its change, so each is atomic on the event loop. Once it
    was closed, each raises `UnavailableError`.
    """

    def __init__(self) -> None:
        self._pets = Shelves[Pet](PetStatus)
        self._orders = Shelves[Order](OrderStatus)
        self._retries = Retries()
        self._live: set[int] | None = None  # animals that are ordered, while `restore` runs
        self._open = True

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        """Store the animal under the next id.

        Raises `TokenReusedError` if the token is that of another write.
        """
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
        """Store the order under the next id and reserve its animal.

        Raises `TokenReusedError` if the token is that of another write, `NotFoundError` if there is
        no such animal, `ConflictError` if it is not available.
        """
        self._check_open()
        if retry and (receipt := self._retries.find(retry)):
            return receipt
        self._live = None
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
        """Close the order and move its animal.

        Raises `NotFoundError` if there is no such order, `ConflictError` if it was closed with the
        other status.
        """
        self._check_open()
        self._live = None
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

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        """Put each item on its shelf, if nothing speaks against it.

        Raises `ConflictError` for an item whose id is that of a different one, and for an order
        that does not go with its animal; `NotFoundError` for an order of no animal. The items
        before it are stored then.
        """
        self._check_open()
        for item in items:
            found = self._find(item)
            if found == item:
                continue
            if found is not None:
                raise ConflictError(f"there is another one, {found}")
            if isinstance(item, Pet):
                self._pets.add(item)
            else:
                self._restore_order(item)

    def _find(self, item: Pet | Order) -> Pet | Order | None:
        return self._pets.get(item.id) if isinstance(item, Pet) else self._orders.get(item.id)

    def _restore_order(self, order: Order) -> None:
        pet = self._pets.get(order.pet_id)
        if pet is None:
            raise NotFoundError(f"there is no animal {order.pet_id}")
        if order.status is not OrderStatus.CANCELLED:
            if pet.status is not PET_STATUS_BY_ORDER[order.status]:
                raise ConflictError(f"animal {pet.id} is {pet.status or 'without status'}")
            if self._live is None:
                live = (OrderStatus.PLACED, OrderStatus.COMPLETED)
                pages = [self._orders.page(0, MAX_ID, status) for status in live]
                self._live = {other.pet_id for page in pages for other in page}
            if pet.id in self._live:
                raise ConflictError(f"animal {pet.id} is in another order")
            self._live.add(pet.id)
        self._orders.add(order)

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError("the memory repository is closed")


@asynccontextmanager
async def open_memory(_settings: MemorySettings) -> AsyncIterator[MemoryRepository]:
    """Open an empty repository and close it in the end.

    Storage that may be misconfigured or away raises `SettingsError` or `UnavailableError` here.
    """
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
