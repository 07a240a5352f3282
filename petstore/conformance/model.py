"""The model: a store in plain Python, that the machine compares a repository with."""

from typing import TypeVar

from msgspec.structs import replace

from petstore.conformance.orders import AT
from petstore.conformance.retries import DAY, NOW, retry_of
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    RefusedError,
    Retry,
    TokenReusedError,
)

Item = TypeVar("Item", Pet, Order)
Written = NewPet | int
"""What a write that can be repeated writes: an animal, or an order of the one with this id."""


class Model:
    """Animals and orders in ascending id, and what is recorded of retries, by operation and name.

    Ids are the repository's: they are taken from the receipts that it gives.
    """

    def __init__(self) -> None:
        self.pets: list[Pet] = []
        self.orders: list[Order] = []
        self.records: dict[tuple[type, str], tuple[int, Written, int]] = {}  # until, what, id
        self.now = NOW
        self.restored = 0  # the highest id among them

    def retry(self, what: Written, name: str | None) -> Retry | None:
        """Return the retry of a write under a name; the name is its operation's own."""
        return retry_of(f"{type(what)} {name}", what, self.now) if name else None

    def expect(self, what: Written, name: str | None) -> Receipt | type[RefusedError] | None:
        """Return the receipt or the error that a write must get, or None for a new receipt."""
        until, recorded, number = self.records.get((type(what), name or ""), (0, what, 0))
        if name and until > self.now:
            return Receipt(number, replayed=True) if recorded == what else TokenReusedError
        if isinstance(what, NewPet) or self._pet(what).status is PetStatus.AVAILABLE:
            return None
        return ConflictError

    def write(self, what: Written, name: str | None, receipt: Receipt) -> None:
        """Take over what a write has stored."""
        assert not receipt.replayed
        assert 1 <= receipt.id <= MAX_ID
        assert receipt.id > self.restored, "an id is given out that is below a restored one"
        if isinstance(what, NewPet):
            _insert(self.pets, Pet(receipt.id, what.name, what.category_id, what.status))
        else:
            _insert(self.orders, Order(receipt.id, what, OrderStatus.PLACED, AT))
            self._move(what, PetStatus.PENDING)
        if name:
            self.records[type(what), name] = (self.now + DAY, what, receipt.id)

    def update(self, order: Order, status: OrderStatus) -> Order | type[RefusedError]:
        """Change an order; return it as it is then, or the error that this must give."""
        if order.status is status:
            return order
        if order.status is not OrderStatus.PLACED:
            return ConflictError
        changed = replace(order, status=status)
        self.orders[self.orders.index(order)] = changed
        self._move(order.pet_id, PET_STATUS_BY_ORDER[status])
        return changed

    def restore(self, new: NewPet, gap: int, status: OrderStatus | None) -> list[Pet | Order]:
        """Take over an animal and, with a status, an order of it; return them.

        gap -- how far their ids are above all others
        """
        ids = [pet.id for pet in self.pets] + [order.id for order in self.orders]
        number = max(ids) + gap
        pet = Pet(number, new.name, new.category_id, new.status)
        if status is not None and status is not OrderStatus.CANCELLED:
            pet = replace(pet, status=PET_STATUS_BY_ORDER[status])
        _insert(self.pets, pet)
        self.restored = number
        # An order in any case, so that both kinds go on above the same id.
        order = Order(number, number, status or OrderStatus.CANCELLED, AT)
        _insert(self.orders, order)
        return [pet, order]

    def _pet(self, pet_id: int) -> Pet:
        return next(pet for pet in self.pets if pet.id == pet_id)

    def _move(self, pet_id: int, status: PetStatus) -> None:
        pet = self._pet(pet_id)
        self.pets[self.pets.index(pet)] = replace(pet, status=status)


def page(items: list[Item], after: int, count: int, status: str | None) -> list[Item]:
    """Return the first `count` items whose id is higher than `after`."""
    return [i for i in items if i.id > after and status in (None, i.status)][:count]


def _insert(items: list[Item], item: Item) -> None:
    assert item.id not in [other.id for other in items], "an id is given out twice"
    items.append(item)
    items.sort(key=lambda other: other.id)
