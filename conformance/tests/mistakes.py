"""Saboteurs of the backend on a pickled file that a clause catches."""

import asyncio
import fcntl
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from time import sleep
from typing import Any, ClassVar
from unittest import mock
from zlib import crc32

from msgspec.structs import replace

from conformance.tests.correct import Correct, Store, Token
from conformance.tests.filed import Filed, FileSettings
from petstore.contract import (
    Access,
    Expected,
    NewPet,
    Order,
    OrderStatus,
    PetStatus,
    Receipt,
    UnavailableError,
    WrongStoreError,
)


class WaitsOnTheLoop(Filed):
    """Its check, which is short, waits on the event loop for the lock of another process."""

    async def check(self) -> None:
        if self.path.exists():
            with Path(f"{self.path}.lock").open("a") as file:  # noqa: ASYNC230 - its mistake
                fcntl.flock(file, fcntl.LOCK_EX)
        await super().check()


class Unseen(Filed):
    """Its driver is compiled, so that none of its steps is seen, and its disk takes a moment."""

    def save(self) -> None:
        profile = sys.getprofile()
        sys.setprofile(None)
        super().save()
        sys.setprofile(profile)

    def write(self, store: Store) -> None:
        sleep(0.01)
        super().write(store)


class GivesUpOnALock(Unseen):
    """Waits no longer than a second for the lock of another process."""

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(1), super().locked():
                yield
        except TimeoutError:
            raise UnavailableError("another process has the lock") from None


class WaitsWhenCancelled(Filed):
    """Ends a cancelled call when it has been made, after those of other processes."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        calling = asyncio.create_task(super().call(method, *arguments, **named))
        try:
            return await asyncio.shield(calling)
        finally:
            await asyncio.wait([calling])


class MovesItsNewFileIntoPlace(Filed):
    """Makes a new store beside its place, where another process may have made one meanwhile."""

    async def begin(self, expected: Expected) -> None:
        if (expected.store, expected.access) == (None, Access.CREATE) and not self.path.exists():
            self.write(self.data)
        await super().begin(expected)


class ReadsNoLargerFile(Filed):
    """Makes room for ten megabytes more than there are when it is opened."""

    def load(self) -> None:
        size = self.path.stat().st_size
        self.room = getattr(self, "room", size + 10_000_000)
        if size > self.room:
            raise UnavailableError("the file has grown")
        super().load()


class LooksAtNotesAfterwards(Filed):
    """Compares what it has read with what another process has noted since then."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        async with self.locked():
            self.data = self.read()
        sleep(0.001)  # noqa: ASYNC251 - no other handle of this process may do anything
        if self.notes and self.changes() < max(map(int, self.notes.read()), default=0):
            raise WrongStoreError("the file has an older copy")
        return await super().call(method, *arguments, **named)


class SavesWhenClosed(Filed):
    """Keeps the store in memory until it is closed."""

    shared = False

    def load(self) -> None:
        pass

    def save(self) -> None:
        pass

    def close(self) -> None:
        self.write(self.data)
        super().close()


class ShowsWhatItSavesLater(SavesWhenClosed):
    """A new pet is shown by its id from memory; a moment later it is saved, and listed."""

    saving = 0

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        while self.saving and method.__name__.startswith("list"):  # noqa: ASYNC110 - rarely
            await asyncio.sleep(0.01)
        result = await super().call(method, *arguments, **named)
        if method.__name__ == "create_pet":
            self.saving += 1
            await asyncio.sleep(0.15)
            self.saving -= 1
        if not method.__name__.startswith(("get", "list")):
            self.write(self.data)
        return result


class SavesUpdatesWhenClosed(SavesWhenClosed):
    """Saves what is new at once, and what became of older orders when it is closed."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt: Receipt = await super().place_order(pet_id, at, token)
        self.noted.add(receipt.id)
        return receipt

    def save(self) -> None:
        store = copy(self.data)
        old = {id_: it for id_, it in store.orders.items() if id_ not in self.noted}
        placed = {id_: replace(it, status=OrderStatus.PLACED) for id_, it in old.items()}
        store.orders = store.orders | placed
        self.write(store)


class SavesRestoredItemsLater(SavesWhenClosed):
    """Saves what was restored a moment after it was acknowledged."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = await super().call(method, *arguments, **named)
        if method.__name__ == "restore":
            asyncio.get_running_loop().call_later(0.01, self.write, self.data)
        else:
            self.write(self.data)
        return result


class LocksInItsProcess(Filed):
    """Takes no lock that another process would see."""

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        yield


