"""What a backend may do wrong with the identity of its store."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns
from uuid import uuid4

from msgspec.structs import replace
from petstore_conformance.model.model import matching

from conformance.tests import filed, mistakes
from conformance.tests.correct import STORES, Correct, LocationSettings, Store, backend, find
from conformance.tests.saboteurs.registry import SABOTEURS, breaks, pause
from petstore.contract import Access, ChangeNeededError, Expected, Pet, PetQuery, UnavailableError


def identifying(name: str, choose: Callable[[Store], str]) -> None:
    """Register a saboteur with its own idea of what identifies a store."""

    def __init__(self: Correct, store: Store) -> None:  # noqa: N807 - that of the class
        Correct.__init__(self, store)
        self.store = choose(store)

    breaks("store-identity")(type(name, (Correct,), {"__init__": __init__}))


def name_once(store: Store, identity: str) -> str:
    """Give a new store an identity; return the one that it has been given."""
    store.identity = store.extra.setdefault("named", identity)
    return store.identity


identifying("IdentifiesItsOpening", lambda _: uuid4().hex)
# In milliseconds, in which several are made.
identifying("IdentifiesItsTime", lambda it: it.extra.setdefault("made", f"{time_ns() // 10**6}"))
# Or what makes it a place of its own, which is free again once it was removed.
identifying("IdentifiesItsPlace", lambda it: name_once(it, f"{len(STORES)}"))
# It has the length of a path.
identifying("IdentifiesItsFile", lambda store: f"/var/lib/petstore/{store.identity * 3}")


@breaks("store-gone")
class LooksNowAndThen(Correct):
    """It has looked a moment ago, and that is enough for now."""

    async def check(self) -> None:
        if "looked" not in self.noted or not self.open:
            await super().check()
            self.noted.add("looked")


@breaks("snapshot")
class ReadsPresentRecords(Correct):
    """Its records are in another table, of which it has no snapshot."""

    @staticmethod
    def snapshot(store: Store) -> Store:
        copied = deepcopy(store)
        copied.records = store.records
        return copied


@breaks("snapshot")
class TakesASnapshotForAStandby(Correct):
    """Its check asks for a server that can be written to, in the transaction of the snapshot."""

    async def check(self) -> None:
        await super().check()
        if self.data not in STORES.values():
            raise UnavailableError("it is a standby")


@breaks("snapshot")
class CopiesTheIndexLater(Correct):
    """The pets of a status are looked up in the present."""

    @staticmethod
    def snapshot(store: Store) -> Store:
        copied = deepcopy(store)
        copied.extra["present"] = store
        return copied

    def matching(self, query: PetQuery) -> list[Pet]:
        present = self.data.extra.get("present")
        if present is None or query.status is None:
            return super().matching(query)
        pets = [pet for pet in self.data.pets.values() if present.pets.get(pet.id) == pet]
        return matching(sorted(pets, key=lambda pet: pet.id), query)


@breaks("store-gone")
class SellsWhatItRemembers(Correct):
    """A pet that it has returned before is in its memory."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        pet = self.data.pets.get(pet_id) if self.open else None
        return pet or await super().get_pet(pet_id)


async def find_by_prefix(location: str, expected: Expected) -> Store:
    """Compare as much of the identity as fits into a header, if it is for a snapshot."""
    store = STORES.get(location)
    if store and expected.store and expected.snapshot:
        expected = replace(expected, store=expected.store[:31] + store.identity[31:])
    return await find(location, expected)


SABOTEURS["ComparesTheBeginning"] = "store-expected", backend(Correct, find=find_by_prefix)


async def find_with_leave(location: str, expected: Expected) -> Store:
    """Ask for leave before it compares; no store is there that could be the expected one."""
    if location not in STORES and expected.access is not Access.CREATE:
        raise ChangeNeededError("there is no store")
    return await find(location, expected)


SABOTEURS["AsksForLeaveFirst"] = "store-expected", backend(Correct, find=find_with_leave)


# In no other, what is refused leaves a file.
SABOTEURS["MakesBeforeItLooks"] = "store-expected", filed.backend(mistakes.MakesBeforeItLooks)


