"""Clauses of shared backends: a location that is opened several times."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

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
    place_orders,
    status_of,
)
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.model.calls import kind, measure, one_effect, read_all, sample
from petstore_conformance.model.values import AT, REX, make_token


async def sell_once(handles: tuple[Repository, Repository], pet_id: int, turn: int) -> Order:
    """Order a pet through both, with a token and without; then complete and cancel at once.

    turn -- if it is odd, the second handle and the calls without a token come first
    """
    token, step = make_token(f"sell {pet_id}", pet_id), 1 - turn % 2 * 2
    placings = [handle.place_order(pet_id, AT, token) for handle in handles * 2]
    placings += [handle.place_order(pet_id, AT) for handle in handles * 2]
    results = await asyncio.gather(*placings[::step], return_exceptions=True)
    assert {kind(result) for result in results} == {Receipt, ConflictError}, results
    order_id = one_effect(results)
    updates = [
        handle.update_order(order_id, status)
        for handle, status in zip(handles, FINAL_STATUSES, strict=True)
    ]
    updated = await asyncio.gather(*updates[::step], return_exceptions=True)
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
        async with location.open() as one, location.open() as two, location.open() as three:
            handles, last = (one, two, three), 0
            for number, _ in enumerate(await sample(one, range(7)), start=1):
                writer, *readers = (*handles[number % 3 :], *handles[: number % 3])
                for reader in readers:  # it has read all that is going to change
                    for id_ in range(last + 1, min(last + 4, MAX_ID)):
                        await reader.get_pet(id_)
                        await reader.get_order(id_)
                        await reader.list_pets(PetQuery(id_ - 1, 1))
                    await self._read(reader, 0, 0)
                    await reader.list_pets(PetQuery(0, 1 + number % 3))  # a full page, or not
                receipt = await writer.create_pet(NewPet(f"{number}", 7, PetStatus.AVAILABLE))
                pet = Pet(receipt.id, f"{number}", 7, PetStatus.AVAILABLE)
                for handle in handles:
                    assert (await self._read(handle, pet.id, 0))[0] == pet
                order_id = (await writer.place_order(pet.id, AT)).id
                last = max(pet.id, order_id)
                order = Order(order_id, pet.id, OrderStatus.PLACED, AT)
                for status in (OrderStatus.PLACED, FINAL_STATUSES[number % 2]):
                    updater = handles[number // 3 % 3]
                    order = await updater.update_order(order.id, status)
                    pet = replace(pet, status=PET_STATUS_BY_ORDER[status])
                    for handle in handles:
                        assert await self._read(handle, pet.id, order.id) == (pet, order)
            await self._fill_gaps(handles)
            await self._write_many(handles)
            await self._open_beside_writes(location, one, two)
            lower, higher = sorted([await add_pet(one), await add_pet(one)])
            await three.list_pets(PetQuery(lower - 1, 1))  # it may read the page after it, too
            await two.place_order(higher, AT)
            (next_pet,) = await three.list_pets(PetQuery(lower, 1))
            assert next_pet.id != higher or next_pet.status is PetStatus.PENDING
            first, second = await place_orders(one, 2)
            await three.list_orders(OrderQuery(first.id - 1, 1))
            done = await two.update_order(second.id, OrderStatus.COMPLETED)
            (next_order,) = await three.list_orders(OrderQuery(first.id, 1))
            assert next_order.id != done.id or next_order == done
            async with location.open() as reader:  # closing it brings nothing back that it has read
                pet_id = await add_pet(one)
                await self._read(reader, pet_id, order.id)
                order_id = (await two.place_order(pet_id, AT)).id
            found, placed = await self._read(one, pet_id, order_id)
            assert found is not None
            assert found.status is PetStatus.PENDING
            assert placed == Order(order_id, pet_id, OrderStatus.PLACED, AT)

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

    async def _fill_gaps(self, handles: Sequence[Repository]) -> None:
        """Restore pets and orders in descending id; all handles have read that there are none."""
        stored = await read_all(handles[0])
        last = max(stored.pets[-1].id, stored.orders[-1].id)
        ids = (last + 20, last + 10, last + 5) if last < MAX_ID - 20 else ()
        for id_ in await sample(handles[0], ids):
            pet = Pet(id_, "restored", 7, PetStatus.AVAILABLE)
            order = Order(id_, id_, OrderStatus.CANCELLED, AT)
            for restored in (False, True):
                if restored:
                    await handles[id_ % 3].restore([pet, order])
                for handle in handles:
                    found = await handle.get_pet(id_), await handle.get_order(id_)
                    assert found == ((pet, order) if restored else (None, None))
                    for count in (1, 2, 99):
                        pets = await handle.list_pets(PetQuery(last, count))
                        orders = await handle.list_orders(OrderQuery(last, count))
                        assert (pet in pets[:1], order in orders[:1]) == (restored, restored)

    async def _read(
        self, repository: Repository, pet_id: int, order_id: int
    ) -> tuple[Pet | None, Order | None]:
        """Read a pet and an order, and every list; return both after checking that all agree.

        All at once: during any of these reads, a cache may hear of what others have written. Both
        are read again after that, so that they are in the cache when others write the next time.
        """
        queries = [PetQuery(0, 999, status) for status in (None, *PetStatus)]
        order_queries = [OrderQuery(0, 999, status) for status in (None, *OrderStatus)]
        pages = [PetQuery(max(pet_id - 1, 0), 1), PetQuery(0, 1), PetQuery(0, 3)]
        reads: list[Coroutine[Any, Any, Any]] = [
            repository.get_pet(pet_id or 1),
            repository.get_order(order_id or 1),
            *(repository.list_pets(query) for query in (*pages, *queries)),
            *(repository.list_orders(query) for query in order_queries),
        ]
        pet, order, page, _, _, *lists = await asyncio.gather(*reads)
        assert pet is None or page == [pet]
        for query, listed in zip(queries, lists, strict=False):
            assert pet is None or (pet in listed) == (query.status in (None, pet.status))
        for order_query, orders in zip(order_queries, lists[len(queries) :], strict=True):
            expected = order is not None and order_query.status in (None, order.status)
            assert order is None or (order in orders) == expected
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
            await self._create_together(set(), *handles)
            for handle in handles:
                assert len(await handle.list_pets(PetQuery(0, 99))) == 5 * len(handles)
        async with location.open() as one, location.open() as other:
            numbers = await sample(one, range(1009), together=True)
            creates = [
                repository.create_pet(NewPet(f"{number}", number))
                for number in numbers  # each may reserve ids in blocks
                for repository in (one, other)
            ]
            receipts = await asyncio.gather(*creates)
            assert len({receipt.id for receipt in receipts}) == len(creates)
            listed = await one.list_pets(PetQuery(0, 9999))
            assert await other.list_pets(PetQuery(0, 9999)) == listed
            assert {pet.id for pet in listed} == {receipt.id for receipt in receipts}
            (order,) = await place_orders(other)
            id_ = max(listed[-1].id, order.id) + 1000
            cancelled = Order(id_, id_, OrderStatus.CANCELLED, AT)
            await one.restore([Pet(id_, "Rex", 7), cancelled])
            (order,) = await place_orders(other)
            assert min(order.id, order.pet_id) > id_, "it uses ids that it had reserved"
        seen = set[int]()
        async with AsyncExitStack() as stack:
            one = await stack.enter_async_context(location.open())
            async with location.open() as other:
                for _ in range(5):  # each time after the last one was closed
                    async with location.open() as third:
                        await self._create_together(seen, one, other, third)
                await stack.aclose()
                for _ in range(3):  # after the first one was closed
                    async with location.open() as third:
                        await self._create_together(seen, other, third)
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

    async def _create_together(self, seen: set[int], *handles: Repository) -> None:
        """Create pets at once; none gets an id that was seen before, and each is seen then."""
        creates = [handle.create_pet(REX) for handle in handles * 5]
        before = len(seen)
        seen |= {receipt.id for receipt in await asyncio.gather(*creates)}
        assert len(seen) == before + len(creates), "an id is assigned twice"

    @location_clause("shared-orders", needs="shared")
    async def test_two_repositories_order_no_pet_twice(self, location: Location) -> None:
        """One repository checks the pet, and the other changes it before the first one writes."""
        async with location.open() as one, location.open() as other:
            for number in await sample(one, range(12)):
                pet_id = await add_pet(one)
                await self._refuse_then_place((one, other), pet_id, f"refused {number}")
                for handle in (one, other):  # it has read what is going to change
                    await handle.get_pet(pet_id)
                await sell_once((one, other), pet_id, number)
                status = await status_of(other, pet_id)
                for handle in (one, other):
                    with suppress(ConflictError):
                        again = await handle.place_order(pet_id, AT)
                        assert status is PetStatus.AVAILABLE
                        await handle.update_order(again.id, OrderStatus.CANCELLED)
                        continue
                    assert status is PetStatus.SOLD
                token = make_token(f"create {number}", REX)
                created = await asyncio.gather(*(r.create_pet(REX, token) for r in (one, other)))
                one_effect(created)
            await check_agreement(other)
            await self._retry_after_closing(location, one, other)
            await self._expire_elsewhere(one, other)

    async def _retry_after_closing(
        self, location: Location, one: Repository, other: Repository
    ) -> None:
        """Close a handle while others have written; no record of any of them is lost."""
        tokens = [make_token(f"closing {number}", REX) for number in range(3)]
        async with location.open() as third:
            handles = (third, one, other)
            pairs = zip(handles, tokens, strict=True)
            receipts = [await handle.create_pet(REX, token) for handle, token in pairs]
        for handle in (one, other):
            again = [await handle.create_pet(REX, token) for token in tokens]
            assert again == [Receipt(receipt.id, replayed=True) for receipt in receipts]

    async def _expire_elsewhere(self, one: Repository, other: Repository) -> None:
        """Replay through another handle, which does not prolong the record."""
        token = make_token("elsewhere", REX)
        first = await one.create_pet(REX, token)
        later = replace(token, now=token.until - 1, until=token.until + 100)
        assert await other.create_pet(REX, later) == replace(first, replayed=True)
        expired = replace(later, now=token.until)
        assert not (await other.create_pet(REX, expired)).replayed

    async def _refuse_then_place(
        self, handles: Sequence[Repository], pet_id: int, name: str
    ) -> None:
        """Refuse to order a pet with a token; then order it with that, through either handle."""
        token = make_token(name, pet_id)
        first = await handles[0].place_order(pet_id, AT)
        for handle in handles:
            for other in (token, None):
                with pytest.raises(ConflictError):
                    await handle.place_order(pet_id, AT, other)
        await handles[0].get_order(first.id)
        await handles[1].update_order(first.id, OrderStatus.CANCELLED)
        with pytest.raises(ConflictError):
            await handles[0].update_order(first.id, OrderStatus.COMPLETED)
        placed = await handles[pet_id % 2].place_order(pet_id, AT, token)
        assert not placed.replayed
        for handle in handles:
            await handles[0].update_order(placed.id, OrderStatus.CANCELLED)
            again = await handle.place_order(pet_id, AT, token)
            assert again == replace(placed, replayed=True)
            free = await handle.place_order(pet_id, AT)
            await handles[1].update_order(free.id, OrderStatus.CANCELLED)
