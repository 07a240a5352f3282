"""Clauses of durable backends: what is there after reopening."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    ConflictError,
    IdempotencyToken,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
    TokenReusedError,
)
from petstore_conformance.clauses.methods import CREATED_NAME, attempt, close_in_flight
from petstore_conformance.clauses.orders import (
    FINAL_STATUSES,
    add_pet,
    check_agreement,
    order_and_cancel,
    place_at,
    place_orders,
    update_orders,
)
from petstore_conformance.clauses.records import read_records
from petstore_conformance.clauses.restore import pet_and_order, restore_before_a_refusal
from petstore_conformance.clauses.tokens import create_many
from petstore_conformance.harness.alarm import OverdueError
from petstore_conformance.harness.effort import Length, fill, measure, sample, yield_to_others
from petstore_conformance.harness.kit import (
    CancelledOnPurposeError,
    Kit,
    Location,
    RaisedOnPurposeError,
    location_clause,
)
from petstore_conformance.model.calls import AnyCall, cancel, check_no_late_effects, create, settle
from petstore_conformance.model.model import Payload, Stored, send
from petstore_conformance.model.reads import check_page, read_all
from petstore_conformance.model.values import (
    AT,
    DAY_SECONDS,
    HOSTILE_PETS,
    PAST,
    PET_STATUSES,
    REX,
    TIMES,
    make_token,
    record_of,
)

CHANGES: Final = 3100  # then a log has two entries for each that it needs, and 2,000 more


def check_acknowledged(items: Sequence[Pet | Order], stored: Stored) -> None:
    """Check that items are stored; their statuses may have changed after they were acknowledged."""
    found_items: list[Any] = [*stored.pets, *stored.orders]
    by_id = {(type(item), item.id): item for item in found_items}
    for item in items:
        found = by_id.get((type(item), item.id))
        assert found is not None, f"{item} is gone"
        assert found == replace(item, status=found.status)
        if item.status not in (PetStatus.AVAILABLE, OrderStatus.PLACED):
            sold = (item.status, found.status) == (PetStatus.PENDING, PetStatus.SOLD)
            assert found == item or sold


async def read_what_is_written(
    repository: Repository, payloads: Iterable[Payload], pet_id: int, *, lists: bool = True
) -> list[Pet | Order]:
    """Make writes until reads show something of them; cancel them, return what was read.

    payloads -- what is written; if there are none, orders are completed
    pet_id -- that of a pet that one of them changes, or will probably create
    lists -- whether all is read, not only this pet: a list may be returned later
    """

    async def read() -> list[Any]:
        stored = await read_all(repository) if lists else Stored([], [])
        return [*stored.pets, *stored.orders, *filter(None, [await repository.get_pet(pet_id)])]

    before = seen = await read()
    placed = [order.id for order in before if order.status is OrderStatus.PLACED]
    completing = [partial(repository.update_order, id_, OrderStatus.COMPLETED) for id_ in placed]
    calls: list[AnyCall] = [partial(send, repository, it, None) for it in payloads]
    writes = [asyncio.create_task(attempt(call)) for call in calls or completing]
    while seen == before and not all(write.done() for write in writes):
        await yield_to_others()  # not after the read: a commit may end meanwhile
        seen = await read()
    await cancel(writes)
    return seen


async def close_while_it_writes(
    location: Location, method: str
) -> tuple[Stored, set[int], list[Order]]:
    """Close a repository with calls in flight, several times.

    Returns what is stored in the end, for good; the ids that writes of a method have been assigned;
    and the orders that were updated, as they were returned.
    """
    ids, updated = set[int](), list[Order]()
    async for results in close_in_flight(location):
        writes = (result for name, result in results.items() if name.startswith(method))
        ids |= {it.id for it in writes if isinstance(it, Receipt) and not it.replayed}
        updates = (result for name, result in results.items() if name.startswith("update"))
        updated += [it for it in updates if isinstance(it, Order) and it.status in FINAL_STATUSES]
    async with location.open() as repository:
        length, _ = await measure(repository.create_pet(REX))
        return await check_no_late_effects(repository, length), ids, updated


class DurabilityClauses(Kit):
    """Clauses of backends that claim to be durable."""

    @location_clause("durable-pets", needs="durable")
    async def test_acknowledged_pets_are_there_after_reopening(self, location: Location) -> None:
        """Closing loses what is in a buffer, or opening does not read what was stored."""
        async with location.open() as repository:
            news = await sample(repository, self.storable(HOSTILE_PETS), together=True)
            created = await asyncio.gather(*(create(repository, new) for new in news))
            highest = max(pet.id for pet in created)
            free = range(highest + 1, min(highest + 2500, MAX_ID - 100))  # 900 of a status in a row
            await repository.restore([Pet(n, f"{n}", n, PET_STATUSES[n // 900 % 4]) for n in free])
            pets = await repository.list_pets(PetQuery(0, 9999))
            chosen = await sample(repository, pets, together=True, reads=True)
            skipped = {pet.id for pet in pets} - {pet.id for pet in chosen}
        endings = (RaisedOnPurposeError, CancelledOnPurposeError, None, None)
        for number, failure in enumerate(endings):  # what was acknowledged before counts, too
            with suppress(RaisedOnPurposeError, CancelledOnPurposeError):
                async with location.open() as repository:
                    for status in (None, *PetStatus):
                        await check_page(repository, PetQuery(0, 9999, status), pets)
                    seventh = [it for it in pets if it.id % 7 == number and it.id not in skipped]
                    found = await asyncio.gather(*(repository.get_pet(pet.id) for pet in seventh))
                    assert found == seventh
                    pets = await self._change_some(repository, pets, number)
                    if failure:
                        raise failure
        async with location.new() as other:
            stored, ids, _ = await close_while_it_writes(other, "create")
            assert ids <= {pet.id for pet in stored.pets if pet.name == CREATED_NAME}

    async def _change_some(self, repository: Repository, pets: list[Pet], number: int) -> list[Pet]:
        """Restore some pets again and two new ones, one of them before a refusal; return all.

        number -- of the opening; in every second one, two of these pets are ordered, and small
            pages show it
        """
        ordering = number % 2 == 1
        ids = Stored(pets, []).free_ids()
        added, later = (Pet(next(ids), "Rex", number, PetStatus.AVAILABLE) for _ in range(2))
        await repository.restore([*pets[:9], added])  # the others are there
        with suppress(ConflictError):  # which must undo nothing, not even later
            await repository.restore([later, replace(pets[0], name="another")])
        available = [pet for pet in pets if pet.status is PetStatus.AVAILABLE]
        for pet in available[:2] if ordering else []:
            await repository.place_order(pet.id, AT)
        pets = await repository.list_pets(PetQuery(0, 9999))
        sizes = (1, 2, 3, 50) if ordering else ()
        for query in (PetQuery(0, size, status) for size in sizes for status in PetStatus):
            await check_page(repository, query, pets)
        return pets

    @location_clause("durable-orders", needs="durable")
    async def test_orders_and_records_are_there_after_reopening(self, location: Location) -> None:
        """Only pets are stored durably, or the records of tokens are kept in memory."""
        used = list[tuple[Payload, IdempotencyToken, Receipt]]()

        async def use(repository: Repository, name: str, payload: Payload) -> int:
            token = make_token(name, payload, PAST)
            used.append((payload, token, await send(repository, payload, token)))
            return used[-1][2].id

        async with location.open() as repository:
            await update_orders(repository, await place_orders(repository, 6))
            await create_many(repository, 2500, PAST)
            await repository.create_pet(REX, make_token("twice", REX, PAST - 2 * DAY_SECONDS))
            await asyncio.gather(
                *(use(repository, it, NewPet(it, 7)) for it in ("twice", "create"))
            )
            pet_ids = await asyncio.gather(*(add_pet(repository) for _ in OrderStatus))
            for pet_id, status in zip(pet_ids, OrderStatus, strict=True):
                await repository.update_order(await use(repository, status, pet_id), status)
            await repository.place_order(pet_id, AT)  # the last of its orders was cancelled
            pet_id = await add_pet(repository)
            racing = (repository.place_order(pet_id, AT) for _ in range(8))  # one wins
            await asyncio.gather(*racing, return_exceptions=True)
            times = await sample(repository, TIMES, together=True)
            await asyncio.gather(*(place_at(repository, at) for at in times))
            id_ = max((await read_all(repository)).ids) + 1000
            sold = pet_and_order(id_, PetStatus.SOLD)
            record = record_of(make_token("restored", REX, PAST), id_)
            await repository.restore([*sold, *pet_and_order(id_ + 1, PetStatus.PENDING), record])
            await repository.restore([Order(id_ + 3, id_, OrderStatus.CANCELLED, AT)])  # before
            await repository.update_order(id_ + 1, OrderStatus.COMPLETED)
            reading = read_all(repository), read_records(repository, 5000, PAST)
            stored, records = await asyncio.gather(*reading)
        for _ in range(2):
            async with location.open() as repository:
                assert await read_all(repository) == stored
                for payload, token, receipt in used:
                    with pytest.raises(TokenReusedError):
                        await send(repository, payload, replace(token, fingerprint=bytes(32)))
                    last = replace(token, now=token.until - 1)
                    assert await send(repository, payload, last) == replace(receipt, replayed=True)
                await check_agreement(repository)
                for order in stored.orders[:3]:
                    if order.status is not OrderStatus.CANCELLED:  # its pet is in this order
                        with pytest.raises(ConflictError):
                            await repository.restore([replace(order, id=id_ + 2)])
                assert await read_records(repository, 5000, PAST) == records
        async with location.new() as other:
            await self._change_a_few_pets(other)
            stored, ids, updated = await close_while_it_writes(other, "place")
            assert ids <= {order.id for order in stored.orders}
            assert all(order in stored.orders for order in updated)

    async def _change_a_few_pets(self, location: Location) -> None:
        """Change a few pets often: a log is written anew then, without what is no longer needed."""
        async with location.open() as repository:
            await create_many(repository, 2, PAST)
            many = len(await sample(repository, range(CHANGES), together=True))
            many = many if many == CHANGES else 4  # a slow one would take minutes
            pet_ids = await fill(min(many, 100), lambda _: add_pet(repository))
            await fill(many, lambda n: order_and_cancel(repository, pet_ids[n % len(pet_ids)]))
            await repository.create_pet(NewPet(self.long_name(2**23), 7))  # a record of 8 MiB
            changed = await read_all(repository), await read_records(repository, 99, PAST)
        for _ in range(2):
            async with location.open() as repository:
                found = await read_all(repository), await read_records(repository, 99, PAST)
                assert found == changed

    @location_clause("durable-ids", needs="durable")
    async def test_no_id_is_assigned_again_after_reopening(self, location: Location) -> None:
        """The counter starts again at 1, or at the number of pets."""
        pet_ids, order_ids, restored = list[int](), list[int](), 0
        for number in range(4):
            async with location.open() as repository:
                for _ in await sample(repository, range(5)):
                    pet_ids.append(await add_pet(repository))
                    for _ in range(5):  # in a row, so that they are ahead of the pets
                        order = await place_at(repository, AT, pet_ids[-1])
                        await repository.update_order(order.id, OrderStatus.CANCELLED)
                        order_ids.append(order.id)
                        assert min(order.pet_id, order.id) > restored, "it was restored, or lower"
                if number % 2 == 0:
                    restored = await restore_before_a_refusal(repository, 10)
        for ids in (pet_ids, order_ids):
            assert len(set(ids)) == len(ids), "an id is assigned again"
        async with location.open() as repository:
            lengths = [(await measure(repository.create_pet(REX)))[0] for _ in range(2)]
            length = min(lengths, key=lambda length: length.seconds)  # a disk is slow at times
            tenths = await sample(repository, range(10))
        tried = [await self._write_after_cancelling(location, length, tenth) for tenth in tenths]
        async with location.open() as repository:
            stored = await settle(repository, length)
        counts = Counter((pet.name, pet.category_id) for pet in stored.pets)
        for seen, repeated, cancelled in tried:
            assert all(pet in stored.pets for pet in seen), "an id is assigned again"
            assert {counts[new.name, new.category_id] for new in repeated} == {1}, "not once"
            assert all(counts[new.name, new.category_id] <= 1 for new in cancelled), "made twice"

    async def _write_after_cancelling(
        self, location: Location, length: Length, tenth: int
    ) -> tuple[list[Pet], list[NewPet], list[NewPet]]:
        """Cancel creates and close the repository; after reopening, repeat those with a token.

        length -- how long a create takes; they are cancelled after some tenths of it

        Returns which pets are stored, what was repeated, and what was only cancelled.
        """
        repeated = [NewPet(f"repeated {tenth}", number) for number in range(4)]
        cancelled = [NewPet(f"cancelled {tenth}", number) for number in range(4)]
        retries = [(new, make_token(f"{new}", new)) for new in repeated]
        async with location.open() as repository:
            writes = [repository.create_pet(*retry) for retry in retries]
            writes += map(repository.create_pet, cancelled)
            tasks = [asyncio.create_task(write) for write in writes]
            await length.wait(tenth)
            await cancel(tasks)
            # Then they can take no effect any more; or it is closed at once, while they still may.
            settled = await settle(repository, length) if tenth % 2 else None
        async with location.open() as repository:
            seen = (await read_all(repository)).pets
            if settled is not None and not {*seen} <= {*settled.pets}:
                raise OverdueError("a cancelled write is made again, or took effect late")
            seen += await asyncio.gather(*(create(repository, REX) for _ in tasks))
            await asyncio.gather(*(repository.create_pet(*retry) for retry in retries))
        return seen, repeated, cancelled

    @location_clause("durable-reads", needs="durable")
    async def test_what_was_read_is_there_after_reopening(self, location: Location) -> None:
        """A new pet or order is visible to reads before it is stored durably."""
        for number, creates in enumerate((True, True, False)):  # each takes ten seconds if slow
            async with location.open() as repository:
                await place_orders(repository, 0 if creates else 5)
                pet_ids = await asyncio.gather(*(add_pet(repository) for _ in range(10)))
                news = [NewPet("read", number) for _ in pet_ids]
                payloads: list[Payload] = [*pet_ids, *news] if creates else []  # or only updates
                seen = await read_what_is_written(repository, payloads, pet_ids[0])
            async with location.open() as repository:
                check_acknowledged(seen, await read_all(repository))
                await check_agreement(repository)
