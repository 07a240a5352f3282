"""Stores on Redis for the tests outside the kit, calls that fail, and load."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from statistics import median
from time import monotonic
from typing import Any, Final

from petstore_conformance.faults.proxy import Proxy
from petstore_redis import RedisRepository, RedisSettings, open_redis

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of
from petstore.contract import Expected, Pet, Receipt, UnavailableError
from tests.support import repositories
from tests.support.repositories import REX
from tests.support.waiting import PATIENCE

TIMEOUT: Final = 20 * PATIENCE
"""Seconds. Calls that no fault delays return far sooner, even on a busy machine."""
unavailable: Final = partial(repositories.unavailable, within=TIMEOUT / 2)
unavailable_for: Final = partial(repositories.unavailable_for, within=TIMEOUT / 2)
FAILOVERS: Final = int(os.environ.get("PETSTORE_FAILOVERS", "1"))
_numbers = count()


def fresh() -> str:
    """Return a prefix that no test has used."""
    return f"t{os.getpid()}.{next(_numbers)}"


def opened(
    place: Server | Sentinels | Cluster | Proxy | str, **settings: Any
) -> AbstractAsyncContextManager[RedisRepository]:
    """Open a store, with an unused prefix unless one is given."""
    if isinstance(place, Proxy):
        url = f"redis://127.0.0.1:{place.port}"
    else:
        url = place if isinstance(place, str) else url_of(place)
    expected = settings.pop("expected", Expected())
    settings = {"prefix": fresh(), "timeout_seconds": TIMEOUT, **settings}
    return open_redis(RedisSettings(url, **settings), expected)


async def unavailable_at_once(call: Callable[[], Awaitable[object]]) -> set[str]:
    """Check that most of twenty calls fail without waiting for anything; return the messages."""
    taken, messages = [], set()
    for _ in range(20):
        begin = monotonic()
        messages.add(await unavailable(call()))
        taken.append(monotonic() - begin)
    assert median(taken) < 0.5  # the shortest time limit of a call is a second
    return messages


class Load:
    """Adds pets continuously; records the acknowledged ids and the longest pause between them."""

    def __init__(self, repository: RedisRepository) -> None:
        self.repository = repository
        self.acknowledged: list[int] = []
        self.pause = 0.0
        self.failures: list[BaseException] = []

    async def _add(self) -> None:
        last = monotonic()
        while True:
            try:
                receipt: Receipt = await self.repository.create_pet(REX)
            except UnavailableError:
                await asyncio.sleep(0.01)
            except Exception as error:
                self.failures.append(error)
                raise
            else:
                self.acknowledged.append(receipt.id)
                self.pause = max(self.pause, monotonic() - last)
                last = monotonic()
                await asyncio.sleep(0.002)

    @asynccontextmanager
    async def running(self, tasks: int = 4) -> AsyncIterator["Load"]:
        """Run tasks until the block exits."""
        running = [asyncio.ensure_future(self._add()) for _ in range(tasks)]
        try:
            await asyncio.sleep(0.1)
            yield self
            await asyncio.sleep(0.2)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def check(self, stored: Iterable[Pet] | None) -> None:
        """Check that no other error occurred, no id was assigned twice, no pet was lost."""
        assert self.failures == []
        assert len(set(self.acknowledged)) == len(self.acknowledged) > 0
        if stored is not None:
            assert set(self.acknowledged) <= {pet.id for pet in stored}
