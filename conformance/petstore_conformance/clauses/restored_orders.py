"""Clauses of `restore`: an order needs its pet, which must have a status that matches."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Repository,
)
from petstore_conformance.clauses.orders import absent_ids, add_pet, place_at
from petstore_conformance.clauses.restore import (
    NOT_STORED,
    check_stored,
    pet_and_order,
    refuse_late,
)
from petstore_conformance.harness.kit import Kit, clause
from petstore_conformance.model.values import AT, PET_STATUSES

LIVE_STATUSES: Final = (OrderStatus.PLACED, OrderStatus.COMPLETED)

DISTANCES: Final = (0, 5000, 2**31, 2**45)
"""How far the id of a refused order is above the others: next to them, and with more digits."""


class RestoredOrderClauses(Kit):
    """Clauses of `Repository.restore` with orders."""

    @clause("restore-order")
    async def test_an_order_needs_its_pet(self, repository: Repository) -> None:
        """Orders are stored without checking that the pet is, or one undoes what is before it."""
        pet_id = await add_pet(repository)
        for status in OrderStatus:
            for absent in absent_ids(pet_id):
                with pytest.raises(NotFoundError):
                    await repository.restore([Order(9, absent, status, AT)])
        before = Pet(2**44, "before", 7)
        with pytest.raises(NotFoundError):
            await repository.restore([before, Order(9, 2**45, OrderStatus.CANCELLED, AT)])
        assert await repository.get_pet(before.id) == before, NOT_STORED
        late = {2**45, 2**46}
        for id_ in late:  # its pet comes too late in the same call
            with pytest.raises(NotFoundError):
                await repository.restore(pet_and_order(id_)[::-1])
        assert await repository.list_orders(OrderQuery(0, 9)) == []
        stored = {pet.id for pet in await repository.list_pets(PetQuery(0, 9))}
        assert {pet_id, before.id} <= stored <= {pet_id, before.id} | late
        await refuse_late(repository, Order(2**47, 2**47, OrderStatus.CANCELLED, AT), NotFoundError)

    @clause("restore-live")
    async def test_an_order_needs_the_matching_status_of_its_pet(
        self, repository: Repository
    ) -> None:
        """An order is stored whose pet has another status, or is in another such order."""
        ids = count(1000)
        pets, orders = list[Pet](), list[Order]()
        for live in LIVE_STATUSES:
            for status in PET_STATUSES:
                pets.append(Pet(next(ids), "Rex", 7, status))
                await repository.restore([pets[-1]])
                orders += await self._restore_orders_of(repository, pets[-1], live, ids)
            for between in (0, 200):  # two orders in one call, with so many items between them
                pet = Pet(next(ids), "both at once", 7, PET_STATUS_BY_ORDER[live])
                first, second = (Order(next(ids), pet.id, live, AT) for _ in range(2))
                with pytest.raises(ConflictError):
                    await repository.restore([pet, first, *[pet] * between, second])
                pets.append(pet)
                orders.append(first)
        await check_stored(repository, pets, orders)
        await self._restore_beside_placed_orders(repository)

    async def _restore_orders_of(
        self, repository: Repository, pet: Pet, live: OrderStatus, ids: Iterator[int]
    ) -> list[Order]:
        """Restore orders of a pet, live ones only if its status matches; return what is stored."""
        matches = pet.status is PET_STATUS_BY_ORDER[live]
        stored = [Order(next(ids), pet.id, live, AT)] if matches else []
        await repository.restore(stored)
        await self._refuse_orders_of(repository, pet, LIVE_STATUSES if matches else [live], ids)
        cancelled = Order(next(ids), pet.id, OrderStatus.CANCELLED, AT)
        await repository.restore([cancelled])
        if matches:  # the last order is cancelled, and an earlier one is not
            await self._refuse_orders_of(repository, pet, [live], ids)
        return [*stored, cancelled]

    async def _refuse_orders_of(
        self, repository: Repository, pet: Pet, statuses: Sequence[OrderStatus], ids: Iterator[int]
    ) -> None:
        for status in statuses:
            for distance in DISTANCES:
                with pytest.raises(ConflictError):
                    await repository.restore([Order(next(ids) + distance, pet.id, status, AT)])

    async def _restore_beside_placed_orders(self, repository: Repository) -> None:
        """Restore orders of pets that are in an order with a lower or a higher id."""
        for order in await asyncio.gather(*(place_at(repository, AT) for _ in range(3))):
            lower = replace(order, id=1)
            higher = replace(order, id=min(order.id + 2**40, MAX_ID))
            for restored in (lower, higher):
                with pytest.raises(ConflictError):
                    await repository.restore([restored])
            await repository.update_order(order.id, OrderStatus.CANCELLED)
            with pytest.raises(ConflictError):
                await repository.restore([higher])
