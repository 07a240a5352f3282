"""What a store has promised by what it returned, and whether it still holds.

Pets and orders come from a `Stream`, so that one that is found shows whether it was ever sent.
"""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
    StorageError,
)

NOW: Final = 1_800_000_000
STATUSES: Final[tuple[PetStatus | UnsetType, ...]] = (
    *[PetStatus.AVAILABLE] * 5,
    PetStatus.PENDING,
    PetStatus.SOLD,
    UNSET,
)
REPLAYED: Final = 24
"""How many writes are repeated in a check: half of them the newest."""

_PLACED_FIRST: Final = datetime(2030, 1, 1, tzinfo=UTC)


def new_pet(name: str) -> NewPet:
    """Return the pet of this name: all else follows from it."""
    digest = sha256(name.encode()).digest()
    category = int.from_bytes(digest[:8], signed=True)
    return NewPet(f"{name} \u00e4\U0001f408", category, STATUSES[digest[8] % len(STATUSES)])


def sent(pet: Pet) -> bool:
    """Return whether this pet, but for its id and status, is one that was sent."""
    name = pet.name.removesuffix(" \u00e4\U0001f408")
    return name != pet.name and pet.category_id == new_pet(name).category_id


def placed_at(pet_id: int) -> datetime:
    """Return the time at which orders of this pet are placed."""
    return _PLACED_FIRST + timedelta(microseconds=pet_id % 999_983 * 1_000_003)


def token(name: str) -> IdempotencyToken:
    """Return the token of this name."""
    digest = sha256(name.encode()).digest()
    return IdempotencyToken(digest, digest[::-1], NOW, NOW + 86_400)


class Mark(msgspec.Struct, array_like=True, omit_defaults=True):
    """What a store has returned: it must be true from then on.

    pets, orders -- as they were returned
    created -- the names of tokens, and the ids of the pets that were created under them
    placed -- the same for orders
    writes -- how many writes were acknowledged with it
    """

    pets: Sequence[Pet] = ()
    orders: Sequence[Order] = ()
    created: dict[str, int] = {}
    placed: dict[str, int] = {}
    writes: int = 0


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Mark)
encoded: Final = _encoder.encode


class Promises:
    """Everything that was returned so far."""

    def __init__(self) -> None:
        self.pets: dict[int, Pet] = {}
        self.orders: dict[int, Order] = {}
        self.created: dict[str, int] = {}
        self.placed: dict[str, int] = {}
        self.broken: list[str] = []
        self.writes = 0

    def add(self, data: bytes) -> None:
        """Add an encoded mark."""
        mark = _decoder.decode(data)
        self.writes += mark.writes
        for pet in mark.pets:
            known = self.pets.setdefault(pet.id, pet)
            if known.name != pet.name:
                self.broken.append(f"pet id {pet.id} was given to {known.name} and {pet.name}")
        for order in mark.orders:
            before = self.orders.get(order.id, order)
            if (before.pet_id, before.placed_at) != (order.pet_id, order.placed_at):
                self.broken.append(f"order id {order.id} was given to {before} and {order}")
            if before.status is OrderStatus.PLACED:
                self.orders[order.id] = order
            elif order.status not in (OrderStatus.PLACED, before.status):
                self.broken.append(f"{before} became {order}")
        for known_ids, ids in ((self.created, mark.created), (self.placed, mark.placed)):
            for name, id_ in ids.items():
                if known_ids.setdefault(name, id_) != id_:
                    self.broken.append(f"token {name} stood for {known_ids[name]} and {id_}")

    async def violations(self, repository: Repository, chance: random.Random) -> list[str]:
        """Return what of it no longer holds. The store is written to."""
        pets = {pet.id: pet for pet in await repository.list_pets(PetQuery(0, MAX_ID))}
        orders = {order.id: order for order in await repository.list_orders(OrderQuery(0, MAX_ID))}
        return [
            *self.broken,
            *self._lost(pets, orders),
            *_inconsistent(pets, orders),
            *await _wrong_lists(repository, pets, orders),
            *await self._not_replayed(repository, chance),
            *await self._given_twice(repository, pets, orders),
        ]

    def _lost(self, pets: dict[int, Pet], orders: dict[int, Order]) -> list[str]:
        found = []
        for id_, pet in self.pets.items():
            now = pets.get(id_)
            if now is None:
                found.append(f"{pet} is lost")
            elif (now.name, now.category_id) != (pet.name, pet.category_id):
                found.append(f"{pet} is now {now}")
        for id_, order in self.orders.items():
            now_ordered = orders.get(id_)
            if now_ordered is None:
                found.append(f"{order} is lost")
            elif now_ordered != order and (
                order.status is not OrderStatus.PLACED
                or (now_ordered.pet_id, now_ordered.placed_at) != (order.pet_id, order.placed_at)
            ):
                found.append(f"{order} is now {now_ordered}")
        return found

    async def _not_replayed(self, repository: Repository, chance: random.Random) -> list[str]:
        """Repeat some writes under their tokens."""
        found = []
        for name, id_ in _some(self.created, chance):
            receipt = await repository.create_pet(new_pet(name), token(name))
            if not receipt.replayed or receipt.id != id_:
                found.append(f"token {name} of pet {id_} has no record: {receipt}")
        for name, id_ in _some(self.placed, chance):
            pet_id = self.orders[id_].pet_id
            try:
                receipt = await repository.place_order(pet_id, placed_at(pet_id), token(name))
            except StorageError as error:
                found.append(f"token {name} of order {id_} has no record: {error!r}")
            else:
                if not receipt.replayed or receipt.id != id_:
                    found.append(f"token {name} of order {id_} has no record: {receipt}")
        return found

    async def _given_twice(
        self, repository: Repository, pets: dict[int, Pet], orders: dict[int, Order]
    ) -> list[str]:
        """Create two pets and order one of them: their ids must be new."""
        found = []
        for number in range(2):
            new = NewPet(f"after the cut {number}", number, PetStatus.AVAILABLE)
            pet_id = (await repository.create_pet(new)).id
            if pet_id in self.pets or pet_id in pets:
                found.append(f"pet id {pet_id} is given twice")
        try:
            order_id = (await repository.place_order(pet_id, placed_at(pet_id))).id
        except ConflictError as error:
            found.append(f"a new pet cannot be ordered: {error}")
        else:
            if order_id in self.orders or order_id in orders:
                found.append(f"order id {order_id} is given twice")
        return found


