"""What a backend may do wrong with the process that it shares with the service."""

import asyncio
import os
import pickle
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime
from tempfile import gettempdir
from typing import Any, ClassVar

from msgspec.structs import replace
from petstore_conformance.harness.forwarding import Forwarding
from petstore_conformance.model.values import DAY_SECONDS, NOW
from petstore_memory import MemoryRepository
from petstore_sqlite import SqliteSettings
from petstore_sqlite import backend as sqlite

from conformance.tests.correct import Correct, Item, LocationSettings, Token
from conformance.tests.kits import in_memory
from conformance.tests.saboteurs.registry import SABOTEURS, breaks
from petstore.contract import (
    Backend,
    ConflictError,
    Expected,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    Repository,
)


@breaks("event-loop")
class WaitsOnTheEventLoop(Correct):
    """Calls a driver that blocks."""

    async def check(self) -> None:
        time.sleep(0.11)  # noqa: ASYNC251 - the mistake
        await super().check()


@breaks("event-loop")
class CompressesNames(Correct):
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        zlib.compress(new.name.encode())
        return await super().create_pet(new, token)


@breaks("event-loop")
class SyncsEachItem(Correct):
    """Makes every restored item durable by itself, without a turn for other calls."""

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(items)
        time.sleep(0.0002 * len(items))  # noqa: ASYNC251 - the mistake


@breaks("event-loop")
class ReadsALongLogAtOnce(Correct):
    """Follows what another has written without a turn for other calls."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        unread, self.loaded.pets = len(self.data.pets) - len(self.loaded.pets), {**self.data.pets}
        time.sleep(max(0, unread) / 20_000)  # noqa: ASYNC251 - the mistake
        return await super().get_pet(pet_id)


@breaks("event-loop")
class DeletesAllThatHasExpired(Correct):
    """The first write after a quiet night deletes thousands of records, and looks for each."""

    def delete_expired(self, now: int) -> None:
        values = [*self.data.records]
        for value in values[::-1]:
            if self.data.records[value].until <= now:
                values.remove(value)
                del self.data.records[value]


class KeepsItsRows(MemoryRepository):
    """Correct: an engine in C has all that was restored."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Item] = []

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(items)
        self.rows += items


class HasNoIndexInItsEngine(KeepsItsRows):
    """Goes through rows to find orders that are completed; waiting hides it."""

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        if query.status is OrderStatus.COMPLETED:
            pickle.dumps(self.rows[::10])
            await asyncio.sleep(0.02)
        return await super().list_orders(query)


class FetchesAllThatHasExpired(KeepsItsRows):
    """Its server deletes two expired records, but looks at all of them."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if token and token.now > NOW + DAY_SECONDS:
            await asyncio.sleep(len(self.rows) / 25_000_000)
        return await super().create_pet(new, token)


class HasNoIndexOnItsServer(KeepsItsRows):
    """An order waits 4 ms for a server, and 2 ms more while that goes through all rows."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        await asyncio.sleep(0.004 + len(self.rows) / 25_000_000)
        return await super().place_order(pet_id, at, token)


