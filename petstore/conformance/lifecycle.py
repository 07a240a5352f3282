"""Clauses of places: opened, closed, reopened, and opened twice at the same time."""

import asyncio

import pytest

from petstore.conformance.kit import Kit, Place, place_clause
from petstore.conformance.orders import (
    AT,
    FINAL_STATUSES,
    add_pet,
    check_agreement,
    place_orders,
    update_orders,
)
from petstore.conformance.pages import add_pets
from petstore.conformance.tokens import REX, make_token
from petstore.contract import (
    ConflictError,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    UnavailableError,
)


class LifecycleClauses(Kit):
    """Clauses of `Backend`: scratch, closing, durability and sharing."""

    @place_clause("closed")
    async def test_a_closed_repository_is_unavailable(self, place: Place) -> None:
        """Closing only forgets the connection, or later calls raise some other error."""
        async with place.open() as repository:
            assert isinstance(repository, Repository)
            receipt = await repository.create_pet(NewPet("Rex", 7))
        for call in (
            lambda: repository.create_pet(NewPet("Rex", 7)),
            lambda: repository.get_pet(receipt.id),
            lambda: repository.list_pets(0, 1, None),
            lambda: repository.list_pets(0, 1, PetStatus.SOLD),
            lambda: repository.place_order(receipt.id, AT),
            lambda: repository.get_order(1),
            lambda: repository.list_orders(0, 1, None),
            lambda: repository.update_order(1, OrderStatus.COMPLETED),
            lambda: repository.restore([Pet(receipt.id + 1, "Rex", 7)]),
        ):
            with pytest.raises(UnavailableError):
                await call()

    @place_clause("scratch-empty")
    async def test_a_scratch_place_is_empty(self, place: Place) -> None:
        """Scratch yields the settings that it was given, although something is stored there."""
        async with place.open() as repository:
            assert list(await repository.list_pets(0, 1, None)) == []

    @place_clause("scratch-apart")
    async def test_two_scratch_places_share_nothing(self, place: Place) -> None:
        """Scratch yields the same place each time."""
        backend = place.backend
        async with (
            backend.scratch(self.settings) as other_settings,
            place.open() as one,
            backend.open(other_settings) as other,
        ):
            receipt = await one.create_pet(NewPet("Rex", 7))
            assert await other.get_pet(receipt.id) is None
            assert list(await other.list_pets(0, 1, None)) == []

    @place_clause("durable-pets", needs="durable")
    async def test_acknowledged_pets_are_there_after_reopening(self, place: Place) -> None:
        """Closing loses what is still in a buffer."""
        async with place.open() as repository:
            pets = await add_pets(repository, 30)
        for _ in range(2):
            async with place.open() as repository:
                assert list(await repository.list_pets(0, 100, None)) == pets
                for status in PetStatus:
                    matching = [pet for pet in pets if pet.status is status]
                    assert list(await repository.list_pets(0, 100, status)) == matching
                assert await repository.get_pet(pets[3].id) == pets[3]

    @place_clause("durable-orders", needs="durable")
    async def test_orders_and_records_are_there_after_reopening(self, place: Place) -> None:
        """Only pets are stored durably, or the records of tokens are kept in memory."""
        async with place.open() as repository:
            orders = await update_orders(repository, await place_orders(repository, 6))
            first = await repository.create_pet(REX, make_token("create", REX))
            placed = await repository.place_order(first.id, AT, make_token("place", first.id))
            orders.append(Order(placed.id, first.id, OrderStatus.PLACED, AT))
            restored = Order(placed.id + 1000, first.id + 1000, OrderStatus.COMPLETED, AT)
            pet = Pet(restored.pet_id, "Rex", 7, PetStatus.SOLD)
            await repository.restore([pet, restored])
            orders.append(restored)
            orders.sort(key=lambda order: order.id)
        for _ in range(2):
            async with place.open() as repository:
                assert list(await repository.list_orders(0, 99, None)) == orders
                for status in OrderStatus:
                    matching = [order for order in orders if order.status is status]
                    assert list(await repository.list_orders(0, 99, status)) == matching
                again = await repository.create_pet(REX, make_token("create", REX))
                assert again == Receipt(first.id, replayed=True)
                again = await repository.place_order(first.id, AT, make_token("place", first.id))
                assert again == Receipt(placed.id, replayed=True)
                await check_agreement(repository)
        async with place.open() as repository:
            new = (await place_orders(repository))[0]
            assert new.id not in [order.id for order in orders], "an order id is assigned again"
            assert new.id > restored.id, "the counter of orders has forgotten the restored one"

    @place_clause("durable-ids", needs="durable")
    async def test_no_id_is_assigned_again_after_reopening(self, place: Place) -> None:
        """The counter starts again at 1, or at the number of pets."""
        seen: set[int] = set()
        for _ in range(4):
            async with place.open() as repository:
                for _ in range(5):
                    receipt = await repository.create_pet(NewPet("Rex", 7))
                    assert receipt.id not in seen
                    seen.add(receipt.id)
                await repository.restore([Pet(max(seen) + 10, "Rex", 7)])
                seen |= set(range(1, max(seen) + 11))

    @place_clause("durable-reads", needs="durable")
    async def test_a_pet_that_was_read_is_there_after_reopening(self, place: Place) -> None:
        """A new pet is visible to reads before it is stored durably."""
        seen: dict[int, Pet] = {}
        for _ in range(5):
            async with place.open() as repository:
                writes = [
                    asyncio.create_task(repository.create_pet(NewPet(f"{n}", n))) for n in range(20)
                ]
                new: dict[int, Pet] = {}
                while not new and not all(write.done() for write in writes):
                    page = await repository.list_pets(0, 999, None)
                    new = {pet.id: pet for pet in page if pet.id not in seen}
                    await asyncio.sleep(0)
                seen |= new
                for write in writes:
                    write.cancel()
                await asyncio.wait(writes)
            async with place.open() as repository:
                for pet_id, pet in seen.items():
                    assert await repository.get_pet(pet_id) == pet

    @place_clause("shared-reads", needs="shared")
    async def test_each_repository_sees_what_the_other_has_written(self, place: Place) -> None:
        """Each repository reads from its own copy or cache."""
        async with place.open() as one, place.open() as other:
            for number in range(20):
                writer, reader = (one, other) if number % 2 else (other, one)
                receipt = await writer.create_pet(NewPet(f"{number}", 7, PetStatus.SOLD))
                pet = Pet(receipt.id, f"{number}", 7, PetStatus.SOLD)
                assert await reader.get_pet(receipt.id) == pet
                assert list(await reader.list_pets(receipt.id - 1, 1, None)) == [pet]
                assert list(await reader.list_pets(receipt.id - 1, 1, PetStatus.SOLD)) == [pet]

    @place_clause("shared-ids", needs="shared")
    async def test_two_repositories_assign_no_id_twice(self, place: Place) -> None:
        """Each repository has its own counter."""
        async with place.open() as one, place.open() as other:
            creates = [
                repository.create_pet(NewPet(f"{number}", number))
                for number in range(150)
                for repository in (one, other)
            ]
            receipts = await asyncio.gather(*creates)
            assert len({receipt.id for receipt in receipts}) == 300
            listed = await one.list_pets(0, 999, None)
            assert list(await other.list_pets(0, 999, None)) == list(listed)
            assert {pet.id for pet in listed} == {receipt.id for receipt in receipts}
            restored = Pet(max(pet.id for pet in listed) + 1000, "Rex", 7)
            await one.restore([restored])
            receipt = await other.create_pet(REX)
            assert receipt.id > restored.id, "the other repository uses ids that it had reserved"

    @place_clause("shared-orders", needs="shared")
    async def test_two_repositories_order_no_pet_twice(self, place: Place) -> None:
        """One repository checks the pet, and the other changes it before the first one writes."""
        async with place.open() as one, place.open() as other:
            for number in range(25):
                pet_id = await add_pet(one)
                token = make_token(f"{number}", pet_id)
                placings = [r.place_order(pet_id, AT) for r in (one, other, one, other)]
                placings += [r.place_order(pet_id, AT, token) for r in (other, one)]
                results = await asyncio.gather(*placings, return_exceptions=True)
                receipts = [result for result in results if isinstance(result, Receipt)]
                assert len([receipt for receipt in receipts if not receipt.replayed]) == 1
                assert all(isinstance(r, Receipt | ConflictError) for r in results), results
                await one.update_order(receipts[0].id, FINAL_STATUSES[number % 2])
                same = [r.create_pet(REX, make_token(f"{number}", REX)) for r in (one, other)]
                created = await asyncio.gather(*same)
                assert len({receipt.id for receipt in created}) == 1
                assert [receipt.replayed for receipt in created].count(False) == 1
            await check_agreement(one)
            await check_agreement(other)
