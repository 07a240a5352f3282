"""Clauses of shared backends: a location that is opened several times."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import permutations
from typing import Any, Final

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    Access,
    ConflictError,
    Expected,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
)
from petstore_conformance.clauses.orders import (
    FINAL_STATUSES,
    add_pet,
    check_agreement,
    place_at,
    place_orders,
    sell_once,
    status_of,
)
from petstore_conformance.clauses.records import read_records
from petstore_conformance.clauses.restore import pet_and_order, refuse
from petstore_conformance.harness.effort import current, fill, measure, sample, time_limit
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.model.calls import READERS, create, watch, write_once
from petstore_conformance.model.model import send
from petstore_conformance.model.reads import check_shown, every_filter, read_all, read_page
from petstore_conformance.model.values import AT, PAST, REX, make_token, record_of

READING_SECONDS: Final = 8  # then no more is written to be read: a slow store writes less
MANY_PETS: Final = 700  # more than what a handle may have room for when it is opened
MANY_IDS: Final = 1009  # more than a repository reserves in a block


async def create_at_once(handles: Sequence[Repository], count: int) -> None:
    """Create so many pets through each handle of an empty location; each must show all of them."""
    ids = await asyncio.gather(*(add_pet(handle) for _ in range(count) for handle in handles))
    assert len({*ids}) == len(ids), "an id is assigned twice"
    for handle in handles:
        assert [pet.id for pet in await handle.list_pets(PetQuery(0, 999))] == sorted(ids)


async def view(repository: Repository, ids: Sequence[int]) -> list[Any]:
    """Return all that a handle shows: pages, records, and what is at some ids and after them.

    It is read at once and then again: during a read, a cache may hear of what others have written.
    """
    reads: list[Coroutine[Any, Any, Any]] = [read_records(repository, 999)]
    reads += (read_page(repository, query) for query in every_filter(0, 9999))
    for id_ in ids:
        reads += [repository.get_pet(id_), repository.list_pets(PetQuery(id_, 1))]
        reads += [repository.get_order(id_), repository.list_orders(OrderQuery(id_, 1))]
    records, pets, *others = await asyncio.gather(*reads)
    for id_ in ids:
        assert await repository.get_pet(id_) in (None, *pets)
    return [records, pets, *others]


async def write_each_kind(
    repository: Repository, name: str, restored_ids: Iterable[int], *, refused: bool = False
) -> AsyncIterator[Sequence[Pet | Order]]:
    """Make writes of each kind, with tokens made from a name; yield what each has stored.

    refused -- whether each restore ends with an item that is refused
    """
    for id_ in restored_ids:
        restored = pet_and_order(id_, PetStatus.SOLD)
        token = make_token(f"restored {id_} {name}", id_)
        without_pet = Order(id_ + 10**5, MAX_ID, OrderStatus.CANCELLED, AT)
        with suppress(NotFoundError):
            await repository.restore([record_of(token, id_), *restored, *[without_pet] * refused])
        yield restored
        assert await send(repository, REX, token) == Receipt(id_, replayed=True)
    new = NewPet(name, 7, PetStatus.AVAILABLE)
    pet = await create(repository, new, make_token(name, new))
    yield [pet]
    tokens = {it: make_token(f"{name} {it}", pet.id) for it in FINAL_STATUSES}
    for status, token in reversed(tokens.items()):
        order_id = (await repository.place_order(pet.id, AT, token)).id
        yield [Order(order_id, pet.id, OrderStatus.PLACED, AT)]
        with suppress(ConflictError):  # then nothing may be recorded, not even for a moment
            await repository.place_order(pet.id, AT, tokens[OrderStatus.COMPLETED])
        yield [await repository.update_order(order_id, status)]


async def only_read(reader: Repository, writer: Repository) -> None:
    """Read all that may change through one handle, while only the other one writes."""
    known, in_time, written = {await add_pet(writer)}, time_limit(READING_SECONDS), 0
    stored = await read_all(writer)
    # The second one is below the first, so that it belongs on pages that were full.
    restored = [next(stored.free_ids(max(stored.ids) + distance)) for distance in (20, 10)]
    writes = write_each_kind(writer, f"after {known}", restored)
    while in_time():
        # The ids that come next, too: it may remember that they were not there.
        ids = sorted(id_ for id_ in known | {id_ + 1 for id_ in known} if id_ <= MAX_ID)
        before = await view(reader, ids)
        if not (items := await anext(writes, None)):
            assert await add_pet(reader) > max(restored), "it does not know what was restored"
            return
        after = await view(reader, ids)
        assert after == await view(writer, ids), "it does not see what only the other has written"
        assert after != before
        known |= {item.id for item in items}
        written += 1
    current().note(written, 7)  # as many as `write_each_kind` yields


async def open_while_writing(location: Location) -> tuple[list[Pet | Order], set[Pet | Order]]:
    """Open a new location several times, while another handle writes.

    Returns what was written, and what of it others lack that were open before or are opened later.
    """
    items, missing = list[Pet | Order](), set[Pet | Order]()

    async def write(repository: Repository, number: int = 0) -> None:
        items.append(await create(repository, REX))
        await asyncio.sleep(0 if len(items) < 2000 else 0.001)  # less often if opening is slow
        if number:
            placed, status = await place_at(repository, AT), [*OrderStatus][number % 3]
            items.append(await repository.update_order(placed.id, status))

    async def open_others() -> None:
        for _ in await sample(writer, range(3)):
            async with new.open() as other:
                await asyncio.gather(*(write(other) for _ in range(5)))
            written = {*items}
            async with new.open() as later:
                for stored in (await read_all(later), await read_all(reader)):
                    missing.update(written.difference(stored.pets, stored.orders))

    async with location.new() as new, new.open() as writer, new.open() as reader:
        await watch(open_others, [partial(write, writer, number) for number in range(5)])
        await check_agreement(reader)
    return items, missing


class SharingClauses(Kit):
    """Clauses of backends that claim to be shared."""

    @location_clause("shared-reads", needs="shared")
    async def test_each_repository_sees_what_another_has_written(self, location: Location) -> None:
        """Each repository reads from its own copy or cache."""
        async with location.open_several(3) as handles:
            pairs = list(permutations(handles, 2))
            for reader, writer in await sample(handles[0], pairs, reads=True):
                await only_read(reader, writer)
            writer, *readers = handles
            added = await fill(MANY_PETS, lambda _: create(writer, REX))
            for reader in readers:
                assert {*added} <= {*await reader.list_pets(PetQuery(0, 9999))}
                await check_shown(reader, added[-1])
            # A read that is made together with writes, of which the last ones take long to commit.
            long = NewPet(self.long_name(400_000), 7)
            writes = [asyncio.create_task(create(writer, REX)) for _ in range(20)]
            reading = asyncio.create_task(writer.list_pets(PetQuery(0, 9999)))
            writes += [asyncio.create_task(create(writer, long)) for _ in range(20)]
            shown = {*await reading}
            for reader in readers:
                assert shown <= {*await reader.list_pets(PetQuery(0, 9999))}, "not yet committed"

            async def write_and_read() -> None:  # what others are writing must not hide it
                await check_shown(readers[0], await create(readers[1], REX))
                order = await place_at(readers[1], AT)
                await check_shown(readers[0], order)
                updated = await readers[1].update_order(order.id, OrderStatus.COMPLETED)
                await check_shown(readers[0], updated)

            await watch(lambda: asyncio.gather(*writes), [write_and_read] * READERS)
            _, missing = await open_while_writing(location)
            assert not missing
            await writer.create_pet(REX, make_token("expired", REX, PAST))  # by whoever reads it
            for access in Access:
                pet = await create(writer, REX)
                async with location.open(Expected(access=access)) as closed:
                    await view(closed, [pet.id])
                    await check_shown(closed, pet)
                    order_id = (await writer.place_order(pet.id, AT)).id
                    await check_shown(closed, replace(pet, status=PetStatus.PENDING))
                    await writer.update_order(order_id, OrderStatus.COMPLETED)  # closing keeps it
            await check_agreement(writer)

    @location_clause("shared-ids", needs="shared")
    async def test_two_repositories_assign_no_id_twice(self, location: Location) -> None:
        """Each repository has its own counter, or ids that it has reserved before a restore."""
        async with location.new() as new, AsyncExitStack() as stack:  # all are the first to open it
            several = [stack.enter_async_context(new.open()) for _ in range(17)]
            await create_at_once(await asyncio.gather(*several), 5)
        async with location.open() as one, location.open() as other:
            handles = [handle for _ in range(MANY_IDS) for handle in (one, other)]
            pet_ids = await fill(len(handles), lambda n: add_pet(handles[n]))
            assert len(set(pet_ids)) == len(pet_ids), "an id is assigned twice"
            listed = await one.list_pets(PetQuery(0, 9999))
            assert await other.list_pets(PetQuery(0, 9999)) == listed
            assert {pet.id for pet in listed} == set(pet_ids)
            placed = await fill(len(pet_ids), lambda n: place_at(handles[n], AT, pet_ids[n]))
            orders = {order.id for order in placed}
            assert len(orders) == len(placed), "the id of an order is assigned twice"
            for number in range(2):  # at first, no id may be left of those that it had reserved
                (order,) = await place_orders(other)
                id_ = max(order.id, order.pet_id, *orders) + 1000
                given = order, *pet_and_order(id_)  # it has not read the first one
                again = replace(order, id=id_ + number)
                await (refuse(one, ConflictError, *given, again) if number else one.restore(given))
                (order,) = await place_orders(other)
                assert min(order.id, order.pet_id) > id_, "it uses ids that it had reserved"
        items, _ = await open_while_writing(location)
        assert len({(type(item), item.id) for item in items}) == len(items), "an id is used twice"

    @location_clause("shared-orders", needs="shared")
    async def test_two_repositories_order_no_pet_twice(self, location: Location) -> None:
        """One repository checks the pet, and the other changes it before the first one writes."""
        async with location.open() as one, location.open() as other:
            length, _ = await measure(one.create_pet(REX))
            for number in await sample(one, range(12)):
                first, second = handles = (one, other) if number % 2 else (other, one)
                creates = (  # some at the same time, and some may meet on the way
                    write_once(handles, REX, f"create {number} {n}", length, number * (n % 2))
                    for n in range(5)
                )
                pet_id, *_ = await asyncio.gather(*creates)
                await write_once(handles, await add_pet(first), f"order {number}", length, number)
                await self._refuse_then_place(first, second, pet_id)
                await asyncio.gather(*(each.get_pet(pet_id) for each in handles))  # it will change
                await sell_once(first, second, pet_id, begin_with_token=number % 4 < 2)
                await status_of(other, pet_id)
            await check_agreement(other)
            token = make_token("elsewhere", REX)
            stored = await one.create_pet(REX, token)
            # A replay through another handle does not prolong the record.
            later = replace(token, now=token.until - 1, until=token.until + 100)
            assert await other.create_pet(REX, later) == replace(stored, replayed=True)
            renewed = await other.create_pet(REX, replace(later, now=token.until))
            assert not renewed.replayed
            assert await one.create_pet(REX, token) == replace(renewed, replayed=True)

    async def _refuse_then_place(self, one: Repository, other: Repository, pet_id: int) -> None:
        """Refuse to order a pet with a token; then order it with that, and replay the order."""
        token = make_token(f"refused {pet_id}", pet_id)
        before = await one.place_order(pet_id, AT)
        for handle in (one, other):
            for given in (token, None):
                with pytest.raises(ConflictError):
                    await handle.place_order(pet_id, AT, given)
        await one.get_order(before.id)
        await other.update_order(before.id, OrderStatus.CANCELLED)
        with pytest.raises(ConflictError):
            await one.update_order(before.id, OrderStatus.COMPLETED)
        placed = await one.place_order(pet_id, AT, token)
        assert not placed.replayed
        await one.update_order(placed.id, OrderStatus.CANCELLED)
        for handle in (one, other):
            assert await handle.place_order(pet_id, AT, token) == replace(placed, replayed=True)
            free_id = (await handle.place_order(pet_id, AT)).id
            await other.update_order(free_id, OrderStatus.CANCELLED)
