"""Repositories of backends on servers: calls that fail or are repeated, stores that are refused."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

import pytest
from petstore_conformance.faults.proxy import Proxy

from petstore.contract import (
    IdempotencyToken,
    NewPet,
    OrderQuery,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
    SettingsError,
    StorageError,
    UnavailableError,
)
from tests.support.waiting import HANG_SECONDS

Opened = AbstractAsyncContextManager[Repository]

AT: Final = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
REX: Final = NewPet("Rex", 7, PetStatus.AVAILABLE)


def make_token(value: int, body: int = 0, now: int = 0, until: int = 1000) -> IdempotencyToken:
    """Return a token. In Redis its value, modulo the number of partitions, is its own partition.

    body -- stands for the write that the token identifies
    """
    return IdempotencyToken(value.to_bytes(8) + bytes(24), body.to_bytes(32), now, until)


class Noted:
    """What the only worker of a service has noted of its store."""

    def __init__(self) -> None:
        self.notes: list[bytes] = []

    def read(self) -> list[bytes]:
        """Return the last note, if there is one."""
        return self.notes

    def write(self, note: bytes) -> None:
        """Replace the note."""
        self.notes = [note]


async def pets(repository: Repository) -> list[Pet]:
    """Return all pets."""
    return await repository.list_pets(PetQuery(0, 100_000))


def refused(store: Opened, error: type[StorageError] = SettingsError) -> str:
    """Check that a store is refused with one line; return it."""

    async def run() -> None:
        async with store:
            pass

    with pytest.raises(error) as caught:
        asyncio.run(run())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def count_with_rex(store: Opened) -> int:
    """Open a store and add a pet; return how many there are."""

    async def run() -> int:
        async with store as repository:
            await repository.create_pet(REX)
            return len(await pets(repository))

    return asyncio.run(run())


async def unavailable(call: Awaitable[object], *, within: float) -> str:
    """Check that a call fails as unavailable within some seconds; return the message."""
    begin = monotonic()
    with pytest.raises(UnavailableError) as caught:
        await call
    assert monotonic() - begin < within
    message = str(caught.value)
    assert "\n" not in message
    return message


async def unavailable_for(
    reason: str, call: Callable[[], Awaitable[object]], *, within: float
) -> None:
    """Call until it is unavailable for this reason; it is unavailable all the time."""
    end = monotonic() + HANG_SECONDS
    while reason not in (found := await unavailable(call(), within=within)):
        assert monotonic() < end, found
        await asyncio.sleep(0.02)


async def again(
    call: Callable[[], Awaitable[Any]], error: type[Exception] = UnavailableError
) -> Any:
    """Call until it no longer raises this error; return the result."""
    end = monotonic() + HANG_SECONDS
    while True:
        try:
            return await call()
        except error:
            assert monotonic() < end
            await asyncio.sleep(0.02)


async def check_lost_replies(repository: Repository, front: Proxy) -> None:
    """Check that each write whose reply is lost is executed once, and no call sent again.

    front -- what the repository's only connection for writes goes through
    """
    for count in range(2, 10, 2):
        # The first one may prepare the statement, so that the lost reply is that of the commit.
        await again(lambda: repository.create_pet(REX))
        front.drop = 1
        assert "was lost" in await unavailable(repository.create_pet(REX), within=HANG_SECONDS)
        assert not front.drop
        assert len(await again(lambda: pets(repository))) == count
    first, second, *_ = await pets(repository)
    await repository.place_order(first.id, AT)
    token = make_token(7)
    front.drop = 1
    await unavailable(repository.place_order(second.id, AT, token), within=HANG_SECONDS)
    assert (await again(lambda: repository.place_order(second.id, AT, token))).replayed
    assert len(await repository.list_orders(OrderQuery(0, 9))) == 2
    assert not front.drop


async def check_cut_replies(repository: Repository, front: Proxy) -> None:
    """Check that a reply of which only the beginning arrives counts as none."""
    await asyncio.gather(*(repository.create_pet(REX) for _ in range(20)))
    for size in (1, 7, 50, 300):
        await again(lambda: pets(repository))  # it may prepare the statement
        front.cut_after = size
        await unavailable(pets(repository), within=HANG_SECONDS)
        assert len(await again(lambda: pets(repository))) == 20
