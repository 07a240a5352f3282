"""Clauses of orders: placed, completed, cancelled, listed, and never two of one pet."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, cycle, repeat
from typing import Any

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    PET_STATUS_BY_ORDER,
    ConflictError,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    RefusedError,
    Repository,
    StorageError,
    UnavailableError,
)
from petstore_conformance.harness.effort import fill, sample
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import READERS, kind, one_effect, watch
from petstore_conformance.model.reads import (
    check_page,
    check_pages,
    check_types,
    every_filter,
    look_up,
    read_all,
    read_page,
)
from petstore_conformance.model.values import AT, MANY, TIMES, absent_ids, make_token

FINAL_STATUSES = (OrderStatus.COMPLETED, OrderStatus.CANCELLED)

WATCHED_CHANGES = 20  # how often a change is watched: the time between two transactions is short


async def add_pet(repository: Repository) -> int:
    """Add an available pet; return its id."""
    return (await repository.create_pet(NewPet("Rex", 7, PetStatus.AVAILABLE))).id


async def order_and_cancel(repository: Repository, pet_id: int) -> None:
    """Order a pet and cancel the order."""
    placed = await repository.place_order(pet_id, AT)
    await repository.update_order(placed.id, OrderStatus.CANCELLED)


async def place_orders(repository: Repository, count: int = 1) -> list[Order]:
    """Add and order `count` pets; return the orders as they must be now, in ascending id."""
    pet_ids = [await add_pet(repository) for _ in range(count)]
    orders = [  # backwards, so that an order and its pet differ in their ids
        await place_at(repository, AT + timedelta(seconds=number), pet_id)
        for number, pet_id in enumerate(reversed(pet_ids))
    ]
    return sorted(orders, key=lambda order: order.id)


async def place_at(repository: Repository, at: datetime, pet_id: int | None = None) -> Order:
    """Order a pet at this time, a new one by default; return the order as it must be now."""
    if pet_id is None:
        pet_id = await add_pet(repository)
    return Order((await repository.place_order(pet_id, at)).id, pet_id, OrderStatus.PLACED, at)


async def update_orders(repository: Repository, orders: Sequence[Order]) -> list[Order]:
    """Leave, complete and cancel orders, the last one first; return all as they must be now."""
    statuses = zip(orders, cycle(OrderStatus), strict=False)
    updated = [replace(order, status=status) for order, status in statuses]
    for order in reversed(updated):
        assert await repository.update_order(order.id, order.status) == order
    return updated


async def status_of(repository: Repository, pet_id: int) -> object:
    """Return the status of a pet, after checking that every filtered list agrees with it."""
    pet = await repository.get_pet(pet_id)
    assert pet is not None
    for status in PetStatus:
        found = await repository.list_pets(PetQuery(pet_id - 1, 1, status))
        assert (pet in found) == (pet.status == status)
    return pet.status


async def check_agreement(repository: Repository) -> None:
    """Check that no pet is in two placed or completed orders, and that its status matches.

    Every pet that is pending must be in such an order. If something changes meanwhile, because a
    cancelled write takes effect, everything is read again.
    """
    while True:
        stored = await read_all(repository)
        pages = [(query, await read_page(repository, query)) for query in every_filter(0, 9999)]
        ordered = {order.pet_id for order in stored.orders}
        single = await asyncio.gather(*map(repository.get_pet, ordered))
        if await read_all(repository) == stored:
            break
    for query, page in pages:
        assert page == stored.page(query)
        check_types(page)
    live = [order for order in stored.orders if order.status is not OrderStatus.CANCELLED]
    assert len({order.pet_id for order in live}) == len(live), "sold twice"
    expected = dict.fromkeys(ordered, PetStatus.AVAILABLE)
    expected |= {order.pet_id: PET_STATUS_BY_ORDER[order.status] for order in live}
    for pets in (single, stored.pets):
        assert {pet.id: pet.status for pet in pets if pet and pet.id in ordered} == expected
    pending = {pet.id for pet in stored.pets if pet.status is PetStatus.PENDING}
    assert pending <= ordered, "a pet is pending, but in no order"


async def check_one_step(repository: Repository, pet_id: int, status: OrderStatus) -> None:
    """Check that a pet and its order change in one step, when the order gets this status."""

    async def changed() -> list[Order]:
        listed = await repository.list_orders(OrderQuery(0, 99))
        return [order for order in listed if (order.pet_id, order.status) == (pet_id, status)]

    old = PetStatus.AVAILABLE if status is OrderStatus.PLACED else PetStatus.PENDING
    new = PET_STATUS_BY_ORDER[status]
    before, pet, after = await changed(), await repository.get_pet(pet_id), await changed()
    assert pet is not None
    assert not before or pet.status == new, "the order changes first"
    assert after or pet.status == old, "the pet changes first"
    for order in after:  # from now on, every list shows it
        assert await status_of(repository, pet_id) == new
        found, listed = await look_up(repository, order)
        shown = [(it.id, it.status) for it in (found, *listed) if it]
        assert shown == [(order.id, status)] * 2


async def sell_once(
    first: Repository, second: Repository, pet_id: int, *, begin_with_token: bool = True
) -> Order:
    """Order a pet through both handles at once; then complete and cancel that order at once.

    Each handle orders twice with the same token and twice without one. The calls of the first
    handle begin first. Returns the order as it is after that.

    begin_with_token -- whether each handle's first call has the token: then they are one write
    """
    handles, token = (first, second), make_token(f"sell {pet_id}", pet_id)
    tokens = [token, None] * 2 if begin_with_token else [None, token] * 2
    placings = [handle.place_order(pet_id, AT, each) for handle in handles for each in tokens]
    results = await asyncio.gather(*placings, return_exceptions=True)
    assert {kind(result) for result in results} == {Receipt, ConflictError}, results
    order_id = one_effect(results)
    retries = [result for result, it in zip(results, tokens * 2, strict=True) if it]
    assert len({kind(result) for result in retries}) == 1, "a retry is refused"
    updated = await asyncio.gather(
        first.update_order(order_id, OrderStatus.COMPLETED),
        second.update_order(order_id, OrderStatus.CANCELLED),
        return_exceptions=True,
    )
    assert {kind(result) for result in updated} == {Order, ConflictError}, updated
    return next(result for result in updated if isinstance(result, Order))


class OrderClauses(Kit):
    """Clauses of `place_order`, `get_order`, `list_orders` and `update_order`."""

    @clause("order-id")
    async def test_order_ids_are_in_range_and_never_repeat(self, repository: Repository) -> None:
        """The id is that of the pet, or the number of placed orders."""
        seen = []
        for status in (*FINAL_STATUSES, *FINAL_STATUSES):
            pet_id = await add_pet(repository)
            for _ in range(1 + 4 * (status is OrderStatus.CANCELLED)):
                with suppress(ConflictError):  # that it cannot be ordered again is another clause
                    receipt = await repository.place_order(pet_id, AT)
                    assert type(receipt.id) is int
                    assert 1 <= receipt.id <= MAX_ID
                    seen.append(receipt.id)
                    await repository.update_order(receipt.id, status)
        assert len(set(seen)) == len(seen)

    @clause("order-exact")
    async def test_an_order_is_returned_as_it_was_placed(self, repository: Repository) -> None:
        """The time is converted to a float, or loses its microseconds or its time zone."""
        times = await sample(repository, TIMES, together=True)
        pet_ids = await asyncio.gather(*(add_pet(repository) for _ in times))
        placing = map(place_at, repeat(repository), times, pet_ids)
        refused = (repository.place_order(-1, AT) for _ in times)
        calls = chain.from_iterable(zip(placing, refused, strict=True))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {*map(kind, results)} <= {Order, NotFoundError}  # how many: [overlapping-calls]
        orders = sorted((it for it in results if isinstance(it, Order)), key=lambda it: it.id)
        for change in (None, update_orders):  # a change must not touch the time
            orders = await change(repository, orders) if change else orders
            reads = (repository.get_order(order.id) for order in orders)
            assert await asyncio.gather(*reads) == orders
            for status in (None, *OrderStatus):
                await check_page(repository, OrderQuery(0, 999, status), orders)

    @location_clause("order-reserves")
    async def test_the_pet_of_a_placed_order_is_pending(self, location: Location) -> None:
        """Order and pet are written in two steps, or a filtered list has the old status."""
        async with location.open_several(2) as handles:
            await self._change_and_watch(handles, OrderStatus.PLACED)

    async def _change_and_watch(self, handles: Sequence[Repository], status: OrderStatus) -> int:
        """Give orders a status, and read through either handle meanwhile; return the last pet."""
        repository = handles[0]
        other = await add_pet(repository)  # so that an order and its pet differ in their ids
        changes = await sample(repository, range(WATCHED_CHANGES))
        # The writing one reads last: what it does in two steps, its own reads may wait for.
        for reader, _ in zip(cycle(reversed(handles)), changes, strict=False):
            pet_id = await add_pet(repository)
            placing = partial(repository.place_order, pet_id, AT)
            change: Callable[[], Awaitable[Receipt | Order]] = placing
            if status is not OrderStatus.PLACED:
                change = partial(repository.update_order, (await placing()).id, status)
            check = partial(check_one_step, reader, pet_id, status)
            changed = await watch(change, [check] * READERS)
            updated = Order(changed.id, pet_id, status, AT)
            assert changed in (updated, Receipt(updated.id))
            assert await repository.get_order(updated.id) == updated
            assert await status_of(repository, pet_id) is PET_STATUS_BY_ORDER[status]
        assert await status_of(repository, other) is PetStatus.AVAILABLE
        return pet_id

    @clause("order-of-nothing")
    async def test_an_absent_pet_cannot_be_ordered(self, repository: Repository) -> None:
        """The order is stored anyway, or an id out of range raises some other error."""
        pet_id = await add_pet(repository)
        outside = {0, -1, -pet_id, 2**53, 2**63 - 1, -(2**63), MAX_ID + 1}
        for bits in (31, 32, 53, 62, 63):  # what wraps at these ends up at the pet
            outside |= {pet_id - 2**bits, (pet_id + 2**bits) % 2**63}
        for absent in (*absent_ids(pet_id), *(outside - {pet_id})):
            with pytest.raises(NotFoundError):
                await repository.place_order(absent, AT)
        if not self.remote:  # at the end: no id is left after it
            with suppress(ConflictError):  # that it can be restored, another clause says
                await repository.restore([Pet(MAX_ID, "Rex", 7, PetStatus.SOLD)])
            for absent in (MAX_ID + 1, 2**63 - 1):
                with pytest.raises(StorageError) as raised:  # it may ask for an id first
                    await repository.place_order(absent, AT)
                assert not isinstance(raised.value, ConflictError | UnavailableError), raised.value
        assert await repository.list_orders(OrderQuery(0, 9)) == []
        assert await status_of(repository, pet_id) is PetStatus.AVAILABLE

    @clause("order-refused")
    async def test_only_an_available_pet_can_be_ordered(self, repository: Repository) -> None:
        """Only pending pets are refused, or a refused order is stored anyway."""
        news = [NewPet("Rex", 7), *(NewPet("Rex", 7, s) for s in PetStatus if s != "available")]
        for new in news:
            receipt = await repository.create_pet(new)
            with pytest.raises(ConflictError):
                await repository.place_order(receipt.id, AT)
            assert await status_of(repository, receipt.id) is new.status
        assert await repository.list_orders(OrderQuery(0, 9)) == []
        for order in await update_orders(repository, await place_orders(repository, 3)):
            if order.status is not OrderStatus.CANCELLED:
                for at in await sample(repository, TIMES):
                    with pytest.raises(ConflictError):
                        await repository.place_order(order.pet_id, at)
        assert len(await repository.list_orders(OrderQuery(0, 9))) == 3

    @clause("order-get")
    async def test_an_order_is_returned_in_its_current_state(self, repository: Repository) -> None:
        """Orders are looked up by the pet's id, or returned as they were when they were placed."""
        assert await repository.get_order(1) is None
        orders = await place_orders(repository, 7)
        for order in await update_orders(repository, orders):
            assert await repository.get_order(order.id) == order
        for absent in absent_ids(*(order.id for order in orders)):
            assert await repository.get_order(absent) is None

    @clause("orders-page")
    async def test_orders_are_paged_as_pets_are(self, repository: Repository) -> None:
        """Orders are sorted by pet, or pages overlap, or a page skips an order."""
        assert await repository.list_orders(OrderQuery(0, 20)) == []
        orders = await place_orders(repository, 25)
        beyond = min(orders[-1].id + 1, MAX_ID)
        ids = await sample(repository, [order.id for order in orders], reads=True)
        for after in {0, *ids, beyond, MAX_ID}:
            for count in (1, 2, 20, 500):
                await check_page(repository, OrderQuery(after, count), orders)
        orders += await fill(MANY, lambda _: place_at(repository, AT))
        orders.sort(key=lambda order: order.id)
        some = len(await sample(repository, range(60)))
        orders[:some] = updated = await update_orders(repository, orders[:some])
        await check_pages(repository, orders)
        for order in updated[:12]:
            for after, count in ((0, 1), (0, 3), (order.id, 1), (order.id, 3)):
                await check_page(repository, OrderQuery(after, count, order.status), orders)
        done = await repository.update_order(orders[-1].id, OrderStatus.COMPLETED)  # the last row
        for count in (1, 3):
            query = OrderQuery(updated[-1].id, count, done.status)
            assert await repository.list_orders(query) == [done]

    @clause("orders-status")
    async def test_a_status_selects_the_orders_that_have_it(self, repository: Repository) -> None:
        """An order stays in the index under a status that it no longer has."""
        orders = await place_orders(repository, 12)
        for change in (None, update_orders):
            orders = await change(repository, orders) if change else orders
            for status in OrderStatus:
                await check_page(repository, OrderQuery(0, 50, status), orders)

    @location_clause("order-completed")
    async def test_the_pet_of_a_completed_order_is_sold(self, location: Location) -> None:
        """Order and pet are written in two steps, or another pet is sold."""
        async with location.open_several(2) as handles:
            await self._change_and_watch(handles, OrderStatus.COMPLETED)

    @location_clause("order-cancelled")
    async def test_the_pet_of_a_cancelled_order_is_available(self, location: Location) -> None:
        """The pet stays pending, or cannot be ordered again."""
        async with location.open_several(2) as handles:
            repository, status = handles[0], OrderStatus.CANCELLED
            pet_id = await self._change_and_watch(handles, status)
            cancelled = await repository.list_orders(OrderQuery(0, 99, status))
            again = await repository.place_order(pet_id, AT)
            assert await status_of(repository, pet_id) is PetStatus.PENDING
            assert await repository.list_orders(OrderQuery(0, 99, status)) == cancelled
            for _ in await sample(repository, range(150)):
                await repository.update_order(again.id, status)
                again = await repository.place_order(pet_id, AT)
            assert await status_of(repository, pet_id) is PetStatus.PENDING

    @clause("order-same")
    async def test_setting_the_status_that_an_order_has_changes_nothing(
        self, repository: Repository
    ) -> None:
        """A repeated change is refused, or changes the pet a second time."""
        (placed,) = await place_orders(repository)
        equal = (repository.update_order(placed.id, OrderStatus.COMPLETED) for _ in range(8))
        assert await asyncio.gather(*equal) == [replace(placed, status=OrderStatus.COMPLETED)] * 8
        for order in await update_orders(repository, await place_orders(repository, 3)):
            expected = PET_STATUS_BY_ORDER[order.status]
            if order.status is OrderStatus.CANCELLED:  # its pet can be in another order by now
                again = partial(repository.update_order, order.id, order.status)
                await asyncio.gather(again(), repository.place_order(order.pet_id, AT), again())
                expected = PetStatus.PENDING
            assert await repository.update_order(order.id, order.status) == order
            assert await repository.get_order(order.id) == order
            assert await status_of(repository, order.pet_id) is expected

    @clause("order-final")
    async def test_a_completed_or_cancelled_order_is_final(self, repository: Repository) -> None:
        """A completed order can be cancelled, so that its pet can be sold a second time."""
        for order in (await update_orders(repository, await place_orders(repository, 3)))[1:]:
            for status in set(OrderStatus) - {order.status}:
                with pytest.raises(ConflictError):
                    await repository.update_order(order.id, status)
            assert await repository.get_order(order.id) == order
            assert await status_of(repository, order.pet_id) is PET_STATUS_BY_ORDER[order.status]

    @clause("order-absent")
    async def test_an_absent_order_cannot_be_updated(self, repository: Repository) -> None:
        """None is returned, or an update that matches no order is taken for a success."""
        (order,) = await place_orders(repository)
        for absent in absent_ids(order.id):
            for status in OrderStatus:
                with pytest.raises(NotFoundError):
                    await repository.update_order(absent, status)
            assert await repository.get_order(absent) is None
        assert await repository.list_orders(OrderQuery(0, 9)) == [order]

    @clause("sold-once")
    async def test_no_pet_is_sold_twice(self, repository: Repository) -> None:
        """The pet's status is checked first and changed in a later step, not both in one."""
        completed: list[int] = []

        async def buy(client: int, step: int) -> None:
            """Order and end the order three times: always the same pet, or with a step another."""
            for attempt in range(3):
                pet_id = pet_ids[(client + attempt * step) % len(pet_ids)]
                token = make_token(f"{client} {attempt} {step}", pet_id) if client % 3 else None
                # Few orders are completed: nobody else can have the pet then.
                status = FINAL_STATUSES[0 if (client + attempt) % 9 == 0 else 1]
                with suppress(RefusedError):
                    receipt = await repository.place_order(pet_id, AT, token)
                    await repository.update_order(receipt.id, status)
                    if status is OrderStatus.COMPLETED:
                        completed.append(pet_id)

        for step in range(2):
            pet_ids = [await add_pet(repository) for _ in range(4)]
            await asyncio.gather(*(buy(client, step) for client in range(30)))
            await check_agreement(repository)
            assert len(set(completed)) == len(completed)
        sold = await repository.list_orders(OrderQuery(0, 99, OrderStatus.COMPLETED))
        assert sorted(order.pet_id for order in sold) == sorted(completed)
        await sell_once(repository, repository, await add_pet(repository))
        await self._place_together(repository)
        await check_agreement(repository)

    async def _place_together(self, repository: Repository) -> None:
        """Order pets while their orders are cancelled."""
        for position, order in enumerate(await place_orders(repository, 4)):
            cancels = [repository.update_order(order.id, OrderStatus.CANCELLED) for _ in range(3)]
            tokens = (None, make_token(f"together {position}", order.pet_id), None)
            calls: list[Any] = [repository.place_order(order.pet_id, AT, token) for token in tokens]
            calls.insert(position, cancels.pop())  # before, between or after them
            found = await asyncio.gather(*calls, *cancels, return_exceptions=True)
            kinds = Counter(kind(result) for result in found)
            assert kinds[Order] == 3, found
            assert kinds[ConflictError] >= 2, found
