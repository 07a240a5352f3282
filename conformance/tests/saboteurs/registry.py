"""The registry of saboteurs, and what they share."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from conformance.tests.correct import Correct, backend
from petstore.contract import Backend, Order, Pet, PetStatus, TokenRecord


class Registry(dict[str, tuple[str, Backend]]):
    """Refuses a second saboteur of a name, which would hide the first one."""

    def __setitem__(self, name: str, saboteur: tuple[str, Backend]) -> None:
        assert name not in self, name
        super().__setitem__(name, saboteur)


SABOTEURS = Registry()
AnyCorrect = TypeVar("AnyCorrect", bound=type[Correct])


def breaks(clause: str, **promises: bool) -> Callable[[AnyCorrect], AnyCorrect]:
    """Register a saboteur, with the clause that it breaks, and what it promises if not all."""

    def register(saboteur: AnyCorrect) -> AnyCorrect:
        SABOTEURS[saboteur.__name__] = clause, replace(backend(saboteur), **promises)
        return saboteur

    return register


async def pause() -> None:
    """Wait as for a query: in turns of the event loop, so that a busy machine changes nothing."""
    for _ in range(10):
        await asyncio.sleep(0)


class Caching(Correct):
    """Empties its cache, `kept`, with each of its own writes. A saboteur fills it."""

    def add(self, item: Pet | Order) -> None:
        super().add(item)
        self.kept.clear()

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.kept.clear()

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.kept.clear()


class NotingRestored(Correct):
    """Notes the tokens of the records that it restores, in `noted`."""

    def restore_record(self, record: TokenRecord) -> None:
        super().restore_record(record)
        self.noted.add(record.value)
