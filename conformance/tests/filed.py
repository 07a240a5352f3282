"""Backends on a pickled file, which outlive their process: a correct one, and saboteurs of it.

Each call locks the file, loads the store, calls a correct repository and saves the store. Some have
a server, too, without which they do nothing.
"""

import asyncio
import fcntl
import os
import pickle
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from copy import copy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, ClassVar
from zlib import crc32

from msgspec.structs import replace
from petstore_conformance.harness.forwarding import Forwarding

from conformance.tests.correct import Correct, LocationSettings, Store, Token
from petstore.contract import (
    PET_STATUS_BY_ORDER,
    Access,
    Backend,
    ChangeNeededError,
    Expected,
    NewPet,
    Notes,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    UnavailableError,
    WrongStoreError,
)


class FileSettings(LocationSettings, frozen=True):
    """The file of a store; a server that must reply; a file that is there while it is down."""

    url: str = ""
    down: str = ""


class Filed(Forwarding, Correct):
    """Correct. A saboteur changes when it locks, loads or saves.

    shared -- whether several processes may open the file
    notes -- what they know of it
    """

    shared: ClassVar[bool] = True
    notes: Notes | None = None
    lost = False

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(Store())
        self.settings = settings
        self.path = Path(settings.location)

    async def begin(self, expected: Expected) -> None:
        """Find the store in the file, or make it."""
        async with self.locked():
            if expected.store is None and not self.path.exists():
                if expected.access is not Access.CREATE:
                    raise ChangeNeededError("there is no file")
                self.write(self.data)
            self.data = self.read()
            self.store = self.data.identity
            self.notes = expected.notes
            self.load()
            if expected.store not in (None, self.store):
                raise WrongStoreError("the file has another store")

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        return await self.call(getattr(Correct, method), *arguments, **named)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        async with self.lock, self.locked():
            self.load()
            try:
                return await method(self, *arguments, **named)
            finally:
                self.save()

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        lock = Path(f"{self.path}.lock")
        if not lock.parent.exists():
            raise WrongStoreError("the directory was removed")
        with lock.open("a") as file:  # noqa: ASYNC230 - an empty file of this machine
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            yield

    def load(self) -> None:
        self.data = self.read()
        self.lost = self.lost or self.data.identity != self.store
        if self.lost:
            raise WrongStoreError("the file has another store, or had one")
        if self.notes and self.changes() < max(map(int, self.notes.read()), default=0):
            raise WrongStoreError("the file has an older copy")

    def changes(self) -> int:
        """Return how often the store has been saved."""
        return int(self.data.extra.get("changes", 0))

    def save(self) -> None:
        self.data.extra["changes"] = self.changes() + 1
        self.write(self.data)
        if self.notes:
            self.notes.write(b"%d" % self.changes())

    def read(self) -> Store:
        try:
            store: Store = pickle.loads(self.path.read_bytes())  # noqa: S301 - our own file
        except FileNotFoundError:
            raise WrongStoreError("the file was removed") from None
        return store

    def write(self, store: Store) -> None:
        new = Path(f"{self.path}.{os.getpid()}-{id(self)}")
        new.write_bytes(pickle.dumps(store))
        new.replace(self.path)


class Slow(Filed):
    """Correct: every call takes 30 ms."""

    shared = False

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0.015)
        result = await super().call(method, *arguments, **named)
        await asyncio.sleep(0.015)
        return result


class WaitsOnTheLoop(Filed):
    """Waits on the event loop until another process releases its lock."""

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with Path(f"{self.path}.lock").open("a") as file:  # noqa: ASYNC230 - its mistake
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class ServesAnOlderCopy(Filed):
    """Knows the store by its identity only."""

    def changes(self) -> int:
        return 0


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
    """Saves what is created at once, and what became of an order when it is closed."""

    def save(self) -> None:
        store = copy(self.data)
        store.orders = {
            id_: replace(order, status=OrderStatus.PLACED) for id_, order in store.orders.items()
        }
        self.write(store)


class ForgetsTokens(SavesWhenClosed):
    """Saves the records of tokens only when it is closed."""

    def save(self) -> None:
        store = copy(self.data)
        store.records = {}
        self.write(store)


class LosesTheLastWrite(Filed):
    """Saves the state before a call: the latest one is in a buffer until the next."""

    shared = False

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.save()
        return await method(self, *arguments, **named)


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
            self.looking = False
            try:
                return found or await self.call(Correct.create_pet, new, token)
            finally:
                self.looking = True

    async def look_for(self, token: Token) -> Receipt | None:
        return self.find(token)

    def find(self, token: Token) -> Receipt | None:
        return super().find(token) if self.looking else None


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


class StoresLocalTime(Filed):
    """Stores times as a clock on the wall of its process shows them, without a zone."""

    def read(self) -> Store:
        store = super().read()
        store.orders = {
            id_: replace(order, placed_at=order.placed_at.astimezone(UTC))
            for id_, order in store.orders.items()
        }
        return store

    def write(self, store: Store) -> None:
        local = copy(store)
        local.orders = {
            id_: replace(order, placed_at=order.placed_at.astimezone().replace(tzinfo=None))
            for id_, order in store.orders.items()
        }
        super().write(local)


