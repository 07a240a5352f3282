"""The model: a store of plain lists, with which the machine compares a repository."""

import copy
from collections.abc import Coroutine, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    RefusedError,
    Repository,
    TokenReusedError,
)
from petstore_conformance.model.values import AT, DAY_SECONDS, NOW, make_token

AnyItem = TypeVar("AnyItem", Pet, Order)

AnyQuery = PetQuery | OrderQuery

Payload = NewPet | int  # what a write makes: a new pet, or an order of the pet with this id


class Write(Struct, frozen=True):
    """A call of `create_pet` or `place_order`.

    name -- that of its token, or None: each operation has its own token of a name
    at -- when the order is placed
    behind -- by how many seconds the clock of its caller is slow
    seconds -- after how many seconds the record of the token expires
    """

    payload: Payload
    name: str | None = None
    at: datetime = AT
    behind: int = 0
    seconds: int = DAY_SECONDS

    def reuses_token(self, other: "Write") -> bool:
        """Return whether the other write has the same token, for something else."""
        same = type(self.payload) is type(other.payload) and self.name == other.name
        return same and self.name is not None and self.payload != other.payload


def send(
    repository: Repository, payload: Payload, token: IdempotencyToken | None, at: datetime = AT
) -> Coroutine[Any, Any, Receipt]:
    """Return the write that stores this: a new pet, or an order of a pet."""
    if isinstance(payload, NewPet):
        return repository.create_pet(payload, token)
    return repository.place_order(payload, at, token)


def created(id_: int, new: NewPet) -> Pet:
    """Return what must be stored under an id that a new pet was assigned."""
    return Pet(id_, new.name, new.category_id, new.status)


class Stored(Struct):
    """All pets and orders of a repository, in ascending id."""

    pets: list[Pet]
    orders: list[Order]

    @property
    def ids(self) -> set[int]:
        """The ids of all pets and orders."""
        return {pet.id for pet in self.pets} | {order.id for order in self.orders}

    def free_ids(self, above: int = 0) -> Iterator[int]:
        """Yield ids above this one that neither a pet nor an order has, in ascending order."""
        used = self.ids
        return (id_ for id_ in count(above + 1) if id_ not in used)

    def page(self, query: AnyQuery) -> list[Any]:
        """Return the page that a query asks for."""
        items: list[Any] = [*(self.pets if isinstance(query, PetQuery) else self.orders)]
        return matching(items, query)[: query.count]


class Model(Stored):
    """What must be stored, and the records of tokens.

    Ids are taken from the receipts of the repository.

    records -- type of the payload and name -> when the record expires, payload, id
    reserved -- writes that are in flight, or may have been cancelled before they had an effect
    now -- the latest clock of any caller, in seconds since 1970
    restored -- the highest id that was restored
    own_clock -- whether the repository replaces the times of orders by its own
    """

    records: dict[tuple[type, str], tuple[int, Payload, int]] = {}
    reserved: list[Write] = []
    now: int = NOW
    restored: int = 0
    own_clock: bool = False

    def copy(self) -> "Model":
        """Return another model of the same state."""
        return Model(*map(copy.copy, astuple(self)))

    def clock(self, write: Write) -> int:
        """Return the clock of the caller of a write, which may be slow.

        It is not slow if it would then find a record valid that may have been deleted already.
        """
        until, _, _ = self._record(write)
        slow = self.now - write.behind
        return self.now if slow < until <= self.now else slow

    def token(self, write: Write) -> IdempotencyToken | None:
        """Return the token of a write, or None without a name."""
        if write.name is None:
            return None
        name = f"{type(write.payload)} {write.name}"
        return make_token(name, write.payload, self.clock(write), write.seconds)

    def is_reserved(self, write: Write) -> bool:
        """Return whether the token of a write may count as used for another one."""
        return any(write.reuses_token(other) for other in self.reserved)

    def expect(self, write: Write) -> Receipt | type[RefusedError] | None:
        """Return the receipt or the error that a write must get, or None for a new receipt."""
        until, recorded, id_ = self._record(write)
        if write.name and until > self.clock(write):
            return Receipt(id_, replayed=True) if recorded == write.payload else TokenReusedError
        if isinstance(write.payload, NewPet):
            return None
        pet = self.pet(write.payload)
        if pet is None:
            return NotFoundError
        return None if pet.status is PetStatus.AVAILABLE else ConflictError

    def write(self, write: Write, receipt: Receipt) -> None:
        """Apply a write that the repository has acknowledged with a new id."""
        payload = write.payload
        assert not receipt.replayed
        assert 1 <= receipt.id <= MAX_ID
        assert receipt.id > self.restored, "the id is not above all restored ones"
        if write.name:
            until = self.clock(write) + write.seconds
            self.records[type(payload), write.name] = until, payload, receipt.id
        if isinstance(payload, NewPet):
            _insert(self.pets, created(receipt.id, payload))
        else:
            _insert(self.orders, Order(receipt.id, payload, OrderStatus.PLACED, write.at))
            self._set_status(payload, PetStatus.PENDING)

    def update(self, order_id: int, status: OrderStatus) -> Order | type[RefusedError]:
        """Change an order; return it in its new state, or the error that must be raised."""
        order = self.order(order_id)
        if order is None:
            return NotFoundError
        if order.status is status:
            return order
        if order.status is not OrderStatus.PLACED:
            return ConflictError
        changed = replace(order, status=status)
        self.orders[self.orders.index(order)] = changed
        self._set_status(order.pet_id, PET_STATUS_BY_ORDER[status])
        return changed

    def free_id(self, gap: int) -> int:
        """Return an id that neither a pet nor an order has.

        gap -- how far above all others it is, if so many ids are left; 0 means the lowest free id
        """
        if gap and max(self.ids) + gap < MAX_ID - 2**40:
            return max(self.ids) + gap
        return next(self.free_ids())

    def restore(self, id_: int, new: NewPet, status: OrderStatus | None) -> list[Pet | Order]:
        """Store a pet of another store and an order of it, under the same id; return them.

        status -- that of the order; None means cancelled
        """
        pet = created(id_, new)
        if status is not None and status is not OrderStatus.CANCELLED:
            pet = replace(pet, status=PET_STATUS_BY_ORDER[status])
        _insert(self.pets, pet)
        self.restored = max(self.restored, id_)
        # Always with an order, so that one id is the floor for later ids of both kinds.
        order = Order(id_, id_, status or OrderStatus.CANCELLED, AT)
        _insert(self.orders, order)
        return [pet, order]

    def pet(self, pet_id: int) -> Pet | None:
        """Return the pet with this id, if there is one."""
        return next((pet for pet in self.pets if pet.id == pet_id), None)

    def order(self, order_id: int) -> Order | None:
        """Return the order with this id, if there is one."""
        return next((order for order in self.orders if order.id == order_id), None)

    def _record(self, write: Write) -> tuple[int, Payload, int]:
        return self.records.get((type(write.payload), write.name or ""), (0, write.payload, 0))

    def _set_status(self, pet_id: int, status: PetStatus) -> None:
        pet: Any = self.pet(pet_id)
        self.pets[self.pets.index(pet)] = replace(pet, status=status)


def matching(items: Sequence[AnyItem], query: AnyQuery) -> list[AnyItem]:
    """Return the items that match a query, however many: the page is the first `count`."""
    after, status = query.after, query.status
    return [it for it in items if it.id > after and (status is None or it.status == status)]


def _insert(items: list[AnyItem], item: AnyItem) -> None:
    assert item.id not in [other.id for other in items], "an id is assigned twice"
    items.append(item)
    items.sort(key=lambda other: other.id)
