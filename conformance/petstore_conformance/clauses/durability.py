"""Clauses of durable backends: what is there after reopening."""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import count

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    ConflictError,
    IdempotencyToken,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
    TokenReusedError,
    UnavailableError,
)
from petstore_conformance.clauses.orders import (
    add_pet,
    check_agreement,
    place_at,
    place_orders,
    update_orders,
)
from petstore_conformance.clauses.records import read_records
from petstore_conformance.clauses.restore import pet_and_order
from petstore_conformance.clauses.tokens import create_many
from petstore_conformance.harness.alarm import CANCEL_SECONDS, within
from petstore_conformance.harness.kit import (
    CancelledOnPurposeError,
    Kit,
    Location,
    RaisedOnPurposeError,
    location_clause,
)
from petstore_conformance.model.calls import (
    cancel,
    create_all,
    measure,
    sample,
    settle,
)
from petstore_conformance.model.values import (
    AT,
    DAY_SECONDS,
    HOSTILE_PETS,
    NOW,
    PET_STATUSES,
    REX,
    TIMES,
    make_token,
)


class DurabilityClauses(Kit):
    """Clauses of backends that claim to be durable."""

    @location_clause("durable-pets", needs="durable")
    async def test_acknowledged_pets_are_there_after_reopening(self, location: Location) -> None:
        """Closing loses what is still in a buffer."""
        async with location.open() as repository:
            news = await sample(repository, self.storable(HOSTILE_PETS), together=True)
            pets = await create_all(repository, news)
            available = [n for n, pet in enumerate(pets) if pet.status is PetStatus.AVAILABLE]
            for index in available[::3]:
                await repository.place_order(pets[index].id, AT)
                pets[index] = replace(pets[index], status=PetStatus.PENDING)
            hostile = len(pets)
            highest = max(pet.id for pet in pets)
            many = range(highest + 1, min(highest + 2500, MAX_ID - 100))
            restored = [Pet(id_, f"{id_}", id_, PET_STATUSES[id_ // 900 % 4]) for id_ in many]
            for begin in range(0, len(restored), 250):
                given = restored[begin : begin + 250]
                await repository.restore(given)
                given.clear()  # it belongs to the caller
            pets = sorted([*pets, *restored], key=lambda pet: pet.id)
        failures = (RaisedOnPurposeError(), CancelledOnPurposeError(), None, None)
        for turn, failure in enumerate(failures):
            with suppress(RaisedOnPurposeError, CancelledOnPurposeError):
                async with location.open() as repository:
                    for status in (None, *PetStatus):
                        matching = [pet for pet in pets if status in (None, pet.status)]
                        assert await repository.list_pets(PetQuery(0, 9999, status)) == matching
                    for pet in pets[turn:hostile:7]:
                        assert await repository.get_pet(pet.id) == pet
                    used = {pet.id for pet in pets}
                    free = next(id_ for id_ in count(1) if id_ not in used)
                    added = Pet(free, "Rex", turn, PetStatus.AVAILABLE)
                    await repository.restore([*pets[:9], added])  # the others are there
                    pets = sorted([*pets, added], key=lambda pet: pet.id)
                    with suppress(ConflictError):  # which must undo nothing, not even later
                        await repository.restore([replace(pets[0], name="another")])
                    if turn % 2:
                        await self._order_the_first(repository, pets)
                    if failure:  # what was acknowledged before an exception counts, too
                        raise failure
        await self._close_while_it_writes(location)
        await self._close_after_cancelling(location)

    async def _order_the_first(self, repository: Repository, pets: list[Pet]) -> None:
        """Order some of the pets that were there when it was opened; small pages show it."""
        available = [n for n, pet in enumerate(pets) if pet.status is PetStatus.AVAILABLE]
        for index in available[:2]:
            await repository.place_order(pets[index].id, AT)
            pets[index] = replace(pets[index], status=PetStatus.PENDING)
        for status in PetStatus:
            matching = [pet for pet in pets if pet.status is status]
            for size in (1, 2, 3, 50):
                assert await repository.list_pets(PetQuery(0, size, status)) == matching[:size]

    async def _close_while_it_writes(self, location: Location) -> None:
        """Close a repository with calls in flight: they are stored, or unavailable."""
        news = [NewPet("in flight", number) for number in range(20)]
        async with location.open() as repository:
            writes = [asyncio.create_task(repository.create_pet(new)) for new in news]
            await asyncio.sleep(0)
        async with within(CANCEL_SECONDS, "a call in flight while the repository was closed"):
            results = await asyncio.gather(*writes, return_exceptions=True)
        async with location.open() as repository:
            stored = await repository.list_pets(PetQuery(0, 9999))
        for new, result in zip(news, results, strict=True):
            if isinstance(result, Receipt):
                assert Pet(result.id, new.name, new.category_id) in stored
            else:
                assert isinstance(result, UnavailableError), result

    async def _close_after_cancelling(self, location: Location) -> None:
        """Cancel calls and close the repository: reopening it does not make them again."""
        async with location.open() as repository:
            length, _ = await measure(repository.create_pet(REX))
        for tenth in range(0, 10, 3):
            async with location.open() as repository:
                writes = [
                    asyncio.create_task(repository.create_pet(NewPet("cancelled", number)))
                    for number in range(5)
                ]
                await length.wait(tenth)
                await cancel(writes)
                stored = await settle(repository, length)
            async with location.open() as repository:
                found = await repository.list_pets(PetQuery(0, 9999))
            assert {pet.id for pet in found} <= {pet.id for pet in stored.pets}, "made again"

    @location_clause("durable-orders", needs="durable")
    async def test_orders_and_records_are_there_after_reopening(self, location: Location) -> None:
        """Only pets are stored durably, or the records of tokens are kept in memory."""
        async with location.open() as repository:
            orders = await update_orders(repository, await place_orders(repository, 6))
            used = await self._use_tokens(repository)
            many = await create_many(repository, 2500)
            early = make_token("twice", REX, NOW - 2 * DAY_SECONDS)
            await repository.create_pet(REX, early)
            late = make_token("twice", "another")
            second = await repository.create_pet(REX, late)
            times = await sample(repository, TIMES, together=True)
            orders += await asyncio.gather(*(place_at(repository, at) for at in times))
            first = await repository.create_pet(REX, make_token("create", REX))
            placed = await repository.place_order(first.id, AT, make_token("place", first.id))
            orders.append(Order(placed.id, first.id, OrderStatus.PLACED, AT))
            orders += [order for _, order in used]
            again = await repository.place_order(used[-1][1].pet_id, AT)  # it was cancelled
            orders.append(Order(again.id, used[-1][1].pet_id, OrderStatus.PLACED, AT))
            restored = Order(placed.id + 1000, first.id + 1000, OrderStatus.COMPLETED, AT)
            pet = Pet(restored.pet_id, "Rex", 7, PetStatus.SOLD)
            await repository.restore([pet, restored])
            orders.append(restored)
            later = Order(restored.id + 1, pet.id + 1, OrderStatus.PLACED, AT)  # changes after that
            await repository.restore([Pet(later.pet_id, "Rex", 7, PetStatus.PENDING), later])
            orders.append(await repository.update_order(later.id, OrderStatus.COMPLETED))
            orders.sort(key=lambda order: order.id)
            records = await read_records(repository, 10_000)
        for _ in range(2):
            async with location.open() as repository:
                await self._retry_some(repository, many)
                assert await repository.list_orders(OrderQuery(0, 999)) == orders
                again = await repository.create_pet(REX, make_token("create", REX))
                assert again == Receipt(first.id, replayed=True)
                again = await repository.place_order(first.id, AT, make_token("place", first.id))
                assert again == Receipt(placed.id, replayed=True)
                again = await repository.create_pet(REX, replace(late, now=late.until - 1))
                assert again == Receipt(second.id, replayed=True)
                for token, order in used:
                    other = replace(token, fingerprint=bytes(32))
                    with pytest.raises(TokenReusedError):
                        await repository.place_order(order.pet_id, AT, other)
                    again = await repository.place_order(order.pet_id, AT, token)
                    assert again == Receipt(order.id, replayed=True)
                await check_agreement(repository)
                assert await read_records(repository, 10_000) == records
        async with location.open() as repository:
            expired = replace(late, now=late.until, until=late.until + 1, fingerprint=bytes(32))
            assert not (await repository.create_pet(REX, expired)).replayed
            new = (await place_orders(repository))[0]
            assert new.id not in [order.id for order in orders], "an order id is assigned again"
            assert new.id > restored.id, "the counter of orders has forgotten the restored one"
        await self._retry_after_reopening(location)

    async def _retry_some(self, repository: Repository, many: list[Receipt]) -> None:
        """Retry some of the creates that `create_many` has made."""
        retried = range(0, len(many), 50)
        tokens = [make_token(f"many {number}", number) for number in retried]
        replays = await asyncio.gather(*(repository.create_pet(REX, token) for token in tokens))
        assert replays == [replace(many[number], replayed=True) for number in retried]

    async def _retry_after_reopening(self, location: Location) -> None:
        """Cancel creates and close the repository at once; retry them after reopening it."""
        async with location.open() as repository:
            length, _ = await measure(repository.create_pet(REX))
        for tenth in range(0, 10, 2):
            news = [NewPet(f"cancelled {tenth}", number) for number in range(4)]
            pairs = [(new, make_token(f"{new}", new)) for new in news]
            alone = [NewPet(f"alone {tenth}", number) for number in range(4)]
            async with location.open() as repository:
                calls = [repository.create_pet(*pair) for pair in pairs]
                calls += [repository.create_pet(new) for new in alone]
                writes = [asyncio.create_task(call) for call in calls]
                await length.wait(tenth)
                await cancel(writes)
            async with location.open() as repository:
                await asyncio.gather(*(repository.create_pet(*pair) for pair in pairs))
                stored = (await settle(repository, length)).pets
            counts = Counter((pet.name, pet.category_id) for pet in stored)
            assert [counts[new.name, new.category_id] for new in news] == [1] * 4, "not once"
            assert all(counts[new.name, new.category_id] <= 1 for new in alone), "made twice"

    async def _use_tokens(self, repository: Repository) -> list[tuple[IdempotencyToken, Order]]:
        """Place orders with tokens, and cancel or complete some; return tokens and orders."""
        used = []
        for number, status in enumerate(OrderStatus):
            pet_id = await add_pet(repository)
            token = make_token(f"{number}", pet_id)
            receipt = await repository.place_order(pet_id, AT, token)
            used.append((token, await repository.update_order(receipt.id, status)))
        return used

    @location_clause("durable-ids", needs="durable")
    async def test_no_id_is_assigned_again_after_reopening(self, location: Location) -> None:
        """The counter starts again at 1, or at the number of pets."""
        seen, ordered = set[int](), set[int]()
        restored = 0
        for turn in range(4):
            async with location.open() as repository:
                for _ in await sample(repository, range(5)):
                    receipt = await repository.create_pet(NewPet("Rex", 7))
                    assert receipt.id not in seen
                    assert receipt.id > restored, "the id is not above all restored ones"
                    seen.add(receipt.id)
                    with pytest.raises(ConflictError):
                        await repository.place_order(receipt.id, AT)
                    (order,) = await place_orders(repository)
                    assert order.id not in ordered, "the id of an order is assigned again"
                    ordered.add(order.id)
                    seen.add(order.pet_id)
                for _ in range(4):  # in a row, so that they are ahead of the pets
                    await repository.update_order(order.id, OrderStatus.CANCELLED)
                    placed = await repository.place_order(order.pet_id, AT)
                    assert placed.id not in ordered, "the id of an order is assigned again"
                    ordered.add(placed.id)
                    order = Order(placed.id, order.pet_id, OrderStatus.PLACED, AT)
                if turn % 2:  # the last one is cancelled
                    await repository.update_order(order.id, OrderStatus.CANCELLED)
                if turn % 2 == 0:
                    restored = max(*seen, *ordered) + 10
                    # The highest is neither the last that is stored nor the last in the call.
                    items = [*pet_and_order(restored), *pet_and_order(restored - 5)]
                    refused = Order(restored - 1, receipt.id, OrderStatus.PLACED, AT)
                    with pytest.raises(ConflictError):
                        await repository.restore([*items, refused])
        await self._write_after_closing(location)

    async def _write_after_closing(self, location: Location) -> None:
        """Cancel creates and close the repository at once; create others after reopening it."""
        async with location.open() as repository:
            length, _ = await measure(repository.create_pet(REX))
        for tenth in range(0, 10, 2):
            news = [NewPet(f"cancelled {tenth}", number) for number in range(8)]
            tokens = [make_token(f"{new}", new) if new.category_id % 2 else None for new in news]
            pairs = list(zip(news, tokens, strict=True))
            async with location.open() as repository:
                writes = [asyncio.create_task(repository.create_pet(*pair)) for pair in pairs]
                await length.wait(tenth)
                await cancel(writes)
            async with location.open() as repository:
                seen = await repository.list_pets(PetQuery(0, 9999))
                creates = [repository.create_pet(REX) for _ in news]
                creates += [repository.create_pet(*pair) for pair in pairs if pair[1]]
                receipts = await asyncio.gather(*creates)
                stored = (await settle(repository, length)).pets
            again = "an id is assigned again"
            assert all(pet in stored for pet in seen), again
            found = {pet.id: pet.name for pet in stored}
            names = [found.get(receipt.id) for receipt in receipts[: len(news)]]
            assert names == [REX.name] * len(news), again
            assert len({receipt.id for receipt in receipts}) == len(receipts), again

    @location_clause("durable-reads", needs="durable")
    async def test_a_pet_that_was_read_is_there_after_reopening(self, location: Location) -> None:
        """A new pet is visible to reads before it is stored durably."""
        seen: dict[int, Pet] = {}
        for _ in range(5):
            async with location.open() as repository:
                writes = [
                    asyncio.create_task(repository.create_pet(NewPet(f"{n}", n))) for n in range(20)
                ]
                new: dict[int, Pet] = {}
                while not new and not all(write.done() for write in writes):
                    await asyncio.sleep(0)  # not after the read: a commit may end meanwhile
                    page = await repository.list_pets(PetQuery(0, 999))
                    new = {pet.id: pet for pet in page if pet.id not in seen}
                seen |= new
                for write in writes:
                    write.cancel()
                await asyncio.wait(writes)
            async with location.open() as repository:
                stored = {pet.id: pet for pet in await repository.list_pets(PetQuery(0, 999))}
                assert seen.items() <= stored.items()
                for pet_id, pet in new.items():
                    assert await repository.get_pet(pet_id) == pet
