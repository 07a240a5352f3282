"""What a backend may do wrong when orders are restored."""

from collections.abc import Sequence
from datetime import datetime

from conformance.tests.correct import Correct, Item, Token
from conformance.tests.saboteurs.registry import breaks
from conformance.tests.saboteurs.restoring import ChecksBeforeTheCall
from petstore.contract import (
    PET_STATUS_BY_ORDER,
    ConflictError,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
)


@breaks("restore-order")
class UndoesItemsBeforeAnOrderWithoutItsPet(Correct):
    async def restore(self, items: Sequence[Item]) -> None:
        pets = dict(self.data.pets)
        try:
            await super().restore(items)
        except NotFoundError:
            self.data.pets = pets
            raise


@breaks("restore-order")
class RestoresOrdersOfAbsentPets(Correct):
    def check_pet(self, order: Order) -> None:
        if order.pet_id in self.data.pets:
            super().check_pet(order)


@breaks("restore-order")
class OrderOfAnAbsentPetIsAConflict(Correct):
    def check_pet(self, order: Order) -> None:
        try:
            super().check_pet(order)
        except NotFoundError:
            raise ConflictError("no such pet") from None


@breaks("restore-live")
class RestoresTwoOrdersOfOnePet(Correct):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PetStatus.PENDING or order.status is not OrderStatus.PLACED:
            super().check_live(order, pet)


@breaks("restore-live")
class ReservesThePetInstead(Correct):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is PetStatus.AVAILABLE:
            self.set_status(pet.id, PetStatus.PENDING)
            return
        super().check_live(order, pet)


@breaks("restore-live")
class StoresTheOrderThatItRefuses(Correct):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            self.add(order)
        super().check_live(order, pet)


@breaks("restore-live")
class OverlooksOrdersOfTheSameCall(ChecksBeforeTheCall):
    """Looks for other orders of a pet only among those that were stored before the call."""

    def check_live(self, order: Order, pet: Pet) -> None:
        known, self.data.orders = self.data.orders, self.live
        try:
            super().check_live(order, pet)
        finally:
            self.data.orders = known


@breaks("restore-order")
class RestoresPetsFirst(Correct):
    """Sorts the items, so that an order may come before its pet."""

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(sorted(items, key=lambda item: isinstance(item, Order)))


@breaks("restore-live")
class LinksTheLastOrder(Correct):
    """Has a column for the order of a pet, which a cancelled order takes, too."""

    def add(self, item: Pet | Order) -> None:
        super().add(item)
        if isinstance(item, Order):
            self.data.extra.setdefault("links", {})[item.pet_id] = item

    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PET_STATUS_BY_ORDER[order.status]:
            raise ConflictError("the pet has another status")
        linked = self.data.extra.get("links", {}).get(pet.id)
        if linked and linked.status is not OrderStatus.CANCELLED:
            raise ConflictError("the pet is in another order")


@breaks("restore-live")
class LinksOneOrderOfATurn(Correct):
    """Orders of one turn are stored together, but only the last is linked to its pet."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        self.kept["last"] = pet_id
        receipt = await super().place_order(pet_id, at, token)
        if self.kept["last"] != pet_id:
            self.data.extra.setdefault("unlinked", set()).add(receipt.id)
        return receipt

    def check_live(self, order: Order, pet: Pet) -> None:
        known, unlinked = self.data.orders, self.data.extra.get("unlinked", set())
        self.data.orders = {id_: known[id_] for id_ in known if id_ not in unlinked}
        try:
            super().check_live(order, pet)
        finally:
            self.data.orders = known


@breaks("restore-live")
class LooksForLowIdsOnly(LinksTheLastOrder):
    """The index of the orders of a pet has ids of 31 bits; for others it has the last order."""

    def check_live(self, order: Order, pet: Pet) -> None:
        if order.id < 2**31:
            Correct.check_live(self, order, pet)
        else:
            super().check_live(order, pet)