class TakesUtcForLocalTime(Filed):
    """Converts each time to local time, and stores that as UTC."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt: Receipt = await super().place_order(
            pet_id, at.astimezone().replace(tzinfo=UTC), token
        )
        return receipt


class MakesAnother(Filed):
    """Makes another store where its own is gone, and goes on with that."""

    def load(self) -> None:
        if not self.path.exists():
            self.write(Store())
        self.data = self.read()


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


class TouchesItsFile(Filed):
    """Sees that the file is empty once it has opened it for writing."""

    async def begin(self, expected: Expected) -> None:
        self.path.touch()
        if not self.path.stat().st_size:
            if expected.access is not Access.CREATE:
                raise ChangeNeededError("the file is empty")
            self.path.unlink()
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


class SellsTwice(Filed):
    """Checks first whether a pet is available, and orders it a moment later."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        pet = await self.get_pet(pet_id)
        if pet and pet.status is PetStatus.AVAILABLE:
            await asyncio.sleep(0.05)
            self.noted.add(pet_id)
        try:
            receipt: Receipt = await super().place_order(pet_id, at, token)
        finally:
            self.noted.discard(pet_id)
        return receipt

    def check_available(self, pet: Pet) -> None:
        if pet.id not in self.noted:
            super().check_available(pet)


class Served(Filed):
    """Correct: a call asks the server first, and waits for a limited time."""

    shared = False
    seconds = 0.5

    async def begin(self, expected: Expected) -> None:
        await self.ask()
        await super().begin(expected)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if os.path.exists(self.settings.down):  # noqa: ASYNC240, PTH110 - at once
            self.refuse()
        await self.ask()
        return await super().call(method, *arguments, **named)

    def refuse(self) -> None:
        raise UnavailableError("the server is starting")

    async def ask(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                await self.exchange()
        except (OSError, EOFError) as error:
            raise UnavailableError("no reply") from error

    async def exchange(self) -> None:
        if not self.settings.url:
            return
        host, _, port = self.settings.url.removeprefix("tcp://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(b"?")
            await reader.readexactly(1)
        finally:
            writer.close()


class FailsWhileStarting(Served):
    """Passes on the error of its driver while the server is starting."""

    def refuse(self) -> None:
        raise ConnectionResetError("the database system is starting up")


class Hangs(Served):
    """Waits for the server without a limit."""

    async def ask(self) -> None:
        with suppress(OSError, EOFError):
            await self.exchange()


class ReadsNoOrderAgain(Served):
    """Reads orders over a connection of their own, which it opens once."""

    lost = False

    async def get_order(self, order_id: int) -> Order | None:
        if self.lost:
            raise UnavailableError("no connection")
        try:
            order: Order | None = await super().get_order(order_id)
        except UnavailableError:
            self.lost = True
            raise
        return order


class Stubborn(Served):
    """Does not let a call be cancelled that waits for the server."""

    seconds = 1.5

    async def ask(self) -> None:
        asking = asyncio.ensure_future(super().ask())
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait([asking])
            raise


class SendsTwiceAfterItsSecondRequest(Served):
    """A write is two requests; only if the second one has no reply, the driver writes once more."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await self.ask()
        result = await Filed.call(self, method, *arguments, **named)
        try:
            await self.ask()
        except UnavailableError:
            result = await super().call(method, *arguments, **named)
        return result


class ClosesInTwoRequests(Served):
    """Changes an order with one request, and its pet with the next."""

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order: Order = await super().update_order(order_id, status)

        async def change_pet(_: Correct) -> None:
            super(Filed, self).set_status(order.pet_id, PET_STATUS_BY_ORDER[status])

        await self.call(change_pet)
        return order

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        if status is PetStatus.PENDING:
            super().set_status(pet_id, status)


@asynccontextmanager
async def scratch_filed(settings: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Yield the settings of a file in a directory of its own."""
    with TemporaryDirectory() as directory:
        yield replace(settings, location=f"{directory}/store")


@asynccontextmanager
async def scratch_at(path: Path) -> AsyncIterator[LocationSettings]:
    """Yield the settings of a file; remove it, and those whose names begin with its name."""
    try:
        yield LocationSettings(str(path))
    finally:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink(missing_ok=True)


@asynccontextmanager
async def opened(
    kind: type[Filed], settings: FileSettings, expected: Expected
) -> AsyncIterator[Filed]:
    """Open a file with a kind of repository."""
    repository = kind(settings)
    await repository.begin(expected)
    try:
        yield repository
    finally:
        repository.close()


def backend(kind: type[Filed]) -> Backend:
    """Return a backend of a kind, which another process must be able to import by its name."""
    return Backend(
        contract=2,
        settings=FileSettings,
        open=partial(opened, kind),
        scratch=scratch_filed,
        shared=kind.shared,
        durable=True,
    )


FILED = backend(Filed)
