"""Stores on PostgreSQL for the tests outside the kit, and calls that fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import Any, Final

import asyncpg
from petstore_postgres import PostgresRepository, PostgresSettings, open_postgres

from backends.postgres.tests.servers import Server, until
from petstore.contract import SettingsError, StorageError
from tests.support import repositories
from tests.support.repositories import count_with_rex, refused

TIMEOUT: Final = 5.0
"""Seconds. Calls that no fault delays return far sooner, even on a busy machine."""
unavailable: Final = partial(repositories.unavailable, within=TIMEOUT * 1.5)
unavailable_for: Final = partial(repositories.unavailable_for, within=TIMEOUT * 1.5)


def fresh() -> str:
    """Return the name of a schema that no test has used."""
    return f"t_{token_hex(8)}"


def opened(place: Server | str, **settings: Any) -> AbstractAsyncContextManager[PostgresRepository]:
    """Open a store, in an unused schema unless one is given."""
    url = place if isinstance(place, str) else place.url()
    settings = {"schema": fresh(), "timeout_seconds": TIMEOUT, **settings}
    return open_postgres(PostgresSettings(url, **settings))


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


async def until_waiting(server: Server, count: int) -> None:
    """Wait until at least this many sessions wait for a lock."""
    sql = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    await asyncio.to_thread(until, lambda: len(server.fetch(sql)) >= count)