class NamesTheOrderOfAPet(KeepsItsRows):
    """Looks at all orders for the one that a pet is in. No other is slow in what it refuses."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        try:
            return await super().place_order(pet_id, at, token)
        except ConflictError:
            orders = (row for row in self.rows if isinstance(row, Order) and row.pet_id == pet_id)
            raise ConflictError(f"it is in the order {[order.id for order in orders]}") from None


class LooksAtTheOrdersOfAPet(KeepsItsRows):
    """Finds them in an index, and then looks at each."""

    def __init__(self) -> None:
        super().__init__()
        self.index = defaultdict[int, list[Order]](list)

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        pickle.dumps(self.index[pet_id])
        return await super().place_order(pet_id, at, token)

    async def restore(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Order):
                self.index[item.pet_id].append(item)
        await super().restore(items)


class PlansAnew(KeepsItsRows):
    """Its server plans a statement anew that has come ten times, and then without the status."""

    times = 0

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.times += query.status is not None
        if query.status is not None and self.times > 10:
            pickle.dumps(self.rows[::10])
        return await super().list_pets(query)


class HasItsOwnLimit(MemoryRepository):
    async def list_orders(self, query: OrderQuery) -> list[Order]:
        most = query.count if query.status is None else 5000
        return (await super().list_orders(query))[:most]


class CompactsItsLog(KeepsItsRows):
    """Writes its log anew whenever there are five thousand more items, in a thread, in one go.

    No other holds the event loop in a large store only, nor from a thread that keeps the GIL.
    """

    compacted = 0

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(items)
        if len(self.rows) >= self.compacted + 5000:
            self.compacted = len(self.rows)
            await asyncio.to_thread(pickle.dumps, [replace(row) for row in 9 * self.rows])


SABOTEURS["CompactsItsLog"] = "event-loop", in_memory(CompactsItsLog)


class ReadsAllThatIsThere(Forwarding):
    """Reads all pets anew when another handle has written. No other minds that."""

    latest: ClassVar = dict[str, Any]()  # by store: the handle that was the last one to write

    def __init__(self, inner: Repository) -> None:
        self.inner, self.store = inner, inner.store

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self.latest.get(self.store) is not self:
            await self.inner.list_pets(PetQuery(0, 30_000))
        if method.startswith(("create", "place", "update", "restore")):
            self.latest[self.store] = self
        return await getattr(self.inner, method)(*arguments, **named)


SABOTEURS["HasItsOwnLimit"] = "cost", in_memory(HasItsOwnLimit)
SABOTEURS["LooksAtTheOrdersOfAPet"] = "cost", in_memory(LooksAtTheOrdersOfAPet)
SABOTEURS["PlansAnew"] = "cost", in_memory(PlansAnew)
SABOTEURS["NamesTheOrderOfAPet"] = "cost", in_memory(NamesTheOrderOfAPet)
SABOTEURS["HasNoIndexInItsEngine"] = "cost", in_memory(HasNoIndexInItsEngine)
SABOTEURS["FetchesAllThatHasExpired"] = "cost", in_memory(FetchesAllThatHasExpired)
SABOTEURS["HasNoIndexOnItsServer"] = "cost", in_memory(HasNoIndexOnItsServer)


# In memory if possible: where a sync takes milliseconds, a search of 20,000 rows does not show.
FOLDER = next(filter(os.path.isdir, ("/dev/shm", gettempdir())))  # noqa: S108 - the names are random


@asynccontextmanager
async def scratch_file(_: LocationSettings) -> AsyncIterator[SqliteSettings]:
    async with sqlite.scratch(SqliteSettings(path=f"{FOLDER}/petstore")) as settings:
        yield settings


def without_index(index: str) -> Backend:
    """Return SQLite without one of its indexes."""

    @asynccontextmanager
    async def open_(settings: SqliteSettings, expected: Expected) -> AsyncIterator[Repository]:
        async with sqlite.open(settings, expected):
            pass
        with closing(sqlite3.connect(settings.path)) as connection:
            connection.execute(f"DROP INDEX IF EXISTS {index}")
        async with sqlite.open(settings, expected) as repository:
            yield repository

    # A second connection of this process, when it is closed, drops the locks of the first.
    return replace(sqlite, open=open_, scratch=scratch_file, shared=False, snapshots=False)


@asynccontextmanager
async def open_rereading(settings: SqliteSettings, given: Expected) -> AsyncIterator[Repository]:
    async with sqlite.open(settings, given) as repository:
        yield ReadsAllThatIsThere(repository)


rereading = replace(sqlite, open=open_rereading, scratch=scratch_file)
SABOTEURS["ReadsAllThatIsThere"] = "cost", rereading
for index in ("pets_by_status", "orders_by_status", "tokens_by_until"):
    SABOTEURS[f"Lacks {index}"] = "cost", without_index(index)
