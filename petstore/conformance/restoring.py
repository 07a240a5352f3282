"""Clauses of restoring: animals and orders of another store, under the ids that they have."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import AT, add, place, status_of
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
"""The highest id that is restored: some are left to be given out."""

IDS: Final = (3, 4, 9, 300, 70_000, 70_001, 2**31 + 7, 2**40, HIGHEST)
STATUSES: Final = (PetStatus.AVAILABLE, PetStatus.PENDING, PetStatus.SOLD, UNSET)
PETS: Final = [
    Pet(number, name, category, STATUSES[place % 4])
    for place, (number, name, category) in enumerate(
        zip(
            IDS,
            ("Rex", "", " \0 ", "\U0001f436", "é", "e\u0301", "x" * 300, "null", "Rex"),
            (7, -(2**63), 2**63 - 1, 0, 2**53 + 1, -1, 7, 7, 7),
            strict=True,
        )
    )
]
ORDERS: Final = [
    # Each animal may have been in cancelled orders, also one that has no status.
    *(
        Order(number, pet.id, OrderStatus.CANCELLED, AT + timedelta(microseconds=number % 999_999))
        for number, pet in zip((1, 2, 8, 500, 2**33, HIGHEST - 1), PETS, strict=False)
    ),
    Order(70, 4, OrderStatus.PLACED, AT.replace(year=1970, microsecond=0)),
    Order(7, 9, OrderStatus.COMPLETED, AT.replace(year=2099, microsecond=999_999)),
    Order(HIGHEST, 70_001, OrderStatus.PLACED, AT),
]


def items() -> list[Pet | Order]:
    """Return animals and orders, out of order, each animal before its orders."""
    return [*PETS[4:], *PETS[:4], *reversed(ORDERS)]


async def check(repository: Repository, pets: Sequence[Pet], orders: Sequence[Order]) -> None:
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


def others(item: Pet | Order) -> Iterator[Pet | Order]:
    """Yield items that have the id of this one and differ in one field."""
    if isinstance(item, Pet):
        yield replace(item, name=item.name + " ")
        yield replace(item, category_id=item.category_id ^ 1)
        for status in set(STATUSES) - {item.status}:
            yield replace(item, status=status)
    else:
        yield replace(item, placed_at=item.placed_at + timedelta(microseconds=1))
        yield replace(item, pet_id=3 if item.pet_id != 3 else 4)
        for order_status in set(OrderStatus) - {item.status}:
            yield replace(item, status=order_status)


class RestoreClauses(Kit):
    """Repository.restore."""

    @clause("restore-exact")
    async def test_what_is_restored_comes_back(self, repository: Repository) -> None:
        """Ids are given out anew; a list of a status lacks what was restored; times are cut."""
        await repository.restore([])
        await check(repository, [], [])
        await repository.restore(items())
        await check(repository, PETS, ORDERS)
        for found in await repository.list_orders(0, 99, None):
            assert found.placed_at.utcoffset() == timedelta(0)
            assert type(found.status) is OrderStatus
        pet, order = Pet(1, "later", 1), Order(3, 1, OrderStatus.CANCELLED, AT)
        await repository.restore([pet, order])
        await check(repository, [*PETS, pet], [*ORDERS, order])
        # It goes on as if it had been there ever since.
        completed = await repository.update_order(70, OrderStatus.COMPLETED)
        assert completed == replace(ORDERS[6], status=OrderStatus.COMPLETED)
        assert await status_of(repository, 4) is PetStatus.SOLD
        await repository.update_order(HIGHEST, OrderStatus.CANCELLED)
        assert await status_of(repository, 70_001) is PetStatus.AVAILABLE
        for pet_id in (3, 70_001):
            await repository.place_order(pet_id, AT)
            assert await status_of(repository, pet_id) is PetStatus.PENDING

    @clause("restore-again")
    async def test_what_is_stored_already_is_passed_over(self, repository: Repository) -> None:
        """The same is refused, as it would be for a new one; or an order takes effect again."""
        (order,) = await place(repository)
        pet = await repository.get_pet(order.pet_id)
        assert pet is not None
        pets, orders = [*PETS, pet], [*ORDERS, order]
        if pet.id in IDS or order.id in [other.id for other in ORDERS]:
            pets, orders = [pet], [order]
        given: list[Pet | Order] = [*pets, *orders]
        for half in (given[: len(given) // 2], given, given[::-1], given + given):
            await repository.restore(half)
        await check(repository, pets, orders)

    @clause("restore-other")
    async def test_a_different_one_with_its_id_is_refused(self, repository: Repository) -> None:
        """The stored one is replaced; or the refused one takes those before it along."""
        created = await add(repository)
        with pytest.raises(ConflictError):
            await repository.restore([Pet(created, "other", 7)])
        number, pets, orders = 2**45, [*PETS], [*ORDERS]
        if created not in IDS:
            pets.append(Pet(created, "Rex", 7, PetStatus.AVAILABLE))
            await repository.restore(items())
        else:  # a repository may well begin anywhere
            pets, orders = [Pet(created, "Rex", 7, PetStatus.AVAILABLE)], []
        given: list[Pet | Order] = [*pets, *orders]
        for item in given:
            for other in others(item):
                before = Pet(number, "before", 1)
                with pytest.raises(ConflictError):
                    await repository.restore([before, other])
                pets.append(before)
                number += 1
        await check(repository, pets, orders)

    @clause("restore-next")
    async def test_later_ids_are_higher_than_restored_ones(self, repository: Repository) -> None:
        """The counter stays where it was, follows the last one, or only one of several does."""
        await add(repository)
        floor = 0
        for number in (50, 51, 5000, 200, 2**40, 7, HIGHEST - 200, HIGHEST, 77_777):
            pet = Pet(number, "Rex", 7, PetStatus.AVAILABLE)
            order = Order(number, number, OrderStatus.CANCELLED, AT)
            taken = await repository.get_pet(number) or await repository.get_order(number)
            if taken is None:
                await repository.restore([pet, order])
            floor = max(floor, number)
            for _ in range(12):
                pet_id = await add(repository)
                assert floor < pet_id <= MAX_ID
                receipt = await repository.place_order(pet_id, AT)
                assert floor < receipt.id <= MAX_ID
        pets = await repository.list_pets(0, 999, None)
        assert len({pet.id for pet in pets}) == len(pets) > 9 * 12

    @clause("restore-order")
    async def test_an_order_needs_its_animal(self, repository: Repository) -> None:
        """Orders are stored without a look at the animals."""
        pet_id = await add(repository)
        for status in OrderStatus:
            for absent in (pet_id + 5, pet_id + 70_000, HIGHEST):
                with pytest.raises(NotFoundError):
                    await repository.restore([Order(9, absent, status, AT)])
        assert list(await repository.list_orders(0, 9, None)) == []
        assert [pet.id for pet in await repository.list_pets(0, 9, None)] == [pet_id]

    @clause("restore-live")
    async def test_an_order_goes_with_its_animal(self, repository: Repository) -> None:
        """An animal is in two orders, or has not the status that its order gives it."""
        numbers = iter(range(1000, 2000))
        cancelled = OrderStatus.CANCELLED
        pets, orders = [], []
        for live in (OrderStatus.PLACED, OrderStatus.COMPLETED):
            fitting = PET_STATUS_BY_ORDER[live]
            for status in STATUSES:
                pets.append(Pet(next(numbers), "Rex", 7, status))
                order = Order(next(numbers), pets[-1].id, live, AT)
                await repository.restore([pets[-1]])
                if status is fitting:
                    orders.append(order)
                    await repository.restore([order])
                refused = {live, OrderStatus.PLACED, OrderStatus.COMPLETED}
                for other in refused if status is fitting else {live}:
                    second = Order(next(numbers), pets[-1].id, other, AT)
                    with pytest.raises(ConflictError):
                        await repository.restore([second])
                orders.append(Order(next(numbers), pets[-1].id, cancelled, AT))
                await repository.restore([orders[-1]])
            pets.append(Pet(next(numbers), "both at once", 7, fitting))
            both = [Order(next(numbers), pets[-1].id, live, AT) for _ in range(2)]
            with pytest.raises(ConflictError):
                await repository.restore([pets[-1], *both])
            orders.append(both[0])
        await check(repository, pets, orders)
        receipt = await repository.create_pet(NewPet("Rex", 7, PetStatus.AVAILABLE))
        placed = await repository.place_order(receipt.id, AT)
        with pytest.raises(ConflictError):
            await repository.restore([Order(placed.id + 1, receipt.id, OrderStatus.PLACED, AT)])
        await repository.update_order(placed.id, cancelled)
        with pytest.raises(ConflictError):
            await repository.restore([Order(placed.id + 1, receipt.id, OrderStatus.PLACED, AT)])
