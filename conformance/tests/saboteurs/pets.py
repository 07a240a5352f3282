"""What a backend may do wrong with pets and pages."""

import asyncio
import hashlib
import re
import unicodedata
import zlib
from collections.abc import Callable
from itertools import accumulate
from typing import Any, ClassVar
from urllib.parse import unquote

from msgspec.structs import replace

from conformance.tests.correct import ALL, Correct, Token
from conformance.tests.saboteurs.registry import Caching, breaks
from petstore.contract import NewPet, Pet, PetQuery, PetStatus, Receipt, TokenPage

Find = Callable[[PetQuery], list[Pet]]


def changing(clause: str, field: str, **changes: Callable[[Any], Any]) -> None:
    """Register saboteurs that change a field of each pet that they store."""
    for name, change in changes.items():

        def put(self: Correct, pet: Pet, change: Callable[[Any], Any] = change) -> None:
            Correct.put(self, replace(pet, **{field: change(getattr(pet, field))}))

        breaks(clause)(type(name, (Correct,), {"put": put}))


def listing(clause: str, name: str, choose: Callable[[Find, PetQuery], list[Pet]]) -> None:
    """Register a saboteur that chooses the pets of a page, and may find all that match a query."""

    class Lists(Correct):
        async def list_pets(self, query: PetQuery) -> list[Pet]:
            self.require_open()
            return choose(self.matching, query)[: query.count]

    Lists.__name__ = name
    breaks(clause)(Lists)


def repaired(name: str) -> str:
    """Take a name for UTF-8 that was read as Latin-1, if it may be."""
    try:
        return name.encode("latin-1").decode()
    except UnicodeError:
        return name


def short(pets: list[Pet]) -> list[Pet]:
    """Return the first pet, and those after it until a megabyte of names is exceeded."""
    lengths = accumulate(len(pet.name) for pet in pets)
    found = [pet for pet, length in zip(pets, lengths, strict=True) if length <= 2**20]
    return found or pets[:1]


changing(
    "name-exact",
    "name",
    TrimsNames=str.strip,
    FoldsNames=str.casefold,
    CutsNames=lambda name: name[:255],
    CutsNamesAtSixteenMebibytes=lambda name: name[: 2**24 - 1],
    EndsNamesAtNull=lambda name: name.split("\0")[0],
    EndsNamesAtASeparator=lambda name: name.split("\x1f")[0],
    NormalizesNames=lambda name: unicodedata.normalize("NFC", name),
    UnquotesNames=unquote,
    StripsQuotes=lambda name: re.sub('^"(.+)"$', r"\1", name),
    GuessesTheTypeOfNames=lambda name: str(int(name)) if name.isdecimal() else name,
    RepairsNames=repaired,
    ReadsNullsAsInC=lambda name: name.replace("\\0", "\0"),
    ReadsNullsAsInJson=lambda name: name.replace("\\u0000", "\0"),
)
changing(
    "category-exact",
    "category_id",
    CategoryThroughFloat=lambda category: int(float(category)) % 2**63,
    CategoryIn32Bits=lambda category: category % 2**32,
)
changing(
    "status-exact",
    "status",
    AbsentStatusIsAvailable=lambda status: status or PetStatus.AVAILABLE,
    AbsentStatusIsNone=lambda status: status or None,
)
changing("exact-types", "status", StatusIsText=lambda status: status and str(status))
changing("get-stored", "id", StoresASeventhUnderTheWrongId=lambda id_: id_ - (id_ % 7 == 0))

listing(
    "page-order",
    "SortsIdsAsText",
    lambda find, query: sorted(find(query), key=lambda pet: str(pet.id)),
)
listing(
    "page-after",
    "IncludesTheCursor",
    lambda find, query: find(replace(query, after=query.after - 1)),
)
listing(
    "page-after",
    "RepeatsTheLastPetOfAStatus",
    lambda find, query: find(query) or find(replace(query, after=query.after - bool(query.status))),
)
listing("page-count", "EndsPagesAtAMegabyte", lambda find, query: short(find(query)))
listing(
    "page-status",
    "LastPageIsNotFiltered",
    lambda find, query: find(
        query if len(find(query)) > query.count else replace(query, status=None)
    ),
)
listing(
    "page-empty",
    "StartsOverAfterTheLastPage",
    lambda find, query: find(query) or find(replace(query, after=0)),
)
listing(
    "page-after",
    "SkipsAtABoundary",
    lambda find, query: [*find(query)[: query.count - 1], *find(query)[query.count :]],
)


@breaks("id-range")
class CountsFromZero(Correct):
    def next_id(self) -> int:
        return super().next_id() - 1


@breaks("id-once")
class ChecksThenCounts(Correct):
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
class FindsTheNearestPet(Correct):
    async def get_pet(self, pet_id: int) -> Pet | None:
        lower = [pet for pet in self.matching(ALL) if pet.id <= pet_id]
        return lower[-1] if lower else None


@breaks("page-overlap")
class SelectsThenReads(Caching):
    """Selects a long page again only if it has written itself, not if another handle has."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        selected = self.kept[query] = [pet.id for pet in self.matching(query)[: query.count]]
        await asyncio.sleep(0)
        if len(selected) < 500 or self.kept.get(query) is not selected:
            return self.matching(query)[: query.count]
        return [self.data.pets[pet_id] for pet_id in selected]


@breaks("page-walk")
class WalksThroughASnapshot(Correct):
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
class SharesAnEmptyPage(Correct):
    nothing: ClassVar[TokenPage] = TokenPage([], "")

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(cursor, count, now)
        return page if page.records or page.next else self.nothing


@breaks("no-aliasing")
class SharesPagesInFlight(Correct):
    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        found = await super().list_tokens(cursor, count, now)
        page: TokenPage = self.kept.setdefault(cursor, found)
        await asyncio.sleep(0)
        self.kept.pop(cursor, None)
        return page


@breaks("page-count")
class SkipsSomeStaleRows(Correct):
    """Rows stay in the index of a status; a page reads five hundred more than it needs."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        self.require_open()
        index = self.data.extra.setdefault("index", set())
        rows = sorted(id_ for key, id_ in index if key == query.status and id_ > query.after)
        pets = [self.data.pets[id_] for id_ in rows[: query.count + 500]]
        index -= {(query.status, pet.id) for pet in pets if pet.status is not query.status}
        found = [pet for pet in pets if pet.status is query.status]
        return (self.matching(query) if query.status is None else found)[: query.count]

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.data.extra.setdefault("index", set()).add((pet.status, pet.id))

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        self.data.extra.setdefault("index", set()).add((status, pet_id))


def interning(name: str, checksum: Callable[[bytes], object]) -> None:
    """Register a saboteur that stores each name once, and finds it by a checksum."""

    def put(self: Correct, pet: Pet) -> None:
        names = self.data.extra.setdefault("names", {})
        known = names.setdefault(checksum(pet.name.encode()), pet.name)
        Correct.put(self, replace(pet, name=known))

    breaks("name-exact")(type(name, (Correct,), {"put": put}))


interning("InternsNamesByTheirCrc", zlib.crc32)
interning("InternsNamesByFourBytes", lambda name: hashlib.sha256(name).digest()[:4])
