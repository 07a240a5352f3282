"""Compare the cost of a page in a small store and in a large one.

Run: .venv/bin/python -m benchmarks.pages [--backend NAME ...] [PETS ...]
(default: memory, sqlite, redis and postgres with 1,000 and 1,000,000)

Fills stores in this process and prints microseconds per call for each, the median of five rounds,
48 at a time: the first page of 20 (21 are read) encoded as JSON, a page at a random position, the
same with a filter, one pet by its id. Redis and PostgreSQL are separate servers.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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
from petstore.contract import Expected, Pet, PetQuery, PetStatus, Repository

CALLERS = 48
CALLS = 4800
CHUNK = 1000
STATUSES = tuple(PetStatus)
COLUMNS = ("pets", "first", "deep", "filtered", "get")

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


async def fill(repository: Repository, count: int) -> None:
    """Restore pets, each with a name of 8 characters, a small category and one of the statuses."""
    for start in range(1, count + 1, CHUNK):
        ids = range(start, min(start + CHUNK, count + 1))
        pets = (Pet(id_, f"pet{id_ % 100_000:05}", id_ % 10, STATUSES[id_ % 3]) for id_ in ids)
        await repository.restore([*pets])
        if sys.stderr.isatty():
            print(f"\r{start:,} of {count:,}", end="", file=sys.stderr)


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


async def figures(repository: Repository, count: int) -> list[float]:
    """Return the figures of `COLUMNS`, without the first."""
    await fill(repository, count)
    position = cycle([random.randrange(count) for _ in range(CALLS)])

    async def page(after: int, status: PetStatus | None = None) -> bytes:
        return encode(await repository.list_pets(PetQuery(after, 21, status)))

    return [
        await measure(lambda: page(0)),
        await measure(lambda: page(next(position))),
        await measure(lambda: page(next(position), PetStatus.SOLD)),
        await measure(lambda: repository.get_pet(next(position) + 1)),
    ]


async def main(backends: list[str], counts: list[int]) -> None:
    """Print a table for each backend."""
    for backend in backends:
        print(f"{backend:>8}" + "".join(f"{head:>12}" for head in COLUMNS))
        for count in counts:
            with tempfile.TemporaryDirectory() as directory:
                async with opened(backend, directory) as repository:
                    found = await figures(repository, count)
            print(f"{'':8}{count:>12,}" + "".join(f"{figure:>12.2f}" for figure in found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", action="append")
    parser.add_argument("counts", nargs="*", type=int, default=[1000, 1_000_000])
    given = parser.parse_args()
    uvloop.run(main(given.backend or ["memory", "sqlite", "redis", "postgres"], given.counts))
