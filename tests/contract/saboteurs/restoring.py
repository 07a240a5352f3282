"""What a backend may do wrong in `restore`."""

from collections.abc import Sequence

from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
)
from tests.contract.saboteurs.registry import breaks
from tests.support.honest import Honest, Store


@breaks("restore-exact")
class AssignsNewIds(Honest):
    def add(self, item: Pet | Order) -> None:
        super().add(replace(item, id=self.next_id()))


@breaks("restore-exact")
class RestoresTimesInSeconds(Honest):
    def add(self, item: Pet | Order) -> None:
        if isinstance(item, Order):
            item = replace(item, placed_at=item.placed_at.replace(microsecond=0))
        super().add(item)


@breaks("restore-exact")
class FilteredListsLackRestoredPets(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.restored: set[int] = set()

    def add(self, item: Pet | Order) -> None:
        super().add(item)
        self.restored.add(item.id)

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        found = super().matching(after, status)
        return [pet for pet in found if status is None or pet.id not in self.restored]


@breaks("restore-exact")
class DropsPetsBelowTheHighestId(Honest):
    def add(self, item: Pet | Order) -> None:
        if item.id >= max(self.store.pets, default=0) or isinstance(item, Order):
            super().add(item)


@breaks("restore-again")
class RefusesEqualItems(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        raise ConflictError("an item has this id")


@breaks("restore-again")
class ChecksThePetBeforeTheStoredOrder(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if isinstance(item, Order):
            self.check_pet(item)
        super().check_same(item, stored)


@breaks("restore-other")
class ReplacesDifferentItems(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        self.add(item)


@breaks("restore-other")
class SkipsDifferentItems(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        pass


@breaks("restore-other")
class ComparesOnlyNames(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if not (isinstance(item, Pet) and isinstance(stored, Pet) and item.name == stored.name):
            super().check_same(item, stored)


@breaks("restore-other")
class UndoesItemsBeforeTheRefusedOne(Honest):
    async def restore(self, items: Sequence[Pet | Order]) -> None:
        pets, orders = dict(self.store.pets), dict(self.store.orders)
        try:
            await super().restore(items)
        except ConflictError:
            self.store.pets, self.store.orders = pets, orders
            raise


@breaks("restore-next")
class DoesNotRaiseItsCounter(Honest):
    def raise_counter(self, item: Pet | Order) -> None:
        pass

    def next_id(self) -> int:
        while super().next_id() in self.store.pets | self.store.orders:
            pass
        return self.store.last_id


@breaks("restore-next")
class SetsItsCounterToTheLastId(Honest):
    def raise_counter(self, item: Pet | Order) -> None:
        self.store.last_id = item.id


@breaks("restore-next")
class RaisesOneOfFourCounters(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.last_ids = [store.last_id] * 4
        self.turn = 0

    def raise_counter(self, item: Pet | Order) -> None:
        self.last_ids[item.id % 4] = max(self.last_ids[item.id % 4], item.id)

    def next_id(self) -> int:
        self.turn = (self.turn + 1) % 4
        last = self.last_ids[self.turn]
        self.last_ids[self.turn] = id_ = last + 4 - (last - self.turn) % 4
        return id_


@breaks("restore-order")
class RestoresOrdersOfAbsentPets(Honest):
    def check_pet(self, order: Order) -> None:
        if order.pet_id in self.store.pets:
            super().check_pet(order)


@breaks("restore-order")
class OrderOfAnAbsentPetIsAConflict(Honest):
    def check_pet(self, order: Order) -> None:
        try:
            super().check_pet(order)
        except NotFoundError:
            raise ConflictError("no such pet") from None


@breaks("restore-live")
class RestoresTwoOrdersOfOnePet(Honest):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PetStatus.PENDING or order.status is not OrderStatus.PLACED:
            super().check_live(order, pet)


@breaks("restore-live")
class IgnoresTheStatusOfThePet(Honest):
    def check_live(self, order: Order, pet: Pet) -> None:
        others = [o for o in self.store.orders.values() if o.pet_id == pet.id]
        if any(other.status is not OrderStatus.CANCELLED for other in others):
            raise ConflictError("the pet is in another order")


@breaks("restore-live")
class ReservesThePetInstead(Honest):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is PetStatus.AVAILABLE:
            self.set_status(pet.id, PetStatus.PENDING)
            return
        super().check_live(order, pet)
