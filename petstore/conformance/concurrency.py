"""Clauses of overlapping calls and of cancelled calls."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from math import inf
from typing import Any

from msgspec import Struct

from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import AT, add_pet, check_agreement, place_orders
from petstore.contract import (
    PET_STATUS_BY_ORDER,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Repository,
)

CANCEL_SECONDS = 5.0
"""How long a cancelled call may take to end."""


class ConcurrencyClauses(Kit):
    """Clauses of all methods of `Repository`."""

    @clause("overlapping-calls")
    async def test_hundreds_of_calls_may_overlap(self, repository: Repository) -> None:
        """A check and its change are not atomic, or calls disturb each other on one connection."""
        creates = [
            repository.create_pet(NewPet(f"{number}", number, PetStatus.SOLD))
            for number in range(300)
        ]
        reads = [repository.list_pets(0, 400, PetStatus.SOLD) for _ in range(30)]
        receipts, pages = await asyncio.gather(asyncio.gather(*creates), asyncio.gather(*reads))
        expected = {
            receipt.id: Pet(receipt.id, f"{number}", number, PetStatus.SOLD)
            for number, receipt in enumerate(receipts)
        }
        assert len(expected) == 300
        for page in pages:
            assert all(expected[pet.id] == pet for pet in page)
            assert len({pet.id for pet in page}) == len(page)
        assert {pet.id: pet for pet in await repository.list_pets(0, 400, None)} == expected
        found = await asyncio.gather(*(repository.get_pet(pet_id) for pet_id in expected))
        assert list(found) == list(expected.values())

    @clause("read-after-write")
    async def test_a_read_sees_every_write_that_has_returned(self, repository: Repository) -> None:
        """Reads go to a replica that lags, or a write is acknowledged before it takes effect."""

        async def write_and_read(number: int) -> None:
            status = list(PetStatus)[number % 3]
            receipt = await repository.create_pet(NewPet(f"{number}", number, status))
            pet = Pet(receipt.id, f"{number}", number, status)
            assert await repository.get_pet(receipt.id) == pet
            assert list(await repository.list_pets(receipt.id - 1, 1, None)) == [pet]
            assert list(await repository.list_pets(receipt.id - 1, 1, status)) == [pet]
            if status is PetStatus.AVAILABLE:
                placed = await repository.place_order(receipt.id, AT)
                order = Order(placed.id, receipt.id, OrderStatus.PLACED, AT)
                assert await repository.get_order(placed.id) == order
                assert list(await repository.list_orders(placed.id - 1, 1, None)) == [order]
                done = await repository.update_order(placed.id, OrderStatus.COMPLETED)
                assert await repository.get_order(placed.id) == done
                assert list(await repository.list_orders(placed.id - 1, 1, done.status)) == [done]

        for number in range(20):
            await write_and_read(number)
        await asyncio.gather(*(write_and_read(number) for number in range(100)))

    @clause("page-overlap")
    async def test_a_page_shows_what_was_stored_during_the_call(
        self, repository: Repository
    ) -> None:
        """A page is read by offset, or its items are read after they were selected."""
        moments, pages = count(1), list[Page]()
        pets, orders = Changes(), Changes()
        ids = sorted([await add_pet(repository) for _ in range(30)])
        for pet_id in ids:
            pets.of[pet_id].append((PetStatus.AVAILABLE, 0, 0))

        async def sell(pet_id: int) -> None:
            for status in (OrderStatus.CANCELLED, OrderStatus.CANCELLED, OrderStatus.COMPLETED):
                begun = next(moments)
                receipt = await repository.place_order(pet_id, AT)
                ended = next(moments)
                pets.of[pet_id].append((PetStatus.PENDING, begun, ended))
                orders.of[receipt.id].append((OrderStatus.PLACED, begun, ended))
                begun = next(moments)
                await repository.update_order(receipt.id, status)
                ended = next(moments)
                pets.of[pet_id].append((PET_STATUS_BY_ORDER[status], begun, ended))
                orders.of[receipt.id].append((status, begun, ended))

        async def read(after: int, most: int) -> None:
            while not all(task.done() for task in selling):
                await asyncio.sleep(0)  # a repository in memory may never wait
                for pet_status in (None, *PetStatus):
                    begun = next(moments)
                    found = await repository.list_pets(after, most, pet_status)
                    pages.append(Page(pets, after, most, pet_status, found, begun, next(moments)))
                for order_status in (None, *OrderStatus):
                    begun = next(moments)
                    listed = await repository.list_orders(after, most, order_status)
                    page = Page(orders, after, most, order_status, listed, begun, next(moments))
                    pages.append(page)

        selling = [asyncio.create_task(sell(pet_id)) for pet_id in ids[::2]]  # the others stay
        await asyncio.gather(read(0, 100), read(ids[5], 4), *selling)
        for page in pages:
            page.check()

    @clause("cancelled-write")
    async def test_a_cancelled_write_takes_effect_completely_or_not_at_all(
        self, repository: Repository
    ) -> None:
        """A pet and its index entry, or a pet and its order, are stored in two steps."""
        for turns in range(12):
            writes = [
                asyncio.create_task(repository.create_pet(NewPet(f"{n}", n, PetStatus.SOLD)))
                for n in range(5)
            ]
            await cancel_after(turns, writes)
        await repository.create_pet(NewPet("last", 1, PetStatus.SOLD))  # after those in flight
        listed = {pet.id: pet for pet in await repository.list_pets(0, 100, None)}
        sold = {pet.id: pet for pet in await repository.list_pets(0, 100, PetStatus.SOLD)}
        assert listed == sold
        for pet_id, pet in listed.items():
            assert await repository.get_pet(pet_id) == pet
        for turns in range(12):
            pet_id, (placed,) = await add_pet(repository), await place_orders(repository)
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(repository.place_order(pet_id, AT)),
                asyncio.create_task(repository.update_order(placed.id, OrderStatus.CANCELLED)),
            ]
            await cancel_after(turns, tasks)
        await add_pet(repository)
        await check_agreement(repository)
        ordered = {order.pet_id for order in await repository.list_orders(0, 99, None)}
        for pet in await repository.list_pets(0, 999, PetStatus.PENDING):
            assert pet.id in ordered, "a pet is pending, but in no order"

    @clause("cancellation")
    async def test_a_cancelled_call_raises_cancelled_error(self, repository: Repository) -> None:
        """A bare except or a retry loop swallows CancelledError, and the call continues."""
        for turns in range(12):
            calls: list[asyncio.Task[Any]] = [
                asyncio.create_task(repository.create_pet(NewPet("Rex", 7))),
                asyncio.create_task(repository.list_pets(0, 20, None)),
                asyncio.create_task(repository.get_pet(1)),
            ]
            ended_before = await cancel_after(turns, calls)
            assert [call.cancelled() for call in calls] == [not done for done in ended_before]

    @clause("after-cancellation")
    async def test_a_cancelled_call_disturbs_no_other_call(self, repository: Repository) -> None:
        """A lock is not released, or a connection is reused with an unread reply in it."""
        for turns in range(12):
            calls: list[asyncio.Task[Any]] = [
                asyncio.create_task(repository.create_pet(NewPet("cancelled", 7)))
            ]
            others = [
                asyncio.create_task(repository.create_pet(NewPet(f"{n}", n))) for n in range(5)
            ]
            calls.append(asyncio.create_task(repository.create_pet(NewPet("cancelled", 7))))
            calls.append(asyncio.create_task(repository.list_pets(0, 20, None)))
            await cancel_after(turns, calls)
            async with asyncio.timeout(CANCEL_SECONDS):
                receipts = await asyncio.gather(*others)
                for number, receipt in enumerate(receipts):
                    pet = Pet(receipt.id, f"{number}", number)
                    assert await repository.get_pet(receipt.id) == pet


class Changes:
    """The statuses of pets or orders by id: each with the moments around the call that set it."""

    def __init__(self) -> None:
        self.of = defaultdict[int, list[tuple[str, float, float]]](list)

    def possible(self, id_: int, begin: float, end: float) -> set[str]:
        """Return the statuses that it may have had at some moment between these."""
        changes = self.of[id_]
        gone = [*(ended for _, _, ended in changes[1:]), inf]
        return {
            status
            for (status, begun, _), until in zip(changes, gone, strict=False)
            if begun <= end and until >= begin
        }

    def certain(self, id_: int, begin: float, end: float) -> set[str]:
        """Return the status that it had at all moments between these, if it is known."""
        changes = self.of[id_]
        going = [*(begun for _, begun, _ in changes[1:]), inf]
        return {
            status
            for (status, _, ended), until in zip(changes, going, strict=False)
            if ended <= begin and until >= end
        }


class Page(Struct):
    """What a call returned, and the moments around it."""

    changes: Changes
    after: int
    most: int
    status: str | None
    items: Sequence[Pet | Order]
    begin: float
    end: float

    def check(self) -> None:
        """Check that all items are in a state of the call, and none is missing."""
        for item in self.items:
            assert self.status in (None, item.status)
            assert item.status in self.changes.possible(item.id, self.begin, self.end)
        full = len(self.items) == self.most
        last = self.items[-1].id if full else inf
        shown = {item.id for item in self.items}
        for id_, changes in list(self.changes.of.items()):
            if self.status is None:
                matched = changes[0][2] <= self.begin
            else:
                matched = self.status in self.changes.certain(id_, self.begin, self.end)
            assert id_ in shown or not (matched and self.after < id_ <= last), "an item is missing"


async def cancel_after(turns: int, calls: Sequence["asyncio.Task[Any]"]) -> list[bool]:
    """Cancel calls after some turns of the event loop; return for each whether it had ended."""
    for _ in range(turns):
        await asyncio.sleep(0)
    done = [call.done() for call in calls]
    for call in calls:
        call.cancel()
    with suppress(TimeoutError):
        await asyncio.wait(calls, timeout=CANCEL_SECONDS)
    assert all(call.done() for call in calls), "a cancelled call has not ended"
    return done
