"""Stores to be moved, for the tests."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import UNSET

from petstore import backends
from petstore.contract import NewPet, Order, OrderStatus, Pet, PetStatus, Repository
from tests.live import environment, place

DURABLE = ["sqlite", "redis"]
MOVED = int(os.environ.get("PETSTORE_MOVED", "3000"))
"""How many animals a store has that is moved."""

AT = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
NAMES = ("Rex", "", " \0 ", "\U0001f436", "\u2028", 'quoted "\\"', "x" * 300)
STATUSES = (PetStatus.AVAILABLE, PetStatus.PENDING, UNSET, PetStatus.AVAILABLE, PetStatus.SOLD)

Result = TypeVar("Result")


def settings(backend: str, directory: Path) -> dict[str, str]:
    """Return the settings of a place of a backend in a directory, which is made."""
    directory.mkdir(exist_ok=True)
    patience = {"redis_timeout_seconds": "20"} if backend == "redis" else {}  # for `contents`
    return {"backend": backend, **patience, **place(backend, directory)}


def within(chosen: dict[str, str], use: Callable[[Repository], Awaitable[Result]]) -> Result:
    """Open a repository with these settings, and return what `use` makes of it."""
    plugin = backends.find(chosen["backend"])
    storage = backends.configure(plugin, environment(**chosen))

    async def run() -> Result:
        async with plugin.backend.open(storage) as repository:
            return await use(repository)

    return asyncio.run(run())


async def fill(repository: Repository, count: int) -> None:
    """Add so many animals, and orders of every status for some of them."""

    async def add(number: int) -> None:
        status = STATUSES[number % len(STATUSES)]
        await repository.create_pet(NewPet(NAMES[number % 7], number * 2**45 - 2**62, status))

    async def order(number: int) -> None:
        for turn in range(1 + number % 3):
            at = AT + timedelta(microseconds=number, days=turn)
            receipt = await repository.place_order(found[number].id, at)
            last = turn == number % 3
            if not last or number % 4:
                status = OrderStatus.COMPLETED if last and number % 2 else OrderStatus.CANCELLED
                await repository.update_order(receipt.id, status)

    await _each(count, add)
    found = await repository.list_pets(0, count // 20, PetStatus.AVAILABLE)
    await _each(len(found), order)


async def _each(count: int, do: Callable[[int], Awaitable[None]]) -> None:
    """Do something for so many numbers, few enough at once for a storage to keep its time-outs."""
    for begin in range(0, count, 200):
        await asyncio.gather(*(do(n) for n in range(begin, min(begin + 200, count))))


async def contents(repository: Repository) -> tuple[list[Pet], list[Order]]:
    """Return all that is stored."""
    pets = await repository.list_pets(0, 10**9, None)
    return list(pets), list(await repository.list_orders(0, 10**9, None))
