"""Restoring into several partitions: an order is stored with its pet, whatever its id."""

import asyncio

import pytest
from msgspec.structs import replace

from backends.redis.tests.places import opened
from backends.redis.tests.servers import Server
from petstore.contract import ConflictError, Order, OrderStatus, Pet, PetStatus
from tests.support.repositories import AT

PETS = [Pet(pet_id, "Rex", 7, PetStatus.PENDING) for pet_id in (1, 2, 3)]


def test_an_order_conflicts_with_one_of_its_id_in_another_partition(
    valkey: Server,
) -> None:
    async def run() -> None:
        async with opened(valkey, partitions=3) as repository:
            await repository.restore(PETS)
            for order_id in (4, 5, 6):  # each partition gets ids of each partition
                order = Order(order_id, order_id - 3, OrderStatus.CANCELLED, AT)
                for pet_id in (1, 2, 3):
                    first = replace(order, id=order_id + 3 * pet_id, pet_id=pet_id)
                    await repository.restore([first, first])
                    for other in {1, 2, 3} - {pet_id}:
                        with pytest.raises(ConflictError):
                            await repository.restore([replace(first, pet_id=other)])
                    assert await repository.get_order(first.id) == first
            assert len(await repository.list_orders(0, 99, None)) == 9

    asyncio.run(run())


def test_of_two_orders_with_one_id_the_first_is_restored(valkey: Server) -> None:
    async def run() -> None:
        async with opened(valkey, partitions=3) as repository:
            await repository.restore(PETS)
            for one, two in ((1, 2), (2, 1), (3, 1), (1, 3)):
                orders = [
                    Order(10 * one + two, pet_id, OrderStatus.CANCELLED, AT)
                    for pet_id in (one, two)
                ]
                with pytest.raises(ConflictError):
                    await repository.restore(orders)
                assert await repository.get_order(orders[0].id) == orders[0]
                stored = await repository.list_orders(0, 99, None)
                assert [order.id for order in stored].count(orders[0].id) == 1

    asyncio.run(run())


def test_of_two_placed_orders_of_a_pet_the_first_is_restored(valkey: Server) -> None:
    async def run() -> None:
        for ids in ((11, 12), (12, 11), (10, 11), (11, 10)):
            async with opened(valkey, partitions=3) as repository:
                orders = [Order(order_id, 1, OrderStatus.PLACED, AT) for order_id in ids]
                with pytest.raises(ConflictError):
                    await repository.restore([*PETS, *orders])
                assert list(await repository.list_orders(0, 99, None)) == [orders[0]]

    asyncio.run(run())


def test_an_order_does_not_overtake_its_pet_if_the_server_forgot_a_script(valkey: Server) -> None:
    async def run() -> None:
        async with opened(valkey, partitions=2) as repository:
            await repository.restore(PETS[:1])
            valkey.call("SCRIPT", "FLUSH")
            await repository.restore([Order(1, 1, OrderStatus.PLACED, AT)])  # known from now on
            await repository.restore([PETS[1], Order(2, 2, OrderStatus.PLACED, AT)])
            assert len(await repository.list_orders(0, 9, None)) == 2

    asyncio.run(run())
