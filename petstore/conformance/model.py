"""The model: a store of plain lists, with which the machine compares a repository."""

from typing import TypeVar

from msgspec.structs import replace

from petstore.conformance.orders import AT
from petstore.conformance.tokens import DAY_SECONDS, NOW, make_token
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    IdempotencyToken,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    RefusedError,
    TokenReusedError,
)

_Item = TypeVar("_Item", Pet, Order)

Payload = NewPet | int
"""What a write with a token stores: a new pet, or an order of the pet with this id."""


class Model:
    """Pets and orders in ascending id, and the records of tokens.

    A token has a name, and each operation has its own token of that name. Ids are taken from the
    receipts of the repository.

    records -- type of the payload and name -> when the record expires, payload, id
    now -- the clock, in seconds since 1970
    restored -- the highest id that was restored
    """

    def __init__(self) -> None:
        self.pets: list[Pet] = []
        self.orders: list[Order] = []
        self.records: dict[tuple[type, str], tuple[int, Payload, int]] = {}
        self.now = NOW
        self.restored = 0

    def token(self, payload: Payload, name: str | None) -> IdempotencyToken | None:
        """Return the token of a write, or None without a name."""
        return make_token(f"{type(payload)} {name}", payload, self.now) if name else None

    def expect(self, payload: Payload, name: str | None) -> Receipt | type[RefusedError] | None:
        """Return the receipt or the error that a write must get, or None for a new receipt."""
        until, recorded, id_ = self.records.get((type(payload), name or ""), (0, payload, 0))
        if name and until > self.now:
            return Receipt(id_, replayed=True) if recorded == payload else TokenReusedError
        if isinstance(payload, NewPet) or self._pet(payload).status is PetStatus.AVAILABLE:
            return None
        return ConflictError

    def write(self, payload: Payload, name: str | None, receipt: Receipt) -> None:
        """Apply a write that the repository has acknowledged with a new id."""
        assert not receipt.replayed
        assert 1 <= receipt.id <= MAX_ID
        assert receipt.id > self.restored, "the id is not above all restored ones"
        if isinstance(payload, NewPet):
            pet = Pet(receipt.id, payload.name, payload.category_id, payload.status)
            _insert(self.pets, pet)
        else:
            _insert(self.orders, Order(receipt.id, payload, OrderStatus.PLACED, AT))
            self._set_status(payload, PetStatus.PENDING)
        if name:
            self.records[type(payload), name] = (self.now + DAY_SECONDS, payload, receipt.id)

    def update(self, order: Order, status: OrderStatus) -> Order | type[RefusedError]:
        """Change an order; return it in its new state, or the error that must be raised."""
        if order.status is status:
            return order
        if order.status is not OrderStatus.PLACED:
            return ConflictError
        changed = replace(order, status=status)
        self.orders[self.orders.index(order)] = changed
        self._set_status(order.pet_id, PET_STATUS_BY_ORDER[status])
        return changed

    def restore(self, new: NewPet, gap: int, status: OrderStatus | None) -> list[Pet | Order]:
        """Store a pet of another store and an order of it, under the same id; return them.

        gap -- how far this id is above all others
        status -- that of the order; None means cancelled
        """
        ids = [pet.id for pet in self.pets] + [order.id for order in self.orders]
        id_ = max(ids) + gap
        pet = Pet(id_, new.name, new.category_id, new.status)
        if status is not None and status is not OrderStatus.CANCELLED:
            pet = replace(pet, status=PET_STATUS_BY_ORDER[status])
        _insert(self.pets, pet)
        self.restored = id_
        # Always with an order, so that one id is the floor for later ids of both kinds.
        order = Order(id_, id_, status or OrderStatus.CANCELLED, AT)
        _insert(self.orders, order)
        return [pet, order]

    def _pet(self, pet_id: int) -> Pet:
        return next(pet for pet in self.pets if pet.id == pet_id)

    def _set_status(self, pet_id: int, status: PetStatus) -> None:
        pet = self._pet(pet_id)
        self.pets[self.pets.index(pet)] = replace(pet, status=status)


def page(items: list[_Item], after: int, count: int, status: str | None) -> list[_Item]:
    """Return the first `count` items whose id is higher than `after`, of a status or of all."""
    return [item for item in items if item.id > after and status in (None, item.status)][:count]


def _insert(items: list[_Item], item: _Item) -> None:
    assert item.id not in [other.id for other in items], "an id is assigned twice"
    items.append(item)
    items.sort(key=lambda other: other.id)
