"""Compare the cost of a page in a small store and in a large one, and of an animal in bytes.

Run: .venv/bin/python -m benchmarks.pages [--backend NAME ...] [ANIMALS ...]
(default: memory, sqlite and redis with 1,000 and 1,000,000; memory also with 10,000,000 if asked)

Fills stores in this process and prints, for each, microseconds a call, the median of five rounds,
48 at a time: the first page of 20 (21 are asked for) encoded as JSON, a page at a random place, the
same with a filter, one by its id; for animals also adding one, and ordering one and cancelling the
order. On memory it prints bytes an animal (resident size), too. Redis is a server of its own.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from time import perf_counter

import msgspec
import petstore_memory
import petstore_redis
import petstore_sqlite
import uvloop

from backends.redis.tests.servers import single
from petstore.contract import (
    PET_STATUS_BY_ORDER,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Repository,
)

CALLERS = 48
CALLS = 4800
CHUNK = 1000
NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATUSES = tuple(PetStatus)
ORDER_STATUSES = tuple(OrderStatus)
ANIMALS = ("animals", "bytes", "first", "deep", "filtered", "get", "create", "order")
ORDERS = ("orders", "first", "deep", "filtered", "get")

encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def opened(backend: str, directory: str) -> AsyncIterator[Repository]:
    """Open an empty store."""
    if backend == "memory":
        async with petstore_memory.open_memory(petstore_memory.MemorySettings()) as memory:
            yield memory
    elif backend == "sqlite":
        path = Path(directory) / f"{random.random()}.sqlite"
        async with petstore_sqlite.open_sqlite(petstore_sqlite.SqliteSettings(str(path))) as file:
            yield file
    else:
        with single(Path(directory), "appendonly yes", "appendfsync always") as server:
            settings = petstore_redis.RedisSettings(
                f"redis://127.0.0.1:{server.port}", timeout_seconds=10
            )
            async with petstore_redis.open_redis(settings) as redis:
                yield redis


def resident_bytes() -> int:
    """Return the resident size of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def fill(
    repository: Repository, count: int, item: Callable[[int], list[Pet | Order]]
) -> None:
    """Restore so many animals, or orders with theirs; say on a terminal how far it has come."""
    for start in range(1, count + 1, CHUNK):
        numbers = range(start, min(start + CHUNK, count + 1))
        await repository.restore([part for number in numbers for part in item(number)])
        if sys.stderr.isatty():
            print(f"\r{start:,} of {count:,}", end="", file=sys.stderr)


def animal(number: int) -> list[Pet | Order]:
    """Return an animal with a name of 8 characters, a small category and one of the statuses."""
    return [Pet(number, f"pet{number % 100_000:05}", number % 10, STATUSES[number % 3])]


def order(number: int) -> list[Pet | Order]:
    """Return an order with its animal: placed, completed and cancelled ones in turn."""
    status = ORDER_STATUSES[number % 3]
    at = NOW + timedelta(microseconds=number)
    pet = Pet(number, f"pet{number % 100_000:05}", number % 10, PET_STATUS_BY_ORDER[status])
    return [pet, Order(number, number, status, at)]


async def measure(call: Callable[[], Awaitable[object]]) -> float:
    """Return microseconds a call, the median of five rounds."""

    async def keep_calling() -> None:
        for _ in range(CALLS // CALLERS):
            await call()

    rounds = []
    for _ in range(5):
        begin = perf_counter()
        await asyncio.gather(*(keep_calling() for _ in range(CALLERS)))
        rounds.append((perf_counter() - begin) / CALLS * 1e6)
    return statistics.median(rounds)


async def animals(repository: Repository, count: int) -> list[float]:
    """Return what the columns of animals say."""
    before = resident_bytes()
    await fill(repository, count, animal)
    size = (resident_bytes() - before) / count
    place = cycle([random.randrange(count) for _ in range(CALLS)])
    available = cycle(random.sample(range(3, count, 3), k=min(CALLS, count // 3 - 1)))

    async def page(after: int, status: PetStatus | None = None) -> bytes:
        return encode(await repository.list_pets(after, 21, status))

    async def move() -> None:
        receipt = await repository.place_order(next(available), NOW)
        await repository.update_order(receipt.id, OrderStatus.CANCELLED)

    return [
        size,
        await measure(lambda: page(0)),
        await measure(lambda: page(next(place))),
        await measure(lambda: page(next(place), PetStatus.SOLD)),
        await measure(lambda: repository.get_pet(next(place) + 1)),
        await measure(lambda: repository.create_pet(NewPet("Rex", 7, PetStatus.SOLD))),
        await measure(move),
    ]


async def orders(repository: Repository, count: int) -> list[float]:
    """Return what the columns of orders say."""
    await fill(repository, count, order)
    place = cycle([random.randrange(count) for _ in range(CALLS)])

    async def page(after: int, status: OrderStatus | None = None) -> bytes:
        return encode(await repository.list_orders(after, 21, status))

    return [
        await measure(lambda: page(0)),
        await measure(lambda: page(next(place))),
        await measure(lambda: page(next(place), OrderStatus.COMPLETED)),
        await measure(lambda: repository.get_order(next(place) + 1)),
    ]


async def main(backends: list[str], counts: list[int]) -> None:
    """Print two tables for each backend."""
    for backend in backends:
        for heads, row in ((ANIMALS, animals), (ORDERS, orders)):
            print(f"{backend:>8}" + "".join(f"{head:>12}" for head in heads))
            for count in counts:
                with tempfile.TemporaryDirectory() as directory:
                    async with opened(backend, directory) as repository:
                        figures = await row(repository, count)
                shown = [f"{figure:.2f}" for figure in figures]
                if row is animals and (backend != "memory" or count < 100_000):
                    shown[0] = "-"  # what another process takes, or too little to be told
                print(f"{'':8}{count:>12,}" + "".join(f"{text:>12}" for text in shown))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", action="append")
    parser.add_argument("counts", nargs="*", type=int, default=[1000, 1_000_000])
    given = parser.parse_args()
    uvloop.run(main(given.backend or ["memory", "sqlite", "redis"], given.counts))
