"""REPLACE THIS MODULE: it stands in for your server and its client.

What the rest needs of it: `connect`, and a client that runs a step as one transaction.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

_Result = TypeVar("_Result")

_SERVER: dict[str, sqlite3.Connection] = {}
"""The databases that the server keeps, by prefix."""


class StandInClient:
    """A connection, which works on what is stored under a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def run(self, step: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a step on the server, completely or not at all, and return what it returns."""
        await asyncio.sleep(0)  # the request
        if self._prefix not in _SERVER:
            _SERVER[self._prefix] = sqlite3.connect(":memory:", check_same_thread=False)
        with _SERVER[self._prefix] as connection:
            result = step(connection)
        await asyncio.sleep(0)  # the reply
        return result

    async def remove(self) -> None:
        """Remove what is stored under the prefix."""
        await asyncio.sleep(0)
        if database := _SERVER.pop(self._prefix, None):
            database.close()

    async def stored(self) -> dict[str, int]:
        """Return all prefixes of the server, and how many pets are stored under each."""
        await asyncio.sleep(0)
        count = "SELECT count(*) FROM pets"
        return {prefix: stored.execute(count).fetchone()[0] for prefix, stored in _SERVER.items()}


@asynccontextmanager
async def connect(_url: str, prefix: str) -> AsyncIterator[StandInClient]:
    """Yield a client of the server, and close it on exit."""
    yield StandInClient(prefix)
