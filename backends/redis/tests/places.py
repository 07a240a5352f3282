"""Helpers of the tests outside the kit: opening a store, waiting, tokens, load."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from statistics import median
from time import monotonic
from typing import Any, Final

import pytest
from petstore_redis import RedisRepository, RedisSettings, open_redis

from backends.redis.tests.proxy import Proxy
from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of
from petstore.contract import (
    IdempotencyToken,
    NewPet,
    Pet,
    PetStatus,
    Receipt,
    StorageError,
    UnavailableError,
)

AT: Final = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
REX: Final = NewPet("Rex", 7, PetStatus.AVAILABLE)
TIMEOUT: Final = 3.0
"""Seconds. Calls that no fault delays return far sooner, even on a busy machine."""
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
    guard = settings.pop("guard", True)
    settings = {"prefix": fresh(), "timeout_seconds": TIMEOUT, **settings}
    return open_redis(RedisSettings(url, **settings), guard=guard)


async def pets(repository: RedisRepository) -> list[Pet]:
    """Return all pets."""
    return list(await repository.list_pets(0, 100_000, None))


async def unavailable(call: Awaitable[object], within: float = TIMEOUT / 2) -> str:
    """Check that a call fails as unavailable within some seconds; return the message."""
    begin = monotonic()
    with pytest.raises(UnavailableError) as caught:
        await call
    assert monotonic() - begin < within
    message = str(caught.value)
    assert "\n" not in message
    return message


async def unavailable_for(reason: str, call: Callable[[], Awaitable[object]]) -> None:
    """Call until it is unavailable for this reason; it is unavailable all the time."""
    end = monotonic() + 10
    while reason not in await unavailable(call()):
        assert monotonic() < end
        await asyncio.sleep(0.01)


async def unavailable_at_once(call: Callable[[], Awaitable[object]]) -> set[str]:
    """Check that most of twenty calls fail within 20 milliseconds; return the messages."""
    taken, messages = [], set()
    for _ in range(20):
        begin = monotonic()
        messages.add(await unavailable(call()))
        taken.append(monotonic() - begin)
    assert median(taken) < 0.02
    return messages


async def again(
    call: Callable[[], Awaitable[Any]], error: type[StorageError] = UnavailableError
) -> Any:
    """Call until it no longer raises this error; return the result."""
    end = monotonic() + 10
    while True:
        try:
            return await call()
        except error:
            assert monotonic() < end
            await asyncio.sleep(0.02)


def make_token(value: int, body: int = 0, now: int = 0, until: int = 1000) -> IdempotencyToken:
    """Return a token. Its value modulo the number of partitions is its own partition.

    body -- stands for the write that the token identifies
    """
    return IdempotencyToken(value.to_bytes(8) + bytes(24), body.to_bytes(32), now, until)


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