def _some(ids: dict[str, int], chance: random.Random) -> list[tuple[str, int]]:
    known = list(ids.items())
    return [*known[-REPLAYED // 2 :], *chance.sample(known, min(len(known), REPLAYED // 2))]


def _inconsistent(pets: dict[int, Pet], orders: dict[int, Order]) -> list[str]:
    """Find pets that nobody sent, and orders and pets that do not fit together."""
    found = [f"{pet} was never sent" for pet in pets.values() if not sent(pet)]
    ordered: dict[int, OrderStatus] = {}
    for order in orders.values():
        if order.pet_id not in pets:
            found.append(f"{order} is of no pet")
        if order.placed_at != placed_at(order.pet_id):
            found.append(f"{order} was never placed")
        if ordered.get(order.pet_id, OrderStatus.CANCELLED) is OrderStatus.CANCELLED:
            ordered[order.pet_id] = order.status
        elif order.status is not OrderStatus.CANCELLED:
            found.append(f"pet {order.pet_id} is in two orders that are placed or completed")
    for pet in pets.values():
        expected: PetStatus | UnsetType
        if pet.id in ordered:
            expected = PET_STATUS_BY_ORDER[ordered[pet.id]]
        elif "/restored/" in pet.name:  # it may wait for its order to be restored
            expected = pet.status
        else:
            expected = new_pet(pet.name.removesuffix(" \u00e4\U0001f408")).status
        if pet.status is not expected:
            found.append(f"{pet} must be {expected} after its orders")
    return found


async def _wrong_lists(
    repository: Repository, pets: dict[int, Pet], orders: dict[int, Order]
) -> list[str]:
    """Compare the lists by status with those of everything."""
    listed = Counter[object]()
    for status in PetStatus:
        listed.update(await repository.list_pets(PetQuery(0, MAX_ID, status)))
    for order_status in OrderStatus:
        listed.update(await repository.list_orders(OrderQuery(0, MAX_ID, order_status)))
    stored = Counter[object]()
    stored.update(pet for pet in pets.values() if pet.status is not UNSET)
    stored.update(orders.values())
    return [
        f"{item} is not in its list by status, or twice"
        for item in (stored - listed) + (listed - stored)
    ]
