"""A repository that keeps every clause, in as little code as that takes.

It is shared and durable within this process: its stores outlive its openings.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count as counter
from typing import Any

from msgspec import Struct

from petstore.contract import (
    Backend,
    NewPet,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    UnavailableError,
)


class PlaceSettings(Struct, frozen=True):
    """Where a store lives."""

    place: str = "given"


class Store:
    """What outlives an opening."""

    def __init__(self) -> None:
        self.pets: dict[int, Pet] = {}
        self.last = 0


STORES: defaultdict[str, Store] = defaultdict(Store)
PLACES = counter()


class Honest(Repository):
    """Keeps every clause."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.open = True

    async def create_pet(self, new: NewPet) -> Receipt:
        self.check()
        await asyncio.sleep(0)
        number = self.next_id()
        self.put(Pet(number, new.name, new.category_id, new.status))
        return Receipt(number)

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.check()
        return self.store.pets.get(pet_id)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        self.check()
        return self.matching(after, status)[:count]

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        pets = sorted(self.store.pets.values(), key=lambda pet: pet.id)
        return [pet for pet in pets if pet.id > after and status in (None, pet.status)]

    def next_id(self) -> int:
        self.store.last += 1
        return self.store.last

    def put(self, pet: Pet) -> None:
        self.store.pets[pet.id] = pet

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
