"""What can be wrong with restoring."""

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
from tests.honest import Honest, Store
from tests.saboteurs.registry import breaks


@breaks("restore-exact")
class GivesOutNewIds(Honest):
    def shelve(self, item: Pet | Order) -> None:
        super().shelve(replace(item, id=self.next_id()))


@breaks("restore-exact")
class RestoresWholeSeconds(Honest):
    def shelve(self, item: Pet | Order) -> None:
        if isinstance(item, Order):
            item = replace(item, placed_at=item.placed_at.replace(microsecond=0))
        super().shelve(item)


@breaks("restore-exact")
class ForgetsTheListOfAStatus(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.restored: set[int] = set()

    def shelve(self, item: Pet | Order) -> None:
        super().shelve(item)
        self.restored.add(item.id)

    def matching(self, after: int, status: PetStatus | None) -> list[Pet]:
        found = super().matching(after, status)
        return [pet for pet in found if status is None or pet.id not in self.restored]


@breaks("restore-exact")
class StoresNothingBelowTheHighest(Honest):
    def shelve(self, item: Pet | Order) -> None:
        if item.id >= max(self.store.pets, default=0) or isinstance(item, Order):
            super().shelve(item)


@breaks("restore-again")
class RefusesWhatIsThere(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        raise ConflictError("there is one")


@breaks("restore-again")
class LooksForLiveOrdersFirst(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if isinstance(item, Order):
            self.check_animal(item)
        super().check_same(item, stored)


@breaks("restore-other")
class ReplacesWhatIsThere(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        self.shelve(item)


@breaks("restore-other")
class PassesOverWhateverIsThere(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        pass


@breaks("restore-other")
class ComparesNamesOnly(Honest):
    def check_same(self, item: Pet | Order, stored: Pet | Order) -> None:
        if not (isinstance(item, Pet) and isinstance(stored, Pet) and item.name == stored.name):
            super().check_same(item, stored)


@breaks("restore-other")
class TakesThoseBeforeItAlong(Honest):
    async def restore(self, items: Sequence[Pet | Order]) -> None:
        pets, orders = dict(self.store.pets), dict(self.store.orders)
        try:
            await super().restore(items)
        except ConflictError:
            self.store.pets, self.store.orders = pets, orders
            raise


@breaks("restore-next")
class CountsOnFromWhereItWas(Honest):
    def skip(self, item: Pet | Order) -> None:
        pass

    def next_id(self) -> int:
        while super().next_id() in self.store.pets | self.store.orders:
            pass
        return self.store.last


@breaks("restore-next")
class FollowsTheLastOne(Honest):
    def skip(self, item: Pet | Order) -> None:
        self.store.last = item.id


@breaks("restore-next")
class FollowsInOneOfFourPartitions(Honest):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.last = [store.last] * 4
        self.turn = 0

    def skip(self, item: Pet | Order) -> None:
        self.last[item.id % 4] = max(self.last[item.id % 4], item.id)

    def next_id(self) -> int:
        self.turn = (self.turn + 1) % 4
        last = self.last[self.turn]
        self.last[self.turn] = number = last + 4 - (last - self.turn) % 4
        return number


@breaks("restore-order")
class RestoresOrdersOfNothing(Honest):
    def check_animal(self, order: Order) -> None:
        if order.pet_id in self.store.pets:
            super().check_animal(order)


@breaks("restore-order")
class SaysConflictOfNothing(Honest):
    def check_animal(self, order: Order) -> None:
        try:
            super().check_animal(order)
        except NotFoundError:
            raise ConflictError("not there") from None


@breaks("restore-live")
class RestoresTwoOrdersOfOneAnimal(Honest):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is not PetStatus.PENDING or order.status is not OrderStatus.PLACED:
            super().check_live(order, pet)


@breaks("restore-live")
class DoesNotLookAtTheStatus(Honest):
    def check_live(self, order: Order, pet: Pet) -> None:
        others = [o for o in self.store.orders.values() if o.pet_id == pet.id]
        if any(other.status is not OrderStatus.CANCELLED for other in others):
            raise ConflictError("the animal is in another order")


@breaks("restore-live")
class MovesTheAnimalInstead(Honest):
    def check_live(self, order: Order, pet: Pet) -> None:
        if pet.status is PetStatus.AVAILABLE:
            self.move(pet.id, PetStatus.PENDING)
            return
        super().check_live(order, pet)
