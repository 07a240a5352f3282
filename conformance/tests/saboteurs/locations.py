"""What a backend may do wrong with locations, and with closing them."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from typing import ClassVar

from msgspec.structs import replace

from conformance.tests.correct import (
    STORES,
    Correct,
    LocationSettings,
    Store,
    Token,
    backend,
    find,
    remove,
)
from conformance.tests.saboteurs.registry import SABOTEURS, breaks, pause
from petstore.contract import Expected, Order, OrderStatus, Pet, Receipt, StorageError

WrongScratch = Callable[[LocationSettings], AsyncIterator[LocationSettings]]


@breaks("closed")
class RaisesAnotherErrorWhenClosed(Correct):
    """A restore whose connection is closed between two items fails by the driver's error."""

    def raise_counter(self, item: Pet | Order) -> None:
        if not self.open:
            raise RuntimeError("connection is None")
        super().raise_counter(item)


def scratching(clause: str, name: str) -> Callable[[WrongScratch], WrongScratch]:
    """Register a saboteur that yields scratch locations as the decorated generator does."""

    def register(scratch: WrongScratch) -> WrongScratch:
        SABOTEURS[name] = clause, backend(Correct, scratch=asynccontextmanager(scratch))
        return scratch

    return register


@scratching("scratch-empty", "ScratchIsInUse")
async def used_location(settings: LocationSettings) -> AsyncIterator[LocationSettings]:
    STORES[settings.location].pets.setdefault(1, Pet(1, "an old pet", 1))
    yield settings


@scratching("scratch-apart", "ScratchIsOneLocation")
async def one_location(_: LocationSettings) -> AsyncIterator[LocationSettings]:
    STORES.pop("one", None)
    yield LocationSettings("one")


SABOTEURS["SwallowsExceptions"] = "failure-passed", backend(Correct, swallowed=(Exception,))


@breaks("failure-passed")
class TidiesUpLast(Correct):
    """Cannot tidy up after a failure while another one has its file open."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.data.extra["open"] = self.data.extra.get("open", 0) + 1

    def close(self) -> None:
        super().close()
        self.data.extra["open"] -= 1
        if self.data.extra["open"] and sys.exception():
            raise StorageError("the file is locked")


@breaks("closed")
class ReadsItsCacheWhenClosed(Correct):
    """Returns from memory what no order can change: pets without a status."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        pet = self.data.pets.get(pet_id)
        return pet if pet and not pet.status else await super().get_pet(pet_id)


@breaks("closed")
class KeepsFinalOrders(Correct):
    """An order that was read once it was final can no longer change."""

    async def get_order(self, order_id: int) -> Order | None:
        if order := self.kept.get(order_id) or await super().get_order(order_id):
            self.kept |= {order.id: order} if order.status is not OrderStatus.PLACED else {}
        return order


@breaks("closed")
class RevivesWhenReopened(Correct):
    """All repositories of a location share one connection."""

    handles: ClassVar = Counter[Store]()

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.handles[store] += 1

    def require_open(self) -> None:
        if not self.handles[self.data]:
            super().require_open()

    def close(self) -> None:
        super().close()
        self.handles[self.data] -= 1


@asynccontextmanager
async def open_unwrapping(settings: LocationSettings, _: Expected) -> AsyncIterator[Correct]:
    """Raise what is alone in a group, as if it came from the tasks in the background."""
    repository = Correct(STORES[settings.location])
    try:
        yield repository
    except ExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None
    finally:
        repository.close()


SABOTEURS["UnwrapsGroups"] = "failure-passed", replace(backend(Correct), open=open_unwrapping)

numbered = set[str]()


@scratching("scratch-apart", "LocationsAtOnceHaveOneName")
async def numbered_location(_: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Search for the first number that is not in use, and take it a turn later."""
    name = next(f"{n}" for n in count() if f"{n}" not in numbered)
    await asyncio.sleep(0)
    numbered.add(name)
    try:
        yield LocationSettings(name)
    finally:
        numbered.discard(name)
        STORES.pop(name, None)


@breaks("scratch-apart")
class LocationsShareTheirIds(Correct):
    """The counter is the server's."""

    def choose_id(self) -> int:
        return max(store.last_id for store in STORES.values()) + 1


@breaks("closed")
class StaysOpenWhenCancelled(Correct):
    def close(self) -> None:
        if not isinstance(sys.exc_info()[1], asyncio.CancelledError):
            super().close()


# No other that is not shared shows whether something is called before it is closed.
@breaks("closed", shared=False)
class ClosesOnlyWhatItHasUsed(Correct):
    """The first call connects, and what has not connected is not closed."""

    def require_open(self) -> None:
        super().require_open()
        self.noted.add("used")

    def close(self) -> None:
        if self.noted:
            super().close()


# It is not durable: what is in flight at the end was tried only with those that are.
@breaks("closed", durable=False, snapshots=False)
class HangsOrdersWhenClosed(Correct):
    """An order that is in flight waits for a reply that does not come any more."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.require_open()
        await pause()
        if not self.open:
            await asyncio.Event().wait()
        return await super().place_order(pet_id, at, token)


@asynccontextmanager
async def open_flushing(settings: LocationSettings, expected: Expected) -> AsyncIterator[Correct]:
    """Wait for what is left to be written before closing; a cancelled wait leaves it open."""
    repository = Correct(await find(settings.location, expected))
    try:
        yield repository
    except BaseException:
        repository.close()
        raise
    await pause()
    repository.close()


# No other shows whether a task may be cancelled while it closes.
SABOTEURS["StaysOpenIfItsClosingIsCancelled"] = (
    "closed",
    replace(backend(Correct), open=open_flushing),
)


numbers = count()


@scratching("scratch-apart", "CutsNamesOfLocations")
async def long_location(settings: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Make a location whose name begins with the given one, and is cut by the server."""
    name = f"{settings.location}_scratch_{next(numbers)}"[:63]
    try:
        yield LocationSettings(name)
    finally:
        STORES.pop(name, None)


@scratching("scratch-apart", "RemovesInnerLocations")
async def inner_location(settings: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Make a location within the given one, which takes it along when it is removed."""
    name = f"{settings.location}/{next(numbers)}"
    try:
        yield LocationSettings(name)
    finally:
        for inner in [inner for inner in STORES if f"{inner}/".startswith(f"{name}/")]:
            remove(inner)
