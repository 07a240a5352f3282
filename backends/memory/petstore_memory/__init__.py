"""Animals in the memory of one process: everything is gone when it ends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct, UnsetType

from petstore.contract import (
    Backend,
    NewPet,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    UnavailableError,
)
from petstore_memory.shelf import Shelf


class MemorySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Memory has no settings."""


class MemoryRepository(Repository):
    """One shelf holds all animals, and one per status those that a filter asks for.

    No method awaits between a check and its change, so each is atomic on the event loop.
    """

    def __init__(self) -> None:
        self._all = Shelf()
        self._by_status = {status: Shelf() for status in PetStatus}
        self._last_id = 0
        self._open = True

    async def create_pet(self, new: NewPet) -> Receipt:
        """Store the animal under the next id."""
        self._check_open()
        self._last_id += 1
        pet = Pet(self._last_id, new.name, new.category_id, new.status)
        self._all.put(pet)
        if not isinstance(pet.status, UnsetType):
            self._by_status[pet.status].put(pet)
        return Receipt(pet.id)

    async def get_pet(self, pet_id: int) -> Pet | None:
        """Find the animal on the shelf of all."""
        self._check_open()
        return self._all.get(pet_id)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        """Cut the page out of the shelf of the status, or of all."""
        self._check_open()
        shelf = self._all if status is None else self._by_status[status]
        return shelf.page(after, count)

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
