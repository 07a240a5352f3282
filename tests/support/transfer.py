"""Stores with pets and orders, to be exported and imported."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from msgspec import UNSET

from petstore.config import discovery
from petstore.contract import (
    Expected,
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
)
from petstore.transfer import ndjson
from tests.support.services import environment, place

DURABLE = ["sqlite", "redis", "postgres"]
TRANSFERRED = int(os.environ.get("PETSTORE_TRANSFERRED", "1300"))
"""The number of pets in a store that is transferred."""

AT = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
NAMES = ("Rex", "", " \0 ", "\U0001f436", "\u2028", 'quoted "\\"', "x" * 300)
STATUSES = (PetStatus.AVAILABLE, PetStatus.PENDING, UNSET, PetStatus.AVAILABLE, PetStatus.SOLD)

Result = TypeVar("Result")


def place_settings(backend: str, directory: Path) -> dict[str, str]:
    """Create a directory; return the settings that give a backend an empty place in it."""
    directory.mkdir(exist_ok=True)
    # For `contents`, which reads all pets at once.
    timeout = {f"{backend}_timeout_seconds": "20"} if backend in {"redis", "postgres"} else {}
    return {"backend": backend, **place(backend, directory), **timeout}


def with_repository(
    chosen: dict[str, str], use: Callable[[Repository], Awaitable[Result]]
) -> Result:
    """Open a repository with these settings, and return the result of `use`."""
    plugin = discovery.find(chosen["backend"])
    storage = discovery.configure(plugin, environment(**chosen))

    async def run() -> Result:
        async with plugin.backend.open(storage, Expected()) as repository:
            return await use(repository)

    return asyncio.run(run())


def export_of(lines: Iterable[bytes]) -> bytes:
    """Return an export of these lines: it ends with how many there are of each kind."""
    lines = list(lines)
    counts = Counter(type(ndjson.decode(line)) for line in lines)
    return b"".join([*lines, ndjson.encode_end(dict.fromkeys(ndjson.MEMBERS, 0) | counts)])


async def fill(repository: Repository, count: int) -> None:
    """Add `count` pets, and orders of every status for some; every tenth pet with a token."""
    now = int(time.time())

    async def add(index: int) -> None:
        status = STATUSES[index % len(STATUSES)]
        new = NewPet(NAMES[index % 7], index * 2**45 - 2**62, status)
        value = sha256(str(index).encode()).digest()
        token = IdempotencyToken(value, bytes(32), now, now + 86400) if index % 10 == 0 else None
        await repository.create_pet(new, token)

    async def order(index: int) -> None:
        for turn in range(1 + index % 3):
            at = AT + timedelta(microseconds=index, days=turn)
            receipt = await repository.place_order(available[index].id, at)
            last = turn == index % 3
            if not last or index % 4:
                status = OrderStatus.COMPLETED if last and index % 2 else OrderStatus.CANCELLED
                await repository.update_order(receipt.id, status)

    await _each(count, add)
    available = await repository.list_pets(PetQuery(0, count // 20, PetStatus.AVAILABLE))
    await _each(len(available), order)


async def _each(count: int, do: Callable[[int], Awaitable[None]]) -> None:
    """Call `do` with 0 to `count` - 1, only 200 at once so that no storage call times out."""
    for begin in range(0, count, 200):
        await asyncio.gather(*(do(n) for n in range(begin, min(begin + 200, count))))


async def contents(repository: Repository) -> tuple[list[Pet], list[Order]]:
    """Return everything that is stored."""
    pets = await repository.list_pets(PetQuery(0, 10**9))
    return list(pets), await repository.list_orders(OrderQuery(0, 10**9))
