"""Clauses of places: opened, closed, opened again, opened twice."""

import asyncio

import pytest

from petstore.conformance.kit import Kit, Place, place_clause
from petstore.conformance.orders import AT, CLOSED, add, check_agreement, close
from petstore.conformance.orders import place as place_orders
from petstore.conformance.pages import fill
from petstore.conformance.retries import REX, retry_of
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


class PlaceClauses(Kit):
    """Backend.open and Backend.scratch."""

    @place_clause("closed")
    async def test_a_closed_repository_is_unavailable(self, place: Place) -> None:
        """Closing only forgets the connection, or what then goes wrong is some other error."""
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
    async def test_two_scratch_places_have_nothing_in_common(self, place: Place) -> None:
        """Every scratch place is the same place."""
        backend = place.backend
        async with (
            backend.scratch(self.settings) as other_settings,
            place.open() as one,
            backend.open(other_settings) as other,
        ):
            receipt = await one.create_pet(NewPet("Rex", 7))
            assert await other.get_pet(receipt.id) is None
            assert list(await other.list_pets(0, 1, None)) == []

    @place_clause("durable-animals", needs="durable")
    async def test_what_was_acknowledged_is_there_after_reopening(self, place: Place) -> None:
        """Something is still in a buffer when the repository is closed."""
        async with place.open() as repository:
            pets = await fill(repository, 30)
        for _ in range(2):
            async with place.open() as repository:
                assert list(await repository.list_pets(0, 100, None)) == pets
                for status in PetStatus:
                    matching = [pet for pet in pets if pet.status is status]
                    assert list(await repository.list_pets(0, 100, status)) == matching
                assert await repository.get_pet(pets[3].id) == pets[3]

    @place_clause("durable-orders", needs="durable")
    async def test_orders_and_records_are_there_after_reopening(self, place: Place) -> None:
        """Only animals are stored for good; or the record of a retry is in memory."""
        async with place.open() as repository:
            orders = await close(repository, await place_orders(repository, 6))
            first = await repository.create_pet(REX, retry_of("create", REX))
            placed = await repository.place_order(first.id, AT, retry_of("place", first.id))
            orders.append(Order(placed.id, first.id, OrderStatus.PLACED, AT))
            restored = Order(placed.id + 1000, first.id + 1000, OrderStatus.COMPLETED, AT)
            animal = Pet(restored.pet_id, "Rex", 7, PetStatus.SOLD)
            await repository.restore([animal, restored])
            orders.append(restored)
            orders.sort(key=lambda order: order.id)
        for _ in range(2):
            async with place.open() as repository:
                assert list(await repository.list_orders(0, 99, None)) == orders
                for status in OrderStatus:
                    matching = [order for order in orders if order.status is status]
                    assert list(await repository.list_orders(0, 99, status)) == matching
                again = await repository.create_pet(REX, retry_of("create", REX))
                assert again == Receipt(first.id, replayed=True)
                again = await repository.place_order(first.id, AT, retry_of("place", first.id))
                assert again == Receipt(placed.id, replayed=True)
                await check_agreement(repository)
        async with place.open() as repository:
            new = (await place_orders(repository))[0]
            assert new.id not in [order.id for order in orders], "an order's id is given out again"
            assert new.id > restored.id, "restored orders were forgotten by the counter"

    @place_clause("durable-ids", needs="durable")
    async def test_no_id_is_given_out_again_after_reopening(self, place: Place) -> None:
        """The counter begins anew, or at the number of animals."""
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
    async def test_an_animal_that_was_read_is_there_after_reopening(self, place: Place) -> None:
        """A create shows its animal before it is stored for good."""
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
                for number, pet in seen.items():
                    assert await repository.get_pet(number) == pet

    @place_clause("shared-reads", needs="shared")
    async def test_every_opening_sees_what_another_has_written(self, place: Place) -> None:
        """Each opening reads a copy of its own."""
        async with place.open() as one, place.open() as other:
            for number in range(20):
                writer, reader = (one, other) if number % 2 else (other, one)
                receipt = await writer.create_pet(NewPet(f"{number}", 7, PetStatus.SOLD))
                pet = Pet(receipt.id, f"{number}", 7, PetStatus.SOLD)
                assert await reader.get_pet(receipt.id) == pet
                assert list(await reader.list_pets(receipt.id - 1, 1, None)) == [pet]
                assert list(await reader.list_pets(receipt.id - 1, 1, PetStatus.SOLD)) == [pet]

    @place_clause("shared-ids", needs="shared")
    async def test_two_openings_give_out_no_id_twice(self, place: Place) -> None:
        """Each opening counts for itself."""
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
            assert receipt.id > restored.id, "the other opening has ids in store"

    @place_clause("shared-orders", needs="shared")
    async def test_two_openings_order_no_animal_twice(self, place: Place) -> None:
        """What one opening has checked is changed by the other before it writes."""
        async with place.open() as one, place.open() as other:
            for number in range(25):
                pet_id = await add(one)
                retry = retry_of(f"{number}", pet_id)
                places = [r.place_order(pet_id, AT) for r in (one, other, one, other)]
                places += [r.place_order(pet_id, AT, retry) for r in (other, one)]
                answers = await asyncio.gather(*places, return_exceptions=True)
                receipts = [answer for answer in answers if isinstance(answer, Receipt)]
                assert len([receipt for receipt in receipts if not receipt.replayed]) == 1
                assert all(isinstance(a, Receipt | ConflictError) for a in answers), answers
                await one.update_order(receipts[0].id, CLOSED[number % 2])
                same = [r.create_pet(REX, retry_of(f"{number}", REX)) for r in (one, other)]
                created = await asyncio.gather(*same)
                assert len({receipt.id for receipt in created}) == 1
                assert [receipt.replayed for receipt in created].count(False) == 1
            await check_agreement(one)
            await check_agreement(other)