class LooksForTokensFirst(Filed):
    """Looks for the token of a create in one transaction, and stores both in the next one.

    A lock of its process lasts for both.
    """

    locks: ClassVar = defaultdict[Path, asyncio.Lock](asyncio.Lock)
    looking = True

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        self.require_open()
        async with self.locks[self.path]:
            found: Receipt | None = await self.call(LooksForTokensFirst.look_for, token)
            await asyncio.sleep(0.001)  # the way to a server and back
            with mock.patch.object(self, "looking", new=False):
                return found or await self.call(Correct.create_pet, new, token)

    async def look_for(self, token: Token) -> Receipt | None:
        return self.find(token)

    def find(self, token: Token) -> Receipt | None:
        return super().find(token) if self.looking else None


class ComparesOnlyThePet(Filed):
    """Updates an order that it has read if its pet is still pending, perhaps by another order."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        read = self.ask(order_id)
        updated: Order = await self.call(ComparesOnlyThePet.change, order_id, status, read)
        return updated

    def ask(self, order_id: int) -> Order | None:
        """Read an order without the lock, and note in a file that it was read."""
        order = self.read().orders.get(order_id)
        Path(f"{self.path}.read").write_bytes(b"")
        return order

    async def change(self, order_id: int, status: OrderStatus, read: Order | None) -> Order:
        if read and self.data.pets[read.pet_id].status is PetStatus.PENDING:
            self.data.orders[order_id] = read
        return await Correct.update_order(self, order_id, status)


class CachesPets(Filed):
    """Remembers the pets that it has read; its own writes empty the cache."""

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        if method != "get_pet":
            if method.startswith(("create", "place", "update", "restore")):
                self.kept.clear()
            return await super().forward(method, *arguments, **named)
        key = (*arguments, *named.values())
        if key not in self.kept:
            self.kept[key] = await super().forward(method, *arguments, **named)
        return self.kept[key]


class TakesUtcForLocalTime(Filed):
    """Converts each time to local time, and stores that as UTC."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt: Receipt = await super().place_order(
            pet_id, at.astimezone().replace(tzinfo=UTC), token
        )
        return receipt


class LooksForItsFile(Filed):
    """Takes any store that is there for its own."""

    def load(self) -> None:
        self.data = self.read()


class MakesTheFolderOfItsLock(Filed):
    """Makes the folder again in which it locks its file; there is no store then."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.path.parent.mkdir(exist_ok=True)
        return await super().call(method, *arguments, **named)

    def close(self) -> None:
        super().close()
        if not self.path.exists():
            rmtree(self.path.parent, ignore_errors=True)


class MarksItsEnd(Filed):
    """Leaves a mark beside its file when it is closed, also if the file is gone."""

    def close(self) -> None:
        super().close()
        Path(f"{self.path}.closed").touch()


class IdentifiesItsPath(Filed):
    """A store that is made where another one was has the identity of that one."""

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(settings)
        self.data.identity = f"{crc32(bytes(self.path))}"


class MakesBeforeItLooks(Filed):
    """Opens its file, which makes it, and looks afterwards which store it has."""

    async def begin(self, expected: Expected) -> None:
        if expected.store:
            self.path.touch()
            if not self.path.stat().st_size:
                raise WrongStoreError("the file is empty")
        await super().begin(expected)


class LocksTheFolder(Filed):
    """Makes another file in its folder, its lock, and looks afterwards if there is a store."""

    async def begin(self, expected: Expected) -> None:
        Path(self.path.parent, "lock").touch()  # noqa: ASYNC240 - its mistake
        await super().begin(expected)


class ForgivesItsFile(Filed):
    """Serves its store again when that is back, after it has said that there was another one."""

    def load(self) -> None:
        self.lost = False
        super().load()


class SavesRecordsLast(Filed):
    """A write is two flushes: first the effect, and then the record of its token."""

    def save(self) -> None:
        effect = copy(self.data)
        effect.records = self.read().records
        self.write(effect)
        super().save()


class RepairsWhenItOpens(Filed):
    """Leaves a mark while it saves; that of a process that has died, only opening removes."""

    async def begin(self, expected: Expected) -> None:
        self.mark = Path(f"{self.path}.saving")
        self.mark.unlink(missing_ok=True)
        await super().begin(expected)

    def load(self) -> None:
        super().load()
        if self.mark.exists():
            raise UnavailableError("another process is saving")

    def save(self) -> None:
        self.mark.touch()
        super().save()
        self.mark.unlink(missing_ok=True)


class UpdatesInTwoCommits(Filed):
    """An update commits its order, and then its pet; a commit is four lines of a log before it."""

    def save(self) -> None:
        before = self.read()
        with Path(f"{self.path}.log").open("ab", buffering=0) as log:
            for _ in range(4):  # noqa: FURB122 - each is a step
                log.write(b"begin")
        if any(self.data.orders[id_] != order for id_, order in before.orders.items()):
            half = copy(self.data)
            half.pets = before.pets
            self.write(half)
        super().save()


class UpdatesInTwoUnseenCommits(Unseen, UpdatesInTwoCommits):
    """No step shows when it can be killed between its commits."""
