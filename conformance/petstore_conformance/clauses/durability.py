"""Clauses of durable backends: what is there after reopening."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

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
)
from petstore_conformance.clauses.locations import measure_create
from petstore_conformance.clauses.methods import CREATED_NAME, close_in_flight
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
from petstore_conformance.harness.kit import (
    CancelledOnPurposeError,
    Kit,
    Location,
    RaisedOnPurposeError,
    location_clause,
)
from petstore_conformance.model.calls import (
    Length,
    Stored,
    cancel,
    check_no_late_effects,
    check_page,
    create_all,
    read_all,
    read_each,
    sample,
    settle,
    yield_to_others,
)
from petstore_conformance.model.model import Payload, send
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

FAILURES: Final = (RaisedOnPurposeError, CancelledOnPurposeError, None, None)
"""How the block in which a location is open ends; what was acknowledged before counts, too."""


async def order_available(repository: Repository, pets: list[Pet], count: int) -> None:
    """Order the first of the available pets; the list has them as they are after that."""
    available = [index for index, pet in enumerate(pets) if pet.status is PetStatus.AVAILABLE]
    for index in available[:count]:
        await repository.place_order(pets[index].id, AT)
        pets[index] = replace(pets[index], status=PetStatus.PENDING)


class DurabilityClauses(Kit):
    """Clauses of backends that claim to be durable."""

    @location_clause("durable-pets", needs="durable")
    async def test_acknowledged_pets_are_there_after_reopening(self, location: Location) -> None:
        """Closing loses what is still in a buffer."""
        async with location.open() as repository:
            pets = await self._store_many(repository)
        for number, failure in enumerate(FAILURES):
            with suppress(RaisedOnPurposeError, CancelledOnPurposeError):
                async with location.open() as repository:
                    pets = await self._read_and_restore(repository, pets, number)
                    if number % 2:
                        await self._order_the_first(repository, pets)
                    if failure:
                        raise failure
        async with location.new() as other:
            await self._close_while_it_writes(other)

    async def _store_many(self, repository: Repository) -> list[Pet]:
        """Create hostile pets and restore thousands; return all in ascending id."""
        news = await sample(repository, self.storable(HOSTILE_PETS), together=True)
        pets = await create_all(repository, news)
        await order_available(repository, pets, len(pets) // 10)
        highest = max(pet.id for pet in pets)
        many = range(highest + 1, min(highest + 2500, MAX_ID - 100))
        restored = [Pet(id_, f"{id_}", id_, PET_STATUSES[id_ // 900 % 4]) for id_ in many]
        for begin in range(0, len(restored), 250):
            given = restored[begin : begin + 250]
            await repository.restore(given)
            given.clear()  # it belongs to the caller
        return sorted([*pets, *restored], key=lambda pet: pet.id)

    async def _read_and_restore(
        self, repository: Repository, pets: list[Pet], number: int
    ) -> list[Pet]:
        """Read what was there when it was opened, and restore some again and a new one.

        number -- chooses the seventh of the pets that are read one by one
        """
        for status in (None, *PetStatus):
            await check_page(repository, PetQuery(0, 9999, status), pets)

        async def read(pet: Pet) -> None:
            assert await repository.get_pet(pet.id) == pet

        await read_each(repository, [pet for pet in pets if pet.id % 7 == number], read)
        added = Pet(next(Stored(pets, []).free_ids()), "Rex", number, PetStatus.AVAILABLE)
        await repository.restore([*pets[:9], added])  # the others are there
        pets = sorted([*pets, added], key=lambda pet: pet.id)
        with suppress(ConflictError):  # which must undo nothing, not even later
            await repository.restore([replace(pets[0], name="another")])
        return pets

    async def _order_the_first(self, repository: Repository, pets: list[Pet]) -> None:
        """Order some of the pets that were there when it was opened; small pages show it."""
        await order_available(repository, pets, 2)
        for status in PetStatus:
            for size in (1, 2, 3, 50):
                await check_page(repository, PetQuery(0, size, status), pets)

    async def _close_while_it_writes(self, location: Location) -> None:
        """Close a repository with calls in flight: what they have returned is stored, for good."""
        length = await measure_create(location)
        async with location.open() as repository:
            tenths = await sample(repository, range(0, 10, 3))
        for tenth in tenths:
            results = await close_in_flight(location, length, tenth)
            async with location.open() as repository:
                stored = await check_no_late_effects(repository, length)
            pets = {pet.id for pet in stored.pets if pet.name == CREATED_NAME}
            orders = {order.id for order in stored.orders}
            for name, result in results.items():
                if isinstance(result, Receipt) and not result.replayed:
                    assert result.id in (pets if name.startswith("create") else orders), name
            if isinstance(updated := results["update_order"], Order):
                assert updated in stored.orders

    @location_clause("durable-orders", needs="durable")
    async def test_orders_and_records_are_there_after_reopening(self, location: Location) -> None:
        """Only pets are stored durably, or the records of tokens are kept in memory."""
        early = make_token("twice", REX, NOW - 2 * DAY_SECONDS)  # it has expired
        tokens = make_token("twice", "another"), make_token("create", REX)
        async with location.open() as repository:
            orders = await update_orders(repository, await place_orders(repository, 6))
            used = await self._order_with_tokens(repository)
            await create_many(repository, 2500)
            await repository.create_pet(REX, early)
            receipts = [await repository.create_pet(REX, token) for token in tokens]
            times = await sample(repository, TIMES, together=True)
            orders += await asyncio.gather(*(place_at(repository, at) for at in times))
            orders += [order for _, order in used]
            released = used[-1][1].pet_id  # the last of the orders was cancelled
            again = await repository.place_order(released, AT)
            orders.append(Order(again.id, released, OrderStatus.PLACED, AT))
            orders += await self._restore_orders(repository, max(order.id for order in orders))
            orders.sort(key=lambda order: order.id)
            records = await read_records(repository, 10_000)
        for _ in range(2):
            async with location.open() as repository:
                assert await repository.list_orders(OrderQuery(0, 999)) == orders
                for token, receipt in zip(tokens, receipts, strict=True):
                    last = replace(token, now=token.until - 1)
                    again = await repository.create_pet(REX, last)
                    assert again == replace(receipt, replayed=True)
                for token, order in used:
                    other = replace(token, fingerprint=bytes(32))
                    with pytest.raises(TokenReusedError):
                        await repository.place_order(order.pet_id, AT, other)
                    again = await repository.place_order(order.pet_id, AT, token)
                    assert again == Receipt(order.id, replayed=True)
                await check_agreement(repository)
                assert await read_records(repository, 10_000) == records

    async def _order_with_tokens(
        self, repository: Repository
    ) -> list[tuple[IdempotencyToken, Order]]:
        """Place orders with tokens, and give each another status; return tokens and orders."""
        used = []
        for number, status in enumerate(OrderStatus):
            pet_id = await add_pet(repository)
            token = make_token(f"{number}", pet_id)
            receipt = await repository.place_order(pet_id, AT, token)
            used.append((token, await repository.update_order(receipt.id, status)))
        return used

    async def _restore_orders(self, repository: Repository, highest: int) -> list[Order]:
        """Restore two orders, and complete the one of them that is placed; return both."""
        id_ = max(highest, await add_pet(repository)) + 1000
        completed = Order(id_, id_, OrderStatus.COMPLETED, AT)
        placed = Order(id_ + 1, id_ + 1, OrderStatus.PLACED, AT)
        await repository.restore([Pet(id_, "Rex", 7, PetStatus.SOLD), completed])
        await repository.restore([Pet(id_ + 1, "Rex", 7, PetStatus.PENDING), placed])
        return [completed, await repository.update_order(placed.id, OrderStatus.COMPLETED)]

    @location_clause("durable-ids", needs="durable")
    async def test_no_id_is_assigned_again_after_reopening(self, location: Location) -> None:
        """The counter starts again at 1, or at the number of pets."""
        seen, ordered = set[int](), set[int]()
        restored = 0
        for number in range(4):
            async with location.open() as repository:
                for _ in await sample(repository, range(5)):
                    receipt = await repository.create_pet(NewPet("Rex", 7))
                    assert receipt.id not in seen
                    assert receipt.id > restored, "the id is not above all restored ones"
                    with pytest.raises(ConflictError):
                        await repository.place_order(receipt.id, AT)
                    (order,) = await place_orders(repository)
                    assert order.id not in ordered, "the id of an order is assigned again"
                    ordered.add(order.id)
                    seen |= {receipt.id, order.pet_id}
                last = order.id
                for _ in range(4):  # in a row, so that they are ahead of the pets
                    await repository.update_order(last, OrderStatus.CANCELLED)
                    last = (await repository.place_order(order.pet_id, AT)).id
                    assert last not in ordered, "the id of an order is assigned again"
                    ordered.add(last)
                if number % 2:
                    await repository.update_order(last, OrderStatus.CANCELLED)
                else:
                    restored = max(*seen, *ordered) + 10
                    # The highest is neither the last that is stored nor the last in the call.
                    items = [*pet_and_order(restored), *pet_and_order(restored - 5)]
                    refused = Order(restored - 1, receipt.id, OrderStatus.PLACED, AT)
                    with pytest.raises(ConflictError):
                        await repository.restore([*items, refused])
        length = await measure_create(location)
        async with location.open() as repository:
            tenths = await sample(repository, range(10))
        for tenth in tenths:
            await self._write_after_cancelling(location, length, tenth)

    async def _write_after_cancelling(self, location: Location, length: Length, tenth: int) -> None:
        """Cancel creates and close the repository; after reopening, repeat half of them.

        length -- how long a create takes; they are cancelled after some tenths of it
        """
        news = [NewPet(f"cancelled {tenth}", number) for number in range(8)]
        retried = [(new, make_token(f"{new}", new)) for new in news if new.category_id < 4]
        alone = [(new, None) for new in news if new.category_id >= 4]
        async with location.open() as repository:
            writes = (repository.create_pet(*write) for write in (*retried, *alone))
            tasks = [asyncio.create_task(write) for write in writes]
            await length.wait(tenth)
            await cancel(tasks)
            # Then they can take no effect any more; or it is closed at once, while they still may.
            settled = await settle(repository, length) if tenth % 2 else None
        async with location.open() as repository:
            seen = await read_all(repository)
            assert settled in (None, seen), "a cancelled write is made again"
            others = await asyncio.gather(*(add_pet(repository) for _ in news))
            await asyncio.gather(*(repository.create_pet(*write) for write in retried))
            stored = await settle(repository, length)
        assert all(pet in stored.pets for pet in seen.pets), "an id is assigned again"
        assert [pet.name for pet in stored.pets if pet.id in others] == [REX.name] * len(news)
        counts = Counter((pet.name, pet.category_id) for pet in stored.pets)
        assert {counts[new.name, new.category_id] for new, _ in retried} == {1}, "not once"
        assert all(counts[new.name, new.category_id] <= 1 for new, _ in alone), "made twice"

    @location_clause("durable-reads", needs="durable")
    async def test_what_was_read_is_there_after_reopening(self, location: Location) -> None:
        """A new pet or order is visible to reads before it is stored durably."""
        for number in range(5):
            async with location.open() as repository:
                pet_ids = await asyncio.gather(*(add_pet(repository) for _ in range(10)))
                payloads: list[Payload] = [*pet_ids, *(NewPet("read", number) for _ in pet_ids)]
                before = seen = await read_all(repository)
                writes = [asyncio.create_task(send(repository, it, None)) for it in payloads]
                while seen == before and not all(write.done() for write in writes):
                    await yield_to_others()  # not after the read: a commit may end meanwhile
                    seen = await read_all(repository)
                for write in writes:
                    write.cancel()
                await asyncio.wait(writes)
            async with location.open() as repository:
                stored = await read_all(repository)
                await check_agreement(repository)
            assert {pet.id for pet in seen.pets} <= {pet.id for pet in stored.pets}
            assert all(order in stored.orders for order in seen.orders)
