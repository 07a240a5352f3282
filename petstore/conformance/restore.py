"""Clauses of `restore`: pets and orders of another store, under the ids that they have there."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import AT, add_pet, place_orders, status_of
from petstore.conformance.pages import PET_STATUSES
from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Repository,
)

HIGHEST: Final = MAX_ID - 1000
"""The highest id that is restored; the ids above it are left to be assigned."""

RESTORED_PETS: Final = [
    Pet(3, "Rex", 7, PetStatus.AVAILABLE),
    Pet(4, "", -(2**63), PetStatus.PENDING),
    Pet(9, " \0 ", 2**63 - 1, PetStatus.SOLD),
    Pet(300, "\U0001f436", 0),
    Pet(70_000, "é", 2**53 + 1, PetStatus.AVAILABLE),
    Pet(70_001, "e\u0301", -1, PetStatus.PENDING),
    Pet(2**31 + 7, "x" * 300, 7, PetStatus.SOLD),
    Pet(2**40, "null", 7),
    Pet(HIGHEST, "Rex", 7, PetStatus.AVAILABLE),
]
RESTORED_PET_IDS: Final = [pet.id for pet in RESTORED_PETS]
RESTORED_ORDERS: Final = [
    # Any pet may have been in cancelled orders, also one without a status.
    *(
        Order(id_, pet.id, OrderStatus.CANCELLED, AT + timedelta(microseconds=id_ % 999_999))
        for id_, pet in zip((1, 2, 8, 500, 2**33, HIGHEST - 1), RESTORED_PETS, strict=False)
    ),
    Order(70, 4, OrderStatus.PLACED, AT.replace(year=1970, microsecond=0)),
    Order(7, 9, OrderStatus.COMPLETED, AT.replace(year=2099, microsecond=999_999)),
    Order(HIGHEST, 70_001, OrderStatus.PLACED, AT),
]


def restored_items() -> list[Pet | Order]:
    """Return the pets and orders to restore, not sorted by id, each pet before its orders."""
    return [*RESTORED_PETS[4:], *RESTORED_PETS[:4], *reversed(RESTORED_ORDERS)]


async def check_stored(
    repository: Repository, pets: Sequence[Pet], orders: Sequence[Order]
) -> None:
    """Check that exactly these are stored, in every list where they belong."""
    pets = sorted(pets, key=lambda pet: pet.id)
    orders = sorted(orders, key=lambda order: order.id)
    for status in (None, *PetStatus):
        matching = [pet for pet in pets if status in (None, pet.status)]
        assert list(await repository.list_pets(0, 999, status)) == matching
    for order_status in (None, *OrderStatus):
        of_status = [order for order in orders if order_status in (None, order.status)]
        assert list(await repository.list_orders(0, 999, order_status)) == of_status
    for pet in pets:
        assert await repository.get_pet(pet.id) == pet
        assert list(await repository.list_pets(pet.id - 1, 1, None)) == [pet]
    for order in orders:
        assert await repository.get_order(order.id) == order
        assert list(await repository.list_orders(order.id - 1, 1, order.status)) == [order]


def conflicting(item: Pet | Order) -> Iterator[Pet | Order]:
    """Yield items that have the id of this one and differ from it in one other field."""
    if isinstance(item, Pet):
        yield replace(item, name=item.name + " ")
        yield replace(item, category_id=item.category_id ^ 1)
        for status in set(PET_STATUSES) - {item.status}:
            yield replace(item, status=status)
    else:
        yield replace(item, placed_at=item.placed_at + timedelta(microseconds=1))
        yield replace(item, pet_id=3 if item.pet_id != 3 else 4)
        for order_status in set(OrderStatus) - {item.status}:
            yield replace(item, status=order_status)


class RestoreClauses(Kit):
    """Clauses of `restore`."""

    @clause("restore-exact")
    async def test_restored_items_are_returned_exactly(self, repository: Repository) -> None:
        """New ids are assigned, a filtered list lacks restored items, or times are cut."""
        await repository.restore([])
        await check_stored(repository, [], [])
        await repository.restore(restored_items())
        await check_stored(repository, RESTORED_PETS, RESTORED_ORDERS)
        for found in await repository.list_orders(0, 99, None):
            assert found.placed_at.utcoffset() == timedelta(0)
            assert type(found.status) is OrderStatus
        pet, order = Pet(1, "later", 1), Order(3, 1, OrderStatus.CANCELLED, AT)
        await repository.restore([pet, order])
        await check_stored(repository, [*RESTORED_PETS, pet], [*RESTORED_ORDERS, order])
        # Restored orders can be updated, and restored pets ordered, like any others.
        completed = await repository.update_order(70, OrderStatus.COMPLETED)
        assert completed == replace(RESTORED_ORDERS[6], status=OrderStatus.COMPLETED)
        assert await status_of(repository, 4) is PetStatus.SOLD
        await repository.update_order(HIGHEST, OrderStatus.CANCELLED)
        assert await status_of(repository, 70_001) is PetStatus.AVAILABLE
        for pet_id in (3, 70_001):
            await repository.place_order(pet_id, AT)
            assert await status_of(repository, pet_id) is PetStatus.PENDING

    @clause("restore-again")
    async def test_an_item_that_is_stored_already_is_skipped(self, repository: Repository) -> None:
        """An equal item is refused like a different one, or its order takes effect again."""
        (order,) = await place_orders(repository)
        pet = await repository.get_pet(order.pet_id)
        assert pet is not None
        pets, orders = [*RESTORED_PETS, pet], [*RESTORED_ORDERS, order]
        if pet.id in RESTORED_PET_IDS or order.id in [other.id for other in RESTORED_ORDERS]:
            pets, orders = [pet], [order]
        given: list[Pet | Order] = [*pets, *orders]
        for part in (given[: len(given) // 2], given, given[::-1], given + given):
            await repository.restore(part)
        await check_stored(repository, pets, orders)

    @clause("restore-other")
    async def test_a_different_item_with_a_stored_id_is_refused(
        self, repository: Repository
    ) -> None:
        """The stored item is replaced, or the refused one undoes those before it."""
        created = await add_pet(repository)
        with pytest.raises(ConflictError):
            await repository.restore([Pet(created, "other", 7)])
        next_id, pets, orders = 2**45, [*RESTORED_PETS], [*RESTORED_ORDERS]
        if created not in RESTORED_PET_IDS:
            pets.append(Pet(created, "Rex", 7, PetStatus.AVAILABLE))
            await repository.restore(restored_items())
        else:  # the first id may be any
            pets, orders = [Pet(created, "Rex", 7, PetStatus.AVAILABLE)], []
        given: list[Pet | Order] = [*pets, *orders]
        for item in given:
            for other in conflicting(item):
                before = Pet(next_id, "before", 1)
                with pytest.raises(ConflictError):
                    await repository.restore([before, other])
                pets.append(before)
                next_id += 1
        await check_stored(repository, pets, orders)

    @clause("restore-next")
    async def test_later_ids_are_higher_than_restored_ones(self, repository: Repository) -> None:
        """The counter is not raised, or is set to the last id, or only one of several is raised."""
        await add_pet(repository)
        highest = 0
        for id_ in (50, 51, 5000, 200, 2**40, 7, HIGHEST - 200, HIGHEST, 77_777):
            pet = Pet(id_, "Rex", 7, PetStatus.AVAILABLE)
            order = Order(id_, id_, OrderStatus.CANCELLED, AT)
            taken = await repository.get_pet(id_) or await repository.get_order(id_)
            if taken is None:
                await repository.restore([pet, order])
            highest = max(highest, id_)
            for _ in range(12):
                pet_id = await add_pet(repository)
                assert highest < pet_id <= MAX_ID
                receipt = await repository.place_order(pet_id, AT)
                assert highest < receipt.id <= MAX_ID
        pets = await repository.list_pets(0, 999, None)
        assert len({pet.id for pet in pets}) == len(pets) > 9 * 12

    @clause("restore-order")
    async def test_an_order_needs_its_pet(self, repository: Repository) -> None:
        """Orders are stored without checking that the pet is."""
        pet_id = await add_pet(repository)
        for status in OrderStatus:
            for absent in (pet_id + 5, pet_id + 70_000, HIGHEST):
                with pytest.raises(NotFoundError):
                    await repository.restore([Order(9, absent, status, AT)])
        assert list(await repository.list_orders(0, 9, None)) == []
        assert [pet.id for pet in await repository.list_pets(0, 9, None)] == [pet_id]

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
                    second = Order(next(ids), pets[-1].id, other, AT)
                    with pytest.raises(ConflictError):
                        await repository.restore([second])
                orders.append(Order(next(ids), pets[-1].id, cancelled, AT))
                await repository.restore([orders[-1]])
            pets.append(Pet(next(ids), "both at once", 7, matching))
            both = [Order(next(ids), pets[-1].id, live, AT) for _ in range(2)]
            with pytest.raises(ConflictError):
                await repository.restore([pets[-1], *both])
            orders.append(both[0])
        await check_stored(repository, pets, orders)
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.AVAILABLE))
        placed = await repository.place_order(receipt.id, AT)
        with pytest.raises(ConflictError):
            await repository.restore([Order(placed.id + 1, receipt.id, OrderStatus.PLACED, AT)])
        await repository.update_order(placed.id, cancelled)
        with pytest.raises(ConflictError):
            await repository.restore([Order(placed.id + 1, receipt.id, OrderStatus.PLACED, AT)])
