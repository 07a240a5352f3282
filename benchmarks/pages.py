"""Compare the cost of a page in a small store and in a large one, and of an animal in bytes.

Run: .venv/bin/python benchmarks/pages.py [ANIMALS ...]    (default: 1000 1000000 10000000)

Fills memory repositories in this process and prints, for each, bytes per animal (resident size)
and microseconds per call, median of five rounds: the first page of 20 (21 are asked for), a page at
a random place, the same with a filter, one by its id; for animals also adding one, and ordering one
and cancelling the order.
"""

import asyncio
import random
import statistics
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from time import perf_counter

from petstore_memory import MemoryRepository

from petstore.contract import NewPet, OrderStatus, PetStatus, Repository

CALLS = 4000
NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATUSES = tuple(PetStatus)
ORDER_STATUSES = tuple(OrderStatus)
ANIMALS = ("animals", "bytes", "first", "deep", "filtered", "get", "create", "order")
ORDERS = ("orders", "first", "deep", "filtered", "get")


def resident_bytes() -> int:
    """Return the resident size of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def show_progress(number: int, count: int) -> None:
    """Say on a terminal how far a long loop has come."""
    if sys.stderr.isatty() and number % 500_000 == 0:
        print(f"\r{number:,} of {count:,}", end="", file=sys.stderr)


async def fill(repository: Repository, count: int) -> None:
    """Add animals with a name of 8 characters, a small category and one of the statuses."""
    for number in range(count):
        name = f"pet{number % 100_000:05}"
        await repository.create_pet(NewPet(name, number % 10, STATUSES[number % 3]))
        show_progress(number, count)


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


async def animals(count: int) -> list[float]:
    """Return what the columns of animals say."""
    before = resident_bytes()
    repository = MemoryRepository()
    await fill(repository, count)
    size = (resident_bytes() - before) / count
    place = cycle([random.randrange(count) for _ in range(CALLS)])
    return [
        size,
        await measure(lambda: repository.list_pets(0, 21, None)),
        await measure(lambda: repository.list_pets(next(place), 21, None)),
        await measure(lambda: repository.list_pets(next(place), 21, PetStatus.SOLD)),
        await measure(lambda: repository.get_pet(next(place) + 1)),
        await measure(lambda: repository.create_pet(NewPet("Rex", 7, PetStatus.SOLD))),
        await measure(lambda: move(repository, next(place) // 3 * 3 + 1)),
    ]


async def orders(count: int) -> list[float]:
    """Return what the columns of orders say: placed, completed and cancelled ones in turn."""
    repository = MemoryRepository()
    for number in range(count):
        pet = await repository.create_pet(NewPet("Rex", 7, PetStatus.AVAILABLE))
        receipt = await repository.place_order(pet.id, NOW + timedelta(microseconds=number))
        await repository.update_order(receipt.id, ORDER_STATUSES[number % 3])
        show_progress(number, count)
    place = cycle([random.randrange(count) for _ in range(CALLS)])
    return [
        await measure(lambda: repository.list_orders(0, 21, None)),
        await measure(lambda: repository.list_orders(next(place), 21, None)),
        await measure(lambda: repository.list_orders(next(place), 21, OrderStatus.COMPLETED)),
        await measure(lambda: repository.get_order(next(place) + 1)),
    ]


async def main(counts: list[int]) -> None:
    """Print the two tables."""
    for heads, row in ((ANIMALS, animals), (ORDERS, orders)):
        print("".join(f"{head:>12}" for head in heads))
        for count in counts:
            print(f"{count:>12,}" + "".join(f"{figure:>12.2f}" for figure in await row(count)))


if __name__ == "__main__":
    asyncio.run(main([int(word) for word in sys.argv[1:]] or [1000, 1_000_000, 10_000_000]))
