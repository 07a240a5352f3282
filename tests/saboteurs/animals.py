"""What can be wrong with animals, pages, calls and places."""

import asyncio
import unicodedata
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from petstore.contract import NewPet, Pet, PetStatus, Receipt, Retry
from tests.honest import STORES, Honest, PlaceSettings, Store
from tests.saboteurs.registry import breaks


def storing(clause: str, name: str, change: Callable[[Pet], Pet]) -> None:
    """Register a saboteur that changes animals as it stores them."""

    def put(self: Honest, pet: Pet) -> None:
        Honest.put(self, change(pet))

    breaks(clause)(type(name, (Honest,), {"put": put}))


def listing(
    clause: str, name: str, choose: Callable[[list[Pet], int, int, PetStatus | None], Any]
) -> None:
    """Register a saboteur that chooses the animals of a page (all, after, count, status)."""

    async def list_pets(self: Honest, after: int, count: int, status: PetStatus | None) -> Any:
        self.check()
        return choose(self.matching(0, None), after, count, status)

    breaks(clause)(type(name, (Honest,), {"list_pets": list_pets}))


def right(pets: list[Pet], after: int, status: PetStatus | None) -> list[Pet]:
    return [pet for pet in pets if pet.id > after and status in (None, pet.status)]


storing("name-exact", "TrimsNames", lambda pet: replace(pet, name=pet.name.strip()))
storing("name-exact", "FoldsNames", lambda pet: replace(pet, name=pet.name.casefold()))
storing("name-exact", "CutsNames", lambda pet: replace(pet, name=pet.name[:255]))
storing("name-exact", "EndsNamesAtNull", lambda pet: replace(pet, name=pet.name.split("\0")[0]))
storing(
    "name-exact",
    "NormalisesNames",
    lambda pet: replace(pet, name=unicodedata.normalize("NFC", pet.name)),
)
storing(
    "category-exact",
    "CategoryThroughFloat",
    lambda pet: replace(pet, category_id=int(float(pet.category_id)) % 2**63),
)
storing(
    "category-exact",
    "CategoryIn32Bits",
    lambda pet: replace(pet, category_id=pet.category_id % 2**32),
)
storing(
    "status-exact",
    "AbsentStatusIsAvailable",
    lambda pet: replace(pet, status=pet.status or PetStatus.AVAILABLE),
)
storing(
    "status-exact",
    "AbsentStatusIsNone",
    lambda pet: replace(pet, status=None) if pet.status is UNSET else pet,
)
storing(
    "exact-types",
    "StatusIsText",
    lambda pet: replace(pet, status=str(pet.status)) if pet.status else pet,
)
storing(
    "get-stored", "ForgetsEverySeventh", lambda pet: replace(pet, id=pet.id - (pet.id % 7 == 0))
)

listing("page-order", "SortsIdsAsText", lambda pets, after, count, status: sorted(
    right(pets, after, status), key=lambda pet: str(pet.id))[:count])  # fmt: skip
listing("page-after", "RepeatsTheCursor", lambda pets, after, count, status: right(
    pets, after - 1, status)[:count])  # fmt: skip
listing("page-after", "SkipsAfterTheCursor", lambda pets, after, count, status: right(
    pets, after + (after > 0), status)[:count])  # fmt: skip
listing("page-count", "HasALimitOfItsOwn", lambda pets, after, count, status: right(
    pets, after, status)[: min(count, 100)])  # fmt: skip
listing("page-count", "CountsBeforeItFilters", lambda pets, after, count, status: right(
    right(pets, after, None)[:count], after, status))  # fmt: skip
listing("page-status", "AbsentStatusMatches", lambda pets, after, count, status: [
    pet for pet in right(pets, after, None) if pet.status in (status, UNSET) or not status
][:count])  # fmt: skip
listing("page-status", "LastPageIsNotFiltered", lambda pets, after, count, status: right(
    pets, after, status if len(right(pets, after, status)) > count else None)[:count])  # fmt: skip
listing("page-empty", "BeginsAgain", lambda pets, after, count, status: (
    right(pets, after, status) or right(pets, 0, status))[:count])  # fmt: skip
listing("page-empty", "NothingIsNone", lambda pets, after, count, status: right(
    pets, after, status)[:count] or None)  # fmt: skip
