"""Clauses of shared backends: a location that is opened several times."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import repeat
from typing import Any, Final

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
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
    status_of,
)
from petstore_conformance.clauses.records import read_records, record_of
from petstore_conformance.clauses.restore import pet_and_order
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.model.calls import (
    created,
    every_filter,
    kind,
    measure,
    one_effect,
    read_all,
    read_page,
    sample,
)
from petstore_conformance.model.model import Payload, send
from petstore_conformance.model.values import AT, REX, make_token

PAGE_SIZES: Final = (1, 2, 99)
"""A page that one item fills, one that has an item more, and one that ends early."""


MANY_IDS: Final = 1009
"""More than a repository reserves in a block."""


async def write_once(
    handles: Sequence[Repository], payload: Payload, name: str, delay: float = 0
) -> int:
    """Make one write with one token through every handle, twice each; return its id.

    delay -- how many seconds before the next handle the calls of each one begin
    """
    token, writes = make_token(name, payload), list[asyncio.Task[Receipt]]()
    for handle in handles:
        writes += [asyncio.create_task(send(handle, payload, token)) for _ in range(2)]
        if delay:
            await asyncio.sleep(delay)
    return one_effect(await asyncio.gather(*writes))


async def sell_once(
    first: Repository, second: Repository, pet_id: int, *, begin_with_token: bool = True
) -> Order:
    """Order a pet through both handles at once; then complete and cancel that order at once.

    Each handle orders twice with the same token and twice without one. The calls of the first
    handle begin first. Returns the order as it is after that.

    begin_with_token -- whether each handle's first call has the token: then they are one write
    """
    handles, token = (first, second), make_token(f"sell {pet_id}", pet_id)
    in_turn = (token, None) if begin_with_token else (None, token)
    placings = [
        handle.place_order(pet_id, AT, given)
        for handle in handles
        for given in (*in_turn, *in_turn)
    ]
    results = await asyncio.gather(*placings, return_exceptions=True)
    assert {kind(result) for result in results} == {Receipt, ConflictError}, results
    order_id = one_effect(results)
    updated = await asyncio.gather(
        first.update_order(order_id, OrderStatus.COMPLETED),
        second.update_order(order_id, OrderStatus.CANCELLED),
        return_exceptions=True,
    )
    assert {kind(result) for result in updated} == {Order, ConflictError}, updated
    (order,) = [result for result in updated if isinstance(result, Order)]
    return order


class SharingClauses(Kit):
    """Clauses of backends that claim to be shared."""

    @location_clause("shared-reads", needs="shared")
    async def test_each_repository_sees_what_the_other_has_written(
        self, location: Location
    ) -> None:
        """Each repository reads from its own copy or cache."""
        async with location.open_several(3) as handles:
            for number in await sample(handles[0], range(7)):
                await self._sell_and_read(handles, number)
            await self._restore_below(handles)
            await self._write_many(handles)
            await self._open_beside_writes(location, *handles[:2])
            await self._close_after_reading(location, *handles[:2])

    async def _sell_and_read(self, handles: Sequence[Repository], number: int) -> None:
        """Create, order and sell or release a pet; every handle sees each step.

        number -- determines which handle writes, which one updates, and how the order ends
        """
        writer, updater = handles[number % 3], handles[number // 3 % 3]
        new = NewPet(f"{number}", 7, PetStatus.AVAILABLE)
        pet = created((await writer.create_pet(new)).id, new)
        for handle in handles:  # it has read what is going to change
            assert (await self._read(handle, pet.id, 0))[0] == pet
        token = make_token(f"place {number}", pet.id)
        order_id = (await writer.place_order(pet.id, AT, token)).id
        for handle in handles:
            assert record_of(token, order_id) in await read_records(handle, 99)
        for status in (OrderStatus.PLACED, FINAL_STATUSES[number % 2]):
            order = await updater.update_order(order_id, status)
            assert order == Order(order_id, pet.id, status, AT)
            pet = replace(pet, status=PET_STATUS_BY_ORDER[status])
            for handle in handles:
                assert await self._read(handle, pet.id, order_id) == (pet, order)
        # the ids that may come next: that they are absent may be cached
        for id_ in range(max(pet.id, order_id) + 1, min(max(pet.id, order_id) + 4, MAX_ID)):
            found = {(await handle.get_pet(id_), await handle.get_order(id_)) for handle in handles}
            assert len(found) == 1, found

    async def _restore_below(self, handles: Sequence[Repository]) -> None:
        """Restore pets and orders, each below the one before; all have read that it was absent.

        So each belongs on pages that were full, and that a handle may have kept.
        """
        last = (await read_all(handles[0])).highest_id
        ids = (last + 20, last + 10, last + 5) if last < MAX_ID - 20 else ()
        for handle, id_ in await sample(handles[0], list(zip(handles, ids, strict=False))):
            pet, order = pet_and_order(id_)
            for reader in handles:
                await self._read_next(reader, last, id_)
            await handle.restore([pet, order])
            for reader in handles:
                assert await self._read_next(reader, last, id_) == (pet, order)

    async def _read_next(self, reader: Repository, last: int, id_: int) -> tuple[Any, Any]:
        """Read what has an id, and what is first on pages after the last one, where it belongs."""
        found = await reader.get_pet(id_), await reader.get_order(id_)
        for count in PAGE_SIZES:
            pets = await reader.list_pets(PetQuery(last, count))
            orders = await reader.list_orders(OrderQuery(last, count))
            assert found == (None, None) or (pets[0], orders[0]) == found
        return found

    async def _write_many(self, handles: Sequence[Repository]) -> None:
        """Write many pets through one handle; the others see them all."""
        stored = await read_all(handles[0])
        ids = [pet.id for pet in stored.pets]
        some = await sample(handles[0], range(100), together=True)
        for _ in await sample(handles[0], range(7)):
            receipts = await asyncio.gather(*(handles[0].create_pet(REX) for _ in some))
            ids += [receipt.id for receipt in receipts]
            for handle in handles[1:]:
                listed = await handle.list_pets(PetQuery(0, 9999))
                assert [pet.id for pet in listed] == sorted(ids)
                assert await handle.get_pet(listed[-1].id) == listed[-1]
                assert await handle.get_pet(ids[-1]) in listed

    async def _open_beside_writes(
        self, location: Location, writer: Repository, reader: Repository
    ) -> None:
        """Open the location while writes are in flight, which take effect all the same."""
        length, _ = await measure(writer.create_pet(REX))
        for tenth in await sample(writer, range(0, 10, 2)):
            pet_id, (first, second) = await add_pet(writer), await place_orders(writer, 2)
            writes = asyncio.gather(
                writer.create_pet(REX),
                writer.place_order(pet_id, AT),
                writer.update_order(first.id, OrderStatus.COMPLETED),
                writer.update_order(second.id, OrderStatus.CANCELLED),
            )
            await length.wait(tenth)
            async with location.open():
                created, placed, *updated = await writes
            stored = await read_all(reader)
            statuses = {pet.id: pet.status for pet in stored.pets}
            assert statuses.get(created.id) is PetStatus.AVAILABLE
            for order in (Order(placed.id, pet_id, OrderStatus.PLACED, AT), *updated):
                assert order in stored.orders
                assert statuses.get(order.pet_id) is PET_STATUS_BY_ORDER[order.status]

    async def _close_after_reading(
        self, location: Location, reader: Repository, writer: Repository
    ) -> None:
        """Close a handle after others have changed what it has read: nothing comes back."""
        pet_id = await add_pet(reader)
        async with location.open() as closed:
            await self._read(closed, pet_id, 0)
            order_id = (await writer.place_order(pet_id, AT)).id
        pet, order = await self._read(reader, pet_id, order_id)
        assert pet is not None
        assert pet.status is PetStatus.PENDING
        assert order == Order(order_id, pet_id, OrderStatus.PLACED, AT)

    async def _read(
        self, repository: Repository, pet_id: int, order_id: int
    ) -> tuple[Pet | None, Order | None]:
        """Read a pet and an order, and every list; return both after checking that all agree.

        All at once: during any of these reads, a cache may hear of what others have written. Both
        are read again after that, so that they are in the cache when others write the next time.
        """
        queries = every_filter(0, 999)
        pages = (PetQuery(max(pet_id - 1, 0), 1), PetQuery(0, 1), PetQuery(0, 3))
        reads = (read_page(repository, query) for query in (*queries, *pages))
        pet, order, *lists = await asyncio.gather(
            repository.get_pet(pet_id or 1), repository.get_order(order_id or 1), *reads
        )
        for query, listed in zip(queries, lists, strict=False):
            item: Any = pet if isinstance(query, PetQuery) else order
            assert item is None or (item in listed) == (query.status in (None, item.status))
        assert await repository.get_pet(pet_id or 1) == pet
        assert await repository.get_order(order_id or 1) == order
        return pet, order

    @location_clause("shared-ids", needs="shared")
    async def test_two_repositories_assign_no_id_twice(self, location: Location) -> None:
        """Each repository has its own counter."""
        async with AsyncExitStack() as stack:  # all are the first to open a location
            new = await stack.enter_async_context(location.new())
            several = [stack.enter_async_context(new.open()) for _ in range(17)]
            handles = await asyncio.gather(*several)
            creates = [handle.create_pet(REX) for handle in handles for _ in range(5)]
            ids = {receipt.id for receipt in await asyncio.gather(*creates)}
            assert len(ids) == len(creates), "an id is assigned twice"
            for handle in handles:
                assert {pet.id for pet in await handle.list_pets(PetQuery(0, 99))} == ids
        async with location.open() as one, location.open() as other:
            numbers = await sample(one, range(MANY_IDS), together=True)
            handles = [handle for _ in numbers for handle in (one, other)]
            pet_ids = await asyncio.gather(*(add_pet(handle) for handle in handles))
            assert len(set(pet_ids)) == len(pet_ids), "an id is assigned twice"
            listed = await one.list_pets(PetQuery(0, 9999))
            assert await other.list_pets(PetQuery(0, 9999)) == listed
            assert {pet.id for pet in listed} == set(pet_ids)
            placings = map(place_at, handles, repeat(AT), pet_ids)
            orders = {order.id for order in await asyncio.gather(*placings)}
            assert len(orders) == len(pet_ids), "the id of an order is assigned twice"
            (order,) = await place_orders(other)
            id_ = max(order.id, order.pet_id, *orders) + 1000
            cancelled = Order(id_, id_, OrderStatus.CANCELLED, AT)
            await one.restore([Pet(id_, "Rex", 7), cancelled])
            (order,) = await place_orders(other)
            assert min(order.id, order.pet_id) > id_, "it uses ids that it had reserved"
        async with location.open() as one:
            await self._open_while_creating(location, one)

    async def _open_while_creating(self, location: Location, writer: Repository) -> None:
        """Open the location several times, while ids are being assigned by another handle."""
        ids, opening = list[int](), True

        async def create(repository: Repository) -> None:
            ids.append((await repository.create_pet(REX)).id)
            await asyncio.sleep(0 if len(ids) < 2000 else 0.001)  # less often if opening is slow

        async def create_again_and_again() -> None:
            while opening:
                await create(writer)

        creating = [asyncio.create_task(create_again_and_again()) for _ in range(5)]
        for _ in range(3):
            async with location.open() as other:
                await asyncio.gather(*(create(other) for _ in range(5)))
        opening = False
        await asyncio.gather(*creating)
        assert len(set(ids)) == len(ids), "an id is assigned twice"

    @location_clause("shared-orders", needs="shared")
    async def test_two_repositories_order_no_pet_twice(self, location: Location) -> None:
        """One repository checks the pet, and the other changes it before the first one writes."""
        async with location.open() as one, location.open() as other:
            for number in await sample(one, range(12)):
                first, second = (one, other) if number % 2 else (other, one)
                pet_id = await write_once((first, second), REX, f"create {number}")
                await self._refuse_then_place(first, second, pet_id)
                for handle in (one, other):  # it has read what is going to change
                    await handle.get_pet(pet_id)
                await sell_once(first, second, pet_id, begin_with_token=number % 4 < 2)
                await status_of(other, pet_id)
            await check_agreement(other)
            await self._expire_elsewhere(one, other)

    async def _expire_elsewhere(self, one: Repository, other: Repository) -> None:
        """Replay through another handle, which does not prolong the record."""
        token = make_token("elsewhere", REX)
        first = await one.create_pet(REX, token)
        later = replace(token, now=token.until - 1, until=token.until + 100)
        assert await other.create_pet(REX, later) == replace(first, replayed=True)
        expired = replace(later, now=token.until)
        assert not (await other.create_pet(REX, expired)).replayed

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
            free = await handle.place_order(pet_id, AT)
            await other.update_order(free.id, OrderStatus.CANCELLED)
