"""What a backend may do wrong with values on their way, and with their types."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from conformance.tests.correct import Correct, Item, Token
from conformance.tests.saboteurs.registry import breaks
from petstore.contract import (
    MAX_ID,
    ConflictError,
    Order,
    OrderQuery,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    StorageError,
)

BERLIN = ZoneInfo("Europe/Berlin")


def placing(
    clause: str, name: str, change: Callable[[int, datetime], tuple[int, datetime]]
) -> None:
    """Register a saboteur that changes the pet id and the time of an order."""

    async def place_order(self: Correct, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        return await Correct.place_order(self, *change(pet_id, at), token)

    breaks(clause)(type(name, (Correct,), {"place_order": place_order}))


placing(
    "order-exact",
    "TimesAsDoubles",
    lambda pet_id, at: (pet_id, datetime.fromtimestamp(at.timestamp(), UTC)),
)
placing(
    "order-exact",
    "TimesInLocalTime",
    lambda pet_id, at: (pet_id, at.astimezone(BERLIN).replace(fold=0).astimezone(UTC)),
)
placing("order-exact", "CutsTimesToSeconds", lambda pet_id, at: (pet_id, at.replace(microsecond=0)))
placing("exact-types", "DropsTheTimeZone", lambda pet_id, at: (pet_id, at.replace(tzinfo=None)))
# The pet id of an order wraps, or loses its sign, or becomes the nearest one that is in range.
placing("order-of-nothing", "OrdersPetsIn32Bits", lambda pet_id, at: (pet_id % 2**32, at))
placing("order-of-nothing", "DropsTheSignOfPetIds", lambda pet_id, at: (pet_id % 2**63, at))
placing("order-of-nothing", "ClampsPetIds", lambda id_, at: (min(max(id_, 1), MAX_ID), at))
placing("order-of-nothing", "ClampsHighPetIds", lambda id_, at: (min(id_, MAX_ID), at))


@breaks("name-exact")
class SortsPiecesAsText(Correct):
    """Keeps long names in pieces of half a megabyte, numbered from 0: the eleventh is the third."""

    def put(self, pet: Pet) -> None:
        name, size = pet.name, 2**19
        numbers = sorted(range(0, len(name), size), key=lambda begin: str(begin // size))
        joined = "".join(name[begin : begin + size] for begin in numbers)
        super().put(replace(pet, name=joined))


@breaks("restore-exact")
class CursorsAreDoubles(Correct):
    """Begins half an id after the cursor, which a double cannot hold above 2^52."""

    def matching(self, query: PetQuery) -> list[Pet]:
        found = super().matching(replace(query, after=0))
        return [pet for pet in found if pet.id > query.after + 0.5]


@breaks("restore-exact")
class RefusesTheMaximum(Correct):
    """The highest id is taken for a mark of the end."""

    def raise_counter(self, item: Pet | Order) -> None:
        if item.id >= MAX_ID:
            raise ConflictError("the id is reserved")
        super().raise_counter(item)


@breaks("exact-types")
class RenamesAnArgument(Correct):
    """Its method cannot be called by the contract's names of arguments."""

    async def get_pet(self, id_: int) -> Pet | None:
        return await super().get_pet(id_)


@breaks("no-aliasing")
class UpdatesReturnedPages(Correct):
    """The pages that were returned are its cache, which it keeps up to date."""

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        page = self.kept[len(self.kept)] = await super().list_orders(query)
        return page

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        for page in self.kept.values():
            page[:] = [self.data.orders.get(order.id, order) for order in page]


@breaks("exact-types")
class ReturnsTuples(Correct):
    """A page is what the driver has fetched."""

    async def list_orders(self, query: OrderQuery) -> Any:
        return tuple(await super().list_orders(query))


@breaks("name-exact")
class EscapesNames(Correct):
    """Its line has room for so much, with each character that is not ASCII escaped."""

    def put(self, pet: Pet) -> None:
        if len(pet.name.encode("ascii", "backslashreplace")) > 2**25:
            raise StorageError("the line is too long")
        super().put(pet)


@breaks("restore-sizes")
class LooksForAllIdsAtOnce(Correct):
    """Looks for all items of a call with one statement, which takes 32,766 values at most."""

    async def restore(self, items: Sequence[Item]) -> None:
        if len(items) > 32_766:
            raise StorageError("too many variables")
        await super().restore(items)


@breaks("restore-exact")
class RestoresEarlyTimesInLocalTime(Correct):
    """It is the same time, but not in UTC."""

    def add(self, item: Pet | Order) -> None:
        if isinstance(item, Order) and item.placed_at.year < 1970:
            item = replace(item, placed_at=item.placed_at.astimezone(BERLIN))
        super().add(item)


@breaks("name-exact")
class CutsNamesOfPendingPets(Correct):
    """A list of what is pending comes from a narrower table."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        found = await super().list_pets(query)
        if query.status is PetStatus.PENDING:
            return [replace(pet, name=pet.name[: 2**16]) for pet in found]
        return found
