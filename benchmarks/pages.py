"""Compare the cost of a page in a small store and in a large one, and of an animal in bytes.

Run: .venv/bin/python benchmarks/pages.py [ANIMALS ...]    (default: 1000 1000000 10000000)

Fills memory repositories in this process and prints, for each, bytes per animal (resident size)
and microseconds per call, median of five rounds: the first page of 20 (21 animals are asked for),
a page at a random place, the same with a filter, one animal by id, adding one, and ordering one and
cancelling the order.
"""

import asyncio
import random
import statistics
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from petstore_memory import MemoryRepository

from petstore.contract import NewPet, OrderStatus, PetStatus, Repository

CALLS = 4000
NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATUSES = tuple(PetStatus)


def resident_bytes() -> int:
    """Return the resident size of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def fill(repository: Repository, count: int) -> None:
    """Add animals with a name of 8 characters, a small category and one of the statuses."""
    for number in range(count):
        name = f"pet{number % 100_000:05}"
        await repository.create_pet(NewPet(name, number % 10, STATUSES[number % 3]))
        if sys.stderr.isatty() and number % 500_000 == 0:
            print(f"\r{number:,} of {count:,}", end="", file=sys.stderr)


async def measure(call: Callable[[], Awaitable[object]]) -> float:
    """Return microseconds per call, the median of five rounds."""
    rounds = []
    for _ in range(5):
        begin = perf_counter()
        for _ in range(CALLS):
            await call()
        rounds.append((perf_counter() - begin) / CALLS * 1e6)
    return statistics.median(rounds)


async def move(repository: MemoryRepository, pet_id: int) -> None:
    """Order an animal and cancel the order."""
    receipt = await repository.place_order(pet_id, NOW)
    await repository.update_order(receipt.id, OrderStatus.CANCELLED)


async def main(counts: list[int]) -> None:
    """Print the table."""
    print(
        f"{'animals':>12}{'bytes':>8}{'first':>8}{'deep':>8}{'filter':>8}{'get':>8}{'create':>8}{'move':>8}"
    )
    for count in counts:
        before = resident_bytes()
        repository = MemoryRepository()
        await fill(repository, count)
        size = (resident_bytes() - before) / count
        places = [random.randrange(count) for _ in range(CALLS)]
        place = iter(places * 100)
        calls = [
            lambda r=repository: r.list_pets(0, 21, None),
            lambda r=repository: r.list_pets(next(place), 21, None),  # noqa: B023 - used at once
            lambda r=repository: r.list_pets(next(place), 21, PetStatus.SOLD),  # noqa: B023
            lambda r=repository: r.get_pet(next(place) + 1),  # noqa: B023
            lambda r=repository: r.create_pet(NewPet("Rex", 7, PetStatus.SOLD)),
            lambda r=repository: move(r, next(place) + 1),  # noqa: B023
        ]
        figures = [await measure(call) for call in calls]
        shown = f"{size:8.0f}" if count >= 100_000 else f"{'-':>8}"
        print(f"{count:>12,}{shown}" + "".join(f"{figure:8.2f}" for figure in figures))


if __name__ == "__main__":
    asyncio.run(main([int(word) for word in sys.argv[1:]] or [1000, 1_000_000, 10_000_000]))