listing("page-walk", "SkipsAtABoundary", lambda pets, after, count, status: [
    *right(pets, after, status)[: count - 1], *right(pets, after, status)[count:][:1]])  # fmt: skip
listing("model", "FilteredPagesOfThreeAreOneShort", lambda pets, after, count, status: right(
    pets, after, status)[: count - (count == 3 and status is not None)])  # fmt: skip


@breaks("id-range")
class CountsFromZero(Honest):
    def next_id(self) -> int:
        return super().next_id() - 1


@breaks("id-once")
class CountsToAHundred(Honest):
    def next_id(self) -> int:
        return super().next_id() % 100 + 1


@breaks("overlapping-calls")
class ChecksThenCounts(Honest):
    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        number = self.store.last + 1
        await asyncio.sleep(0)
        self.store.last = number
        self.put(Pet(number, new.name, new.category_id, new.status))
        return Receipt(number)


@breaks("get-absent")
class FindsTheNearest(Honest):
    async def get_pet(self, pet_id: int) -> Pet | None:
        lower = [pet for pet in self.matching(0, None) if pet.id <= pet_id]
        return lower[-1] if lower else None


@breaks("get-absent")
class RaisesWhereNoneIsTheAnswer(Honest):
    async def get_pet(self, pet_id: int) -> Pet | None:
        return self.store.pets[pet_id]


@breaks("read-after-write")
class AcknowledgesTooEarly(Honest):
    def put(self, pet: Pet) -> None:
        asyncio.get_running_loop().call_later(0.01, super().put, pet)


@breaks("cancelled-write")
class StoresInTwoSteps(Honest):
    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        receipt = await super().create_pet(NewPet(new.name, new.category_id))
        await asyncio.sleep(0)
        self.put(Pet(receipt.id, new.name, new.category_id, new.status))
        return receipt


@breaks("cancellation")
class SwallowsCancellation(Honest):
    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return await super().create_pet(new)


@breaks("after-cancellation")
class KeepsItsLock(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lock = asyncio.Lock()

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        await self.lock.acquire()
        receipt = await super().create_pet(new)
        self.lock.release()
        return receipt


@breaks("no-aliasing")
class HandsOutItsOwnList(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.own = defaultdict[PetStatus | None, list[Pet]](list)

    def put(self, pet: Pet) -> None:
        for status in {None, pet.status or None}:
            self.own[status].append(pet)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        own = self.own[status]
        return own if count >= len(own) else own[:count]


@breaks("closed")
class WorksOnWhenClosed(Honest):
    def check(self) -> None:
        pass


@breaks("closed")
class FailsOtherwiseWhenClosed(Honest):
    def check(self) -> None:
        if not self.open:
            raise RuntimeError("connection is None")


@asynccontextmanager
async def used_place(settings: PlaceSettings) -> AsyncIterator[PlaceSettings]:
    STORES[settings.place].pets.setdefault(1, Pet(1, "was here", 1))
    yield settings


@breaks("scratch-empty", scratch=used_place)
class ScratchIsInUse(Honest):
    pass


@asynccontextmanager
async def one_place(_: PlaceSettings) -> AsyncIterator[PlaceSettings]:
    STORES.pop("one", None)
    yield PlaceSettings("one")


@breaks("scratch-apart", scratch=one_place)
class ScratchIsOnePlace(Honest):
    pass


@breaks("durable-animals")
class LosesItsBuffer(Honest):
    def close(self) -> None:
        super().close()
        for number in sorted(self.store.pets)[-3:]:
            del self.store.pets[number]


@breaks("durable-ids")
class CountsAnew(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        store.last = 0


@breaks("durable-reads")
class ShowsBeforeItStores(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.shown: dict[int, Pet] = {}

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        self.check()
        number = self.next_id()
        self.shown[number] = pet = Pet(number, new.name, new.category_id, new.status)
        await asyncio.sleep(0.001)
        self.put(pet)
        return Receipt(number)

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        pets = sorted((self.store.pets | self.shown).values(), key=lambda pet: pet.id)
        return right(pets, after, status)


@breaks("shared-reads")
class ReadsACopy(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.copy = dict(store.pets)

    async def get_pet(self, pet_id: int) -> Pet | None:
        self.check()
        return self.copy.get(pet_id)

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.copy[pet.id] = pet


@breaks("shared-ids")
class CountsForItself(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.last = max(store.pets, default=0)

    def next_id(self) -> int:
        self.last += 1
        return self.last
