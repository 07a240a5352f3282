"""REPLACE THIS MODULE: it stands in for your server and its client.

What the rest needs of it: `connect`, and a client that runs a step as one transaction.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Generic, TypeVar

from petstore.contract import MAX_ID, Order, Pet, TokenRecord

_Item = TypeVar("_Item", bound=Pet | Order)
_Result = TypeVar("_Result")


class StandInTable(Generic[_Item]):
    """The rows of a table, with an index by id and one by status."""

    def __init__(self) -> None:
        self._rows: dict[int, _Item] = {}
        self._ids: dict[StrEnum | None, list[int]] = {None: []}
        self.last_id = 0

    def get(self, id_: int) -> _Item | None:
        """Return a row, or None."""
        return self._rows.get(id_)

    def page(self, after: int, count: int, status: StrEnum | None) -> list[_Item]:
        """Return the first rows whose id is higher than `after`."""
        ids = self._ids.get(status, [])
        begin = bisect_right(ids, after)
        return [self._rows[id_] for id_ in ids[begin : begin + count]]

    def put(self, item: _Item) -> None:
        """Insert a row, or replace the one with its id."""
        old = self._rows.get(item.id)
        if old is None:
            insort(self._ids[None], item.id)
        elif old.status:
            ids = self._ids[old.status]
            del ids[bisect_left(ids, item.id)]
        if item.status:  # a pet may have none
            insort(self._ids.setdefault(item.status, []), item.id)
        self._rows[item.id] = item
        self.last_id = max(self.last_id, item.id)


class StandInTables:
    """What the server keeps of one store."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.pets = StandInTable[Pet]()
        self.orders = StandInTable[Order]()
        self.live: set[int] = set()  # the pets in placed and completed orders
        self.tokens: dict[bytes, TokenRecord] = {}
        self.expiries: list[tuple[int, bytes]] = []  # a heap, for deleting expired records


_SERVER: dict[str, StandInTables] = {}
"""What the server keeps under each prefix."""


class StandInClient:
    """A connection, which works on what is stored under a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def run(self, step: Callable[[StandInTables], _Result]) -> _Result:
        """Run a step on the server, completely or not at all, and return what it returns."""
        await asyncio.sleep(0)  # the request
        result = step(_SERVER.setdefault(self._prefix, StandInTables()))
        await asyncio.sleep(0)  # the reply
        return result

    async def remove(self) -> None:
        """Remove what is stored under the prefix."""
        await asyncio.sleep(0)
        _SERVER.pop(self._prefix, None)

    async def stored(self) -> dict[str, int]:
        """Return all prefixes of the server, and how many pets are stored under each."""
        await asyncio.sleep(0)
        return {
            prefix: len(tables.pets.page(0, MAX_ID, None)) for prefix, tables in _SERVER.items()
        }


@asynccontextmanager
async def connect(_url: str, prefix: str) -> AsyncIterator[StandInClient]:
    """Yield a client of the server, and close it on exit."""
    yield StandInClient(prefix)