async def find_at_the_second_time(location: str, expected: Expected) -> Store:
    """Make the store even for one who will only read, and then complain that there was none."""
    if location in STORES or expected.access is not Access.READ:
        return await find(location, expected)
    _ = STORES[location]
    raise ChangeNeededError("there was no store")


SABOTEURS["MakesAndComplains"] = "store-kept", backend(Correct, find=find_at_the_second_time)


async def find_a_filled_one(location: str, expected: Expected) -> Store:
    """Take a store in which there is nothing for none."""
    store = STORES.get(location)
    if store and not store.pets and expected.access is not Access.CREATE:
        raise ChangeNeededError("there is no store")
    return await find(location, expected)


SABOTEURS["TakesAnEmptyStoreForNone"] = "store-kept", backend(Correct, find=find_a_filled_one)


async def find_to_read(location: str, expected: Expected) -> Store:
    """Look at a copy, which has an identity of its own, if nothing may be written."""
    store = await find(location, expected)
    if expected.access is Access.READ and not expected.snapshot:
        store = deepcopy(store)
        store.identity = uuid4().hex
    return store


SABOTEURS["IdentifiesACopy"] = "store-identity", backend(Correct, find=find_to_read)


async def find_in_two_steps(location: str, expected: Expected) -> Store:
    """Copy the records and orders for a snapshot, and the pets a moment later."""
    store = await find(location, expected)
    if expected.snapshot:
        copied = deepcopy(store)
        await pause()
        copied.pets, store = {**store.pets}, copied
    return store


SABOTEURS["CopiesInTwoSteps"] = "snapshot", backend(Correct, find=find_in_two_steps)


async def find_and_name(location: str, expected: Expected) -> Store:
    """Give a new store its identity in a second step; another handle may do the same meanwhile."""
    store = await find(location, expected)
    if "named" not in store.extra:
        await pause()
        store.identity = uuid4().hex
        store.extra["named"] = True
    return store


# In no other, those that open a new store at once differ in its identity.
SABOTEURS["NamesItsStoreTwice"] = "store-identity", backend(Correct, find=find_and_name)


async def find_and_upgrade(location: str, expected: Expected) -> Store:
    """Write to each store that is opened, unless only a snapshot of it is read."""
    if expected.access is Access.READ and not expected.snapshot:
        raise ChangeNeededError("the store must be opened for writing first")
    return await find(location, expected)


# In no other, one who may only read cannot open what others have open.
SABOTEURS["UpgradesForReaders"] = "shared-reads", backend(Correct, find=find_and_upgrade)


async def find_to_load(location: str, expected: Expected) -> Store:
    """Load once what will only be read."""
    store = await find(location, expected)
    return deepcopy(store) if expected.access is Access.READ else store


# In no other, a reader sees no later write.
SABOTEURS["LoadsForReaders"] = "shared-reads", backend(Correct, find=find_to_load)


@breaks("store-identity")
class KeepsNoEmptyStore(Correct):
    """What it has made is stored with the first write."""

    def close(self) -> None:
        super().close()
        if not (self.data.pets or self.data.records):
            self.data.identity = uuid4().hex


SABOTEURS["LooksForItsFile"] = "store-gone", filed.backend(mistakes.LooksForItsFile)
# No other is unavailable as it must be, and leaves something.
SABOTEURS["MakesTheFolderOfItsLock"] = "store-gone", filed.backend(mistakes.MakesTheFolderOfItsLock)
FOLDER = TemporaryDirectory()


def scratch_beside(_: LocationSettings) -> AbstractAsyncContextManager[LocationSettings]:
    """Take a file in a folder that stays."""
    return filed.scratch_at(Path(FOLDER.name, uuid4().hex))


beside = replace(filed.backend(mistakes.MarksItsEnd), scratch=scratch_beside)
SABOTEURS["MarksItsEnd"] = "store-gone", beside
SABOTEURS["LocksTheFolder"] = "store-kept", filed.backend(mistakes.LocksTheFolder)
SABOTEURS["IdentifiesItsPath"] = "store-gone", filed.backend(mistakes.IdentifiesItsPath)

# From then on: no other serves the same store again.
SABOTEURS["ForgivesItsFile"] = "store-gone", filed.backend(mistakes.ForgivesItsFile)
