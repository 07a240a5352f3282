"""Compare the cost of a page in a small store and in a large one, and show bytes per pet.

Run: .venv/bin/python -m benchmarks.pages [--backend NAME ...] [PETS ...]
(default: memory, sqlite, redis and postgres with 1,000 and 1,000,000)

Fills stores in this process and prints microseconds per call for each, the median of five rounds,
48 at a time: the first page of 20 (21 are read) encoded as JSON, a page at a random position, the
same with a filter, one item by its id; for pets also adding one, and ordering one and cancelling
the order. On memory it also prints bytes per pet (resident size). Redis is a separate server.
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
import petstore_postgres
import petstore_redis
import petstore_sqlite
import uvloop

from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from petstore.contract import (
    PET_STATUS_BY_ORDER,
    Expected,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
)

CALLERS = 48
CALLS = 4800
CHUNK = 1000
NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATUSES = tuple(PetStatus)
ORDER_STATUSES = tuple(OrderStatus)
PET_COLUMNS = ("pets", "bytes", "first", "deep", "filtered", "get", "create", "order")
ORDER_COLUMNS = ("orders", "first", "deep", "filtered", "get")

encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def opened(backend: str, directory: str) -> AsyncIterator[Repository]:
    """Open an empty store."""
    if backend == "memory":
        nothing = petstore_memory.MemorySettings()
        async with petstore_memory.open_memory(nothing, Expected()) as memory:
            yield memory
    elif backend == "sqlite":
        path = Path(directory) / f"{random.random()}.sqlite"
        at = petstore_sqlite.SqliteSettings(str(path))
        async with petstore_sqlite.open_sqlite(at, Expected()) as file:
            yield file
    elif backend == "postgres":
        with postgres_server() as running:
            url = running.url(sslmode="disable")
            given = petstore_postgres.PostgresSettings(url, timeout_seconds=10)
            async with petstore_postgres.open_postgres(given, Expected()) as postgres:
                yield postgres
    else:
        with single(Path(directory), *AOF) as server:
            settings = petstore_redis.RedisSettings(
                f"redis://127.0.0.1:{server.port}", timeout_seconds=10
            )
            async with petstore_redis.open_redis(settings, Expected()) as redis:
                yield redis


def resident_bytes() -> int:
    """Return the resident size of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def fill(
    repository: Repository, count: int, item: Callable[[int], list[Pet | Order]]
) -> None:
    """Restore `count` pets, or their orders after them; show the progress on a terminal."""
    for start in range(1, count + 1, CHUNK):
        ids = range(start, min(start + CHUNK, count + 1))
        parts = (part for id_ in ids for part in item(id_))
        await repository.restore(sorted(parts, key=lambda part: isinstance(part, Order)))
        if sys.stderr.isatty():
            print(f"\r{start:,} of {count:,}", end="", file=sys.stderr)


def pet_items(id_: int) -> list[Pet | Order]:
    """Return a pet with a name of 8 characters, a small category and one of the statuses."""
    return [Pet(id_, f"pet{id_ % 100_000:05}", id_ % 10, STATUSES[id_ % 3])]


def order_items(id_: int) -> list[Pet | Order]:
    """Return a pet and its order: placed, completed and cancelled ones in turn."""
    status = ORDER_STATUSES[id_ % 3]
    at = NOW + timedelta(microseconds=id_)
    pet = Pet(id_, f"pet{id_ % 100_000:05}", id_ % 10, PET_STATUS_BY_ORDER[status])
    return [pet, Order(id_, id_, status, at)]


async def measure(call: Callable[[], Awaitable[object]]) -> float:
    """Return microseconds per call, the median of five rounds."""

    async def keep_calling() -> None:
        for _ in range(CALLS // CALLERS):
            await call()

    rounds = []
    for _ in range(5):
        begin = perf_counter()
        await asyncio.gather(*(keep_calling() for _ in range(CALLERS)))
        rounds.append((perf_counter() - begin) / CALLS * 1e6)
    return statistics.median(rounds)


async def pet_figures(repository: Repository, count: int) -> list[float]:
    """Return the figures of `PET_COLUMNS`, without the first."""
    before = resident_bytes()
    await fill(repository, count, pet_items)
    size = (resident_bytes() - before) / count
    position = cycle([random.randrange(count) for _ in range(CALLS)])
    available = cycle(random.sample(range(3, count, 3), k=min(CALLS, count // 3 - 1)))

    async def page(after: int, status: PetStatus | None = None) -> bytes:
        return encode(await repository.list_pets(PetQuery(after, 21, status)))

    async def order_and_cancel() -> None:
        receipt = await repository.place_order(next(available), NOW)
        await repository.update_order(receipt.id, OrderStatus.CANCELLED)

    return [
        size,
        await measure(lambda: page(0)),
        await measure(lambda: page(next(position))),
        await measure(lambda: page(next(position), PetStatus.SOLD)),
        await measure(lambda: repository.get_pet(next(position) + 1)),
        await measure(lambda: repository.create_pet(NewPet("Rex", 7, PetStatus.SOLD))),
        await measure(order_and_cancel),
    ]


async def order_figures(repository: Repository, count: int) -> list[float]:
    """Return the figures of `ORDER_COLUMNS`, without the first."""
    await fill(repository, count, order_items)
    position = cycle([random.randrange(count) for _ in range(CALLS)])

    async def page(after: int, status: OrderStatus | None = None) -> bytes:
        return encode(await repository.list_orders(OrderQuery(after, 21, status)))

    return [
        await measure(lambda: page(0)),
        await measure(lambda: page(next(position))),
        await measure(lambda: page(next(position), OrderStatus.COMPLETED)),
        await measure(lambda: repository.get_order(next(position) + 1)),
    ]


async def main(backends: list[str], counts: list[int]) -> None:
    """Print two tables for each backend."""
    for backend in backends:
        for heads, measure_row in ((PET_COLUMNS, pet_figures), (ORDER_COLUMNS, order_figures)):
            print(f"{backend:>8}" + "".join(f"{head:>12}" for head in heads))
            for count in counts:
                with tempfile.TemporaryDirectory() as directory:
                    async with opened(backend, directory) as repository:
                        figures = await measure_row(repository, count)
                shown = [f"{figure:.2f}" for figure in figures]
                if measure_row is pet_figures and (backend != "memory" or count < 100_000):
                    shown[0] = "-"  # memory of another process, or too little to measure
                print(f"{'':8}{count:>12,}" + "".join(f"{text:>12}" for text in shown))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", action="append")
    parser.add_argument("counts", nargs="*", type=int, default=[1000, 1_000_000])
    given = parser.parse_args()
    uvloop.run(main(given.backend or ["memory", "sqlite", "redis", "postgres"], given.counts))
