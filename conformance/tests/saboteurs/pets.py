"""What a backend may do wrong with pets and pages."""

import asyncio
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, ClassVar

from msgspec import UNSET
from msgspec.structs import replace
from petstore_conformance.model.model import matching

from conformance.tests.honest import ALL, Honest, Store, Token
from conformance.tests.saboteurs.registry import breaks
from petstore.contract import (
    NewPet,
    Order,
    OrderQuery,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
)


def storing(clause: str, name: str, change: Callable[[Pet], Pet]) -> None:
    """Register a saboteur that changes pets as it stores them."""

    def put(self: Honest, pet: Pet) -> None:
        Honest.put(self, change(pet))

    breaks(clause)(type(name, (Honest,), {"put": put}))


def listing(clause: str, name: str, choose: Callable[[list[Pet], PetQuery], Any]) -> None:
    """Register a saboteur that chooses the pets of a page from all pets."""

    class Lists(Honest):
        async def list_pets(self, query: PetQuery) -> Any:
            self.require_open()
            return choose(self.matching(ALL), query)

    Lists.__name__ = name
    breaks(clause)(Lists)


def with_lengths(pets: list[Pet]) -> Iterator[tuple[Pet, int]]:
    """Return each pet with the length of its name and those before it."""
    return zip(pets, accumulate(len(pet.name) for pet in pets), strict=True)


storing("name-exact", "TrimsNames", lambda pet: replace(pet, name=pet.name.strip()))
storing("name-exact", "FoldsNames", lambda pet: replace(pet, name=pet.name.casefold()))
storing("name-exact", "CutsNames", lambda pet: replace(pet, name=pet.name[:255]))
storing("name-exact", "EndsNamesAtNull", lambda pet: replace(pet, name=pet.name.split("\0")[0]))
storing(
    "name-exact",
    "NormalizesNames",
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
    "get-stored",
    "StoresEverySeventhPetUnderTheWrongId",
    lambda pet: replace(pet, id=pet.id - (pet.id % 7 == 0)),
)

listing(
    "page-order",
    "SortsIdsAsText",
    lambda pets, query: sorted(matching(pets, query), key=lambda pet: str(pet.id))[: query.count],
)
listing(
    "page-after",
    "IncludesTheCursor",
    lambda pets, query: matching(pets, replace(query, after=query.after - 1))[: query.count],
)
listing(
    "page-after",
    "SkipsThePetAfterTheCursor",
    lambda pets, query: matching(pets, replace(query, after=query.after + (query.after > 0)))[
        : query.count
    ],
)
listing(
    "page-count",
    "HasItsOwnLimit",
    lambda pets, query: matching(pets, query)[: min(query.count, 100)],
)
listing(
    "page-count",
    "EndsPagesAtAMegabyte",
    lambda pets, query: [
        pet for pet, length in with_lengths(matching(pets, query)[: query.count]) if length <= 2**20
    ],
)
listing(
    "page-count",
    "SearchesAWindowOf500",
    lambda pets, query: matching(
        matching(pets, replace(query, status=None))[: max(query.count, 500)], query
    )[: query.count],
)
listing(
    "page-count",
    "CountsBeforeItFilters",
    lambda pets, query: matching(matching(pets, replace(query, status=None))[: query.count], query),
)
listing(
    "page-status",
    "AbsentStatusMatches",
    lambda pets, query: [
        pet
        for pet in matching(pets, replace(query, status=None))
        if pet.status in (query.status, UNSET) or not query.status
    ][: query.count],
)
listing(
    "page-status",
    "LastPageIsNotFiltered",
    lambda pets, query: matching(
        pets,
        query if len(matching(pets, query)) > query.count else replace(query, status=None),
    )[: query.count],
)
listing(
    "page-empty",
    "StartsOverAfterTheLastPage",
    lambda pets, query: (matching(pets, query) or matching(pets, replace(query, after=0)))[
        : query.count
    ],
)
listing(
    "page-empty",
    "EmptyPageIsNone",
    lambda pets, query: matching(pets, query)[: query.count] or None,
)
listing(
    "page-walk",
    "SkipsAtABoundary",
    lambda pets, query: [
        *matching(pets, query)[: query.count - 1],
        *matching(pets, query)[query.count :][:1],
    ],
)
listing(
    "model",
    "FilteredPagesOfThreeAreOneShort",
    lambda pets, query: matching(pets, query)[
        : query.count - (query.count == 3 and query.status is not None)
    ],
)


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
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if receipt := self.find(token):
            return receipt
        pet_id = self.data.last_id + 1
        await asyncio.sleep(0)
        self.data.last_id = pet_id
        self.put(Pet(pet_id, new.name, new.category_id, new.status))
        self.record(token, pet_id)
        return Receipt(pet_id)


