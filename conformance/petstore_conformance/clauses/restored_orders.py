"""Clauses of `restore`: an order needs its pet, which must have a status that matches."""

import asyncio

import pytest

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
)
from petstore_conformance.clauses.orders import absent_ids, add_pet
from petstore_conformance.clauses.restore import NOT_STORED, check_stored, pet_and_order
from petstore_conformance.harness.kit import Kit, clause
from petstore_conformance.model.values import AT, PET_STATUSES


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

    @clause("restore-live")
    async def test_an_order_needs_the_matching_status_of_its_pet(
        self, repository: Repository
    ) -> None:
        """An order is stored whose pet has another status, or is in another such order."""
        ids = iter(range(1000, 2000))
        cancelled = OrderStatus.CANCELLED
        pets, orders = [], []
        for live in (OrderStatus.PLACED, OrderStatus.COMPLETED):
            matching = PET_STATUS_BY_ORDER[live]
            for status in PET_STATUSES:
                pets.append(Pet(next(ids), "Rex", 7, status))
                order = Order(next(ids), pets[-1].id, live, AT)
                await repository.restore([pets[-1]])
                if status is matching:
                    orders.append(order)
                    await repository.restore([order])
                refused = {OrderStatus.PLACED, OrderStatus.COMPLETED}
                for other in refused if status is matching else {live}:
                    for distance in (0, 5000, 2**31, 2**45):
                        second = Order(next(ids) + distance, pets[-1].id, other, AT)
                        with pytest.raises(ConflictError):
                            await repository.restore([second])
                orders.append(Order(next(ids), pets[-1].id, cancelled, AT))
                await repository.restore([orders[-1]])
                # The last order is cancelled, and an earlier one is not.
                for distance in (0, 2**31, 2**45) if status is matching else ():
                    second = Order(next(ids) + distance, pets[-1].id, live, AT)
                    with pytest.raises(ConflictError):
                        await repository.restore([second])
            for distance in (0, 200):  # between two orders in one call
                pets.append(Pet(next(ids), "both at once", 7, matching))
                both = [Order(next(ids), pets[-1].id, live, AT) for _ in range(2)]
                with pytest.raises(ConflictError):
                    await repository.restore([pets[-1], both[0], *[pets[-1]] * distance, both[1]])
                orders.append(both[0])
        await check_stored(repository, pets, orders)
        available = NewPet("Rex", 7, PetStatus.AVAILABLE)
        receipts = [await repository.create_pet(available) for _ in range(3)]
        placing = (repository.place_order(receipt.id, AT) for receipt in receipts)
        for pet, placed in zip(receipts, await asyncio.gather(*placing), strict=True):
            top = min(placed.id + 2**40, MAX_ID)
            lower, higher = (Order(id_, pet.id, OrderStatus.PLACED, AT) for id_ in (1, top))
            for restored in (lower, higher):
                with pytest.raises(ConflictError):
                    await repository.restore([restored])
            await repository.update_order(placed.id, cancelled)
            with pytest.raises(ConflictError):
                await repository.restore([higher])
