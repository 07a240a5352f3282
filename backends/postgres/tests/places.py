"""Stores on PostgreSQL for the tests outside the kit, and calls that fail."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import Any, Final

import asyncpg
from petstore_conformance.harness.kit import ANY_STORE
from petstore_postgres import PostgresRepository, PostgresSettings, open_postgres

from backends.postgres.tests.servers import Server, until
from petstore.contract import Expected, SettingsError, StorageError, UnavailableError
from petstore.store.watched import CHECK_SECONDS
from tests.support import repositories
from tests.support.repositories import count_with_rex, refused
from tests.support.waiting import PATIENCE

TIMEOUT: Final = 20 * PATIENCE
"""Seconds. Calls that no fault delays return far sooner, even on a busy machine."""
unavailable: Final = partial(repositories.unavailable, within=TIMEOUT * 1.5)
unavailable_for: Final = partial(repositories.unavailable_for, within=TIMEOUT * 1.5)


def fresh() -> str:
    """Return the name of a schema that no test has used."""
    return f"t_{token_hex(8)}"


@asynccontextmanager
async def opened(
    place: Server | str, expected: Expected = ANY_STORE, *, watched: bool = True, **settings: Any
) -> AsyncIterator[PostgresRepository]:
    """Open a store, in an unused schema unless one is given.

    watched -- whether to check it as the service does, each second, over the same connections
    """
    url = place if isinstance(place, str) else place.url()
    settings = {"schema": fresh(), "timeout_seconds": TIMEOUT, **settings}
    async with open_postgres(PostgresSettings(url, **settings), expected) as repository:
        watch = asyncio.create_task(_watch(repository)) if watched else None
        try:
            yield repository
        finally:
            if watch is not None:
                watch.cancel()


async def _watch(repository: PostgresRepository) -> None:
    """Check the store once a second, as the service does."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        with suppress(UnavailableError):
            await repository.check()


@asynccontextmanager
async def session(server: Server) -> AsyncIterator[Any]:
    """Yield a connection of another client."""
    connection = await asyncpg.connect(server.url(sslmode="disable"))
    try:
        yield connection
    finally:
        connection.terminate()


def refusal(place: Server | str, error: type[StorageError] = SettingsError, **settings: Any) -> str:
    """Check that a store is refused with one line; return it."""
    return refused(opened(place, **settings), error)


def create(place: Server | str, **settings: Any) -> int:
    """Open a store and add a pet; return how many there are."""
    return count_with_rex(opened(place, **settings))


async def until_unavailable(reason: str, call: Callable[[], Awaitable[object]]) -> None:
    """Call until it is unavailable for this reason; it may succeed, or fail otherwise, before."""

    async def refused() -> None:
        result = (await asyncio.gather(call(), return_exceptions=True))[0]
        assert isinstance(result, UnavailableError)
        assert reason in str(result)

    await repositories.again(refused, AssertionError)


async def until_waiting(server: Server, count: int) -> None:
    """Wait until at least this many sessions wait for a lock."""
    sql = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    await asyncio.to_thread(until, lambda: len(server.fetch(sql)) >= count)