@breaks("get-absent")
class FindsTheNearestPet(Honest):
    async def get_pet(self, pet_id: int) -> Pet | None:
        lower = [pet for pet in self.matching(ALL) if pet.id <= pet_id]
        return lower[-1] if lower else None


@breaks("get-absent")
class RaisesInsteadOfReturningNone(Honest):
    async def get_pet(self, pet_id: int) -> Pet | None:
        return self.data.pets[pet_id]


@breaks("read-after-write")
class AcknowledgesTooEarly(Honest):
    def put(self, pet: Pet) -> None:
        asyncio.get_running_loop().call_later(0.01, super().put, pet)


@breaks("page-overlap")
class ReadsByOffset(Honest):
    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        found = self.matching(query)[: min(3, query.count)]
        await asyncio.sleep(0)
        return [*found, *self.matching(query)[len(found) : query.count]]


@breaks("page-overlap")
class SelectsThenReads(Honest):
    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        selected = [pet.id for pet in self.matching(query)[: query.count]]
        await asyncio.sleep(0)
        return [self.data.pets[pet_id] for pet_id in selected]


@breaks("page-walk")
class WalksThroughASnapshot(Honest):
    """Keeps what follows a page for the call that continues there."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        key = query.after, query.status
        pets = self.kept.pop(key, None) or self.matching(query)
        page = pets[: query.count]
        if page:
            self.kept = {(page[-1].id, query.status): pets[query.count :]}
        return page


@breaks("no-aliasing")
class ReturnsItsOwnList(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.own = defaultdict[PetStatus | None, list[Pet]](list)

    def put(self, pet: Pet) -> None:
        for status in {None, pet.status or None}:
            self.own[status].append(pet)

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        own = self.own[query.status]
        whole = not query.after and query.count >= len(own)
        return own if whole else await super().list_pets(query)


@breaks("no-aliasing")
class SharesAnEmptyPage(Honest):
    nothing: ClassVar[list[Order]] = []

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        return await super().list_orders(query) or self.nothing


@breaks("page-after")
class KeysPagesByTheirDigits(Honest):
    """Ten pets after 1 and no pets after 11 have the same key in its cache: 110."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        key = f"{query.after}{query.count}{query.status}"
        page = self.matching(query)[: query.count]
        return list(self.kept.setdefault(key, page))

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.kept.clear()

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.kept.clear()


@breaks("page-count")
class SkipsSixteenStaleRows(Honest):
    """Rows stay in the index of a status; a page reads sixteen more than it needs."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        index = self.data.extra.setdefault("index", set())
        rows = sorted(id_ for key, id_ in index if key == query.status and id_ > query.after)
        pets = [self.data.pets[id_] for id_ in rows[: query.count + 16]]
        index -= {(query.status, pet.id) for pet in pets if pet.status is not query.status}
        found = [pet for pet in pets if pet.status is query.status]
        return (self.matching(query) if query.status is None else found)[: query.count]

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.data.extra.setdefault("index", set()).add((pet.status, pet.id))

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.data.extra.setdefault("index", set()).add((status, pet_id))
