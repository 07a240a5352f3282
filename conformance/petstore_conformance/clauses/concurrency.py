"""Clauses of overlapping calls."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, cycle
from math import inf
from time import process_time
from typing import Any, Final

from msgspec import Struct
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
    RefusedError,
    Repository,
    TokenReusedError,
)
from petstore_conformance.clauses.orders import (
    FINAL_STATUSES,
    absent_ids,
    add_pet,
    check_agreement,
    place_orders,
)
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import (
    Length,
    create_all,
    created,
    each,
    every_filter,
    kind,
    measure,
    read_page,
    sample,
    time_limit,
    yield_to_others,
)
from petstore_conformance.model.values import AT, REX, make_token

WATCHED_READS: Final = 96
"""How many orders are read while they change: of fifty reads over a network, one is held up."""


WATCHING_SECONDS: Final = 15
"""After this time no further one is changed."""


class ConcurrencyClauses(Kit):
    """Clauses of calls that overlap, and of pages while others write."""

    @clause("overlapping-calls")
    async def test_hundreds_of_calls_may_overlap(self, repository: Repository) -> None:
        """A check and its change are not atomic, or calls disturb each other on one connection."""
        numbers = await sample(repository, range(200), together=True)
        news = [NewPet(f"{number}", number, PetStatus.SOLD) for number in numbers]
        reads = [repository.list_pets(PetQuery(0, 400, PetStatus.SOLD)) for _ in range(20)]
        pets, pages = await asyncio.gather(create_all(repository, news), asyncio.gather(*reads))
        expected = {pet.id: pet for pet in pets}
        assert len(expected) == len(news)
        for page in pages:
            assert all(expected[pet.id] == pet for pet in page)
            assert len({pet.id for pet in page}) == len(page)
        assert {pet.id: pet for pet in await repository.list_pets(PetQuery(0, 400))} == expected
        equal = await asyncio.gather(*(repository.create_pet(REX) for _ in range(20)))
        assert len({receipt.id for receipt in equal}) == 20
        expected |= await self._create_beside_refused_writes(repository)
        stored = {pet.id: pet for pet in await repository.list_pets(PetQuery(0, 9999))}
        assert expected.items() <= stored.items()
        absent = [id_ + 1 for id_ in stored if id_ + 1 not in stored and id_ < MAX_ID]
        some = await sample(repository, [*expected, *absent[-50:]] * 2, together=True, reads=True)
        by_position = (repository.get_pet(pet_id) for pet_id in some)
        by_name = (repository.get_pet(pet_id=pet_id) for pet_id in some)
        for found in (await asyncio.gather(*by_position), await asyncio.gather(*by_name)):
            assert found == [stored.get(pet_id) for pet_id in some]
        orders = {order.id: order for order in await repository.list_orders(OrderQuery(0, 9999))}
        known = [*orders, *absent_ids(*orders)[-50:]] * 5
        ids = await sample(repository, known, together=True, reads=True)
        read = await asyncio.gather(*(repository.get_order(order_id) for order_id in ids))
        assert read == [orders.get(order_id) for order_id in ids]

    async def _create_beside_refused_writes(self, repository: Repository) -> dict[int, Pet]:
        """Create pets while other writes are refused; return them by id."""
        order = (await place_orders(repository))[0]
        absent = absent_ids(order.id)[-1]
        await repository.create_pet(REX, make_token("used", REX))
        other = NewPet("other", 1)
        numbers = await sample(repository, range(56), together=True)
        news = [NewPet("beside", number, PetStatus.SOLD) for number in numbers]
        creates, refused = list[Any](), list[Any]()
        for number, new in enumerate(news):
            token = make_token(f"beside {number}", new) if number % 3 else None
            creates.append(asyncio.ensure_future(repository.create_pet(new, token)))
            call = (
                lambda: repository.place_order(-1, AT),
                lambda: repository.place_order(order.pet_id, AT),
                lambda: repository.update_order(absent, OrderStatus.COMPLETED),
                lambda: repository.create_pet(other, make_token("used", other)),
            )[number % 4]
            refused.append(asyncio.ensure_future(call()))
            if number % 5 == 0:  # the calls meet in different states
                await yield_to_others()
        results = await asyncio.gather(*refused, return_exceptions=True)
        errors = (NotFoundError, ConflictError, NotFoundError, TokenReusedError)
        expected = [errors[number % 4] for number in range(len(news))]
        assert [kind(result) for result in results] == expected, results
        receipts = await asyncio.gather(*creates)
        pets = [created(receipt.id, new) for receipt, new in zip(receipts, news, strict=True)]
        pets.sort(key=lambda pet: pet.id)
        found = await repository.list_pets(PetQuery(0, 9999, PetStatus.SOLD))
        assert [pet for pet in found if pet.name == "beside"] == pets
        return {pet.id: pet for pet in pets}

    @location_clause("healthy")
    async def test_contention_is_not_an_outage(self, location: Location) -> None:
        """A deadlock, a serialization failure or a lock that is taken is raised, not repeated."""
        async with location.open_several(4) as opened:
            pet_ids = [await add_pet(opened[0]) for _ in range(3)]

            async def write(repository: Repository, client: int) -> None:
                # Half of the clients take the locks in the opposite order.
                for pet_id in pet_ids if client % 2 else reversed(pet_ids):
                    token = make_token(f"{client % 5} {pet_id}", pet_id)
                    for attempt in (token, None):
                        with suppress(RefusedError):
                            placed = await repository.place_order(pet_id, AT, attempt)
                            await repository.update_order(placed.id, OrderStatus.CANCELLED)
                    await repository.create_pet(REX, make_token(f"create {client % 5}", REX))
                    await repository.list_pets(PetQuery(0, 50, PetStatus.PENDING))
                    await repository.list_orders(OrderQuery(0, 50, OrderStatus.PLACED))

            clients = await sample(opened[0], range(40), together=True)
            await asyncio.gather(*map(write, cycle(opened), clients))
            await check_agreement(opened[0])

    @clause("read-after-write")
    async def test_a_read_sees_every_write_that_has_returned(self, repository: Repository) -> None:
        """Reads go to a replica that lags, or a write is acknowledged before it takes effect."""

        async def write_and_read(number: int) -> None:
            status = list(PetStatus)[number % 3]
            receipt = await repository.create_pet(NewPet(f"{number}", number, status))
            pet = Pet(receipt.id, f"{number}", number, status)
            assert await repository.get_pet(receipt.id) == pet
            assert await repository.list_pets(PetQuery(receipt.id - 1, 1)) == [pet]
            assert await repository.list_pets(PetQuery(receipt.id - 1, 1, status)) == [pet]
            if status is PetStatus.AVAILABLE:
                placed = await repository.place_order(receipt.id, AT)
                order = Order(placed.id, receipt.id, OrderStatus.PLACED, AT)
                assert await repository.get_order(placed.id) == order
                assert await repository.list_orders(OrderQuery(placed.id - 1, 1)) == [order]
                *_, done = await asyncio.gather(  # what the reads return must not be kept
                    repository.get_pet(receipt.id),
                    repository.get_order(placed.id),
                    repository.update_order(placed.id, OrderStatus.COMPLETED),
                )
                assert await repository.get_pet(receipt.id) == replace(pet, status=PetStatus.SOLD)
                assert await repository.get_order(placed.id) == done
                query = OrderQuery(placed.id - 1, 1, done.status)
                assert await repository.list_orders(query) == [done]

        for number, _ in enumerate(await sample(repository, range(9))):
            await write_and_read(number)
        numbers = await sample(repository, range(40))
        await asyncio.gather(*(write_and_read(number) for number in numbers))
        await self._read_beside_equal_reads(repository)

    async def _read_beside_equal_reads(self, repository: Repository) -> None:
        """Read while equal reads are in flight that began before the write; nothing vanishes.

        A read that is still in flight, because a network held it up, may get the old state: some
        of many do. So many orders are changed, several at a time.
        """
        in_time, tried = time_limit(WATCHING_SECONDS), list[int]()
        numbers = await sample(repository, range(WATCHED_READS), together=True)
        # Where calls queue, those of many readers would only hold up the changes.
        readers_each = 3 if len(numbers) == WATCHED_READS else 1

        async def change(number: int) -> None:
            if not in_time():
                return
            tried.append(number)
            reading, (order,) = True, await place_orders(repository)

            async def read_again_and_again() -> None:
                while reading:
                    pet, found, pets, orders, _ = await views(order)
                    ids = [item and item.id for item in (pet, *pets, found, *orders)]
                    gone = "it is gone while it changes"
                    assert ids == [order.pet_id, order.pet_id, order.id, order.id], gone
                    await yield_to_others()  # a repository in memory may never wait

            length, _ = await measure(views(order))
            readers = [asyncio.create_task(read_again_and_again()) for _ in range(readers_each)]
            await yield_to_others(number % 12)
            await length.wait(number % 6 * 2)
            status = FINAL_STATUSES[number // 6 % 2]
            changed = await repository.update_order(order.id, status)
            pet, found, pets, orders, placed = await views(order)
            reading = False
            await asyncio.gather(*readers)
            assert pet is not None
            assert pet.status is PET_STATUS_BY_ORDER[status]
            assert (pets, found, orders) == ([pet], changed, [changed])
            assert order.id not in [other.id for other in placed]

        async def views(order: Order) -> Any:
            return await asyncio.gather(
                repository.get_pet(order.pet_id),
                repository.get_order(order.id),
                repository.list_pets(PetQuery(order.pet_id - 1, 1)),
                repository.list_orders(OrderQuery(order.id - 1, 1)),
                repository.list_orders(OrderQuery(0, 999, OrderStatus.PLACED)),
            )

        await each(numbers, change)
        current().note(len(tried), len(numbers))

    @clause("page-overlap")
    async def test_a_page_shows_what_was_stored_during_the_call(
        self, repository: Repository
    ) -> None:
        """A page is read by offset, or its items are read after they were selected."""
        some = await sample(repository, range(140), together=True)
        ids = sorted(await asyncio.gather(*(add_pet(repository) for _ in some)))
        lengths = [(await measure(repository.list_orders(OrderQuery(0, 9))))[0] for _ in range(3)]
        overlap = Overlap(repository, ids, min(lengths, key=lambda length: length.seconds))
        reading = asyncio.gather(overlap.read(0, 200), overlap.read(ids[5], 4), overlap.read(0, 7))
        changing = enumerate(ids[:30:2])  # the others stay
        selling = [overlap.sell(pet_id, reading, n % 4) for n, pet_id in changing]
        await asyncio.gather(reading, *selling)
        for page in overlap.pages:
            page.check()


class Overlap:
    """Reads pages and changes pets at the same time, and records the moments around each call.

    length -- how long it takes to read a page; there are a few changes meanwhile, not hundreds
    """

    def __init__(self, repository: Repository, pet_ids: list[int], length: Length) -> None:
        self.pages: list[Page] = []
        self._repository = repository
        self._length = length
        self._pause = max(0.001, length.seconds / 2)
        self._moments = count(1)
        self._pets, self._orders = Changes(), Changes()
        for pet_id in pet_ids:
            self._pets.by_id[pet_id].append((PetStatus.AVAILABLE, 0, 0))

    async def read(self, after: int, most: int) -> None:
        """Walk through the pages of every status, from an id, at least one page of each."""
        rounds, in_time = 0, time_limit(10)
        end_cpu = process_time() + 1
        begins = defaultdict[object, int](lambda: after)
        # CPU time, because a second on a busy machine may be hardly any rounds.
        while rounds < 1 or (rounds < 100 and process_time() < end_cpu and in_time()):
            rounds += 1
            await yield_to_others()  # a repository in memory may never wait
            for first in every_filter(after, most):
                kind_ = type(first), first.status
                query = replace(first, after=begins[kind_])
                begun = next(self._moments)
                items = await read_page(self._repository, query)
                ended = next(self._moments)
                changes = self._pets if isinstance(query, PetQuery) else self._orders
                self.pages.append(Page(changes, query, items, begun, ended))
                begins[kind_] = items[-1].id if len(items) == most else after

    async def sell(self, pet_id: int, reading: "asyncio.Future[Any]", pages: int) -> None:
        """Order a pet and cancel, until all pages have been read; then complete the last order.

        pages -- for about how many pages each order stays
        """
        status, number = OrderStatus.CANCELLED, 0
        while status is OrderStatus.CANCELLED:
            status = OrderStatus.COMPLETED if reading.done() else OrderStatus.CANCELLED
            begun = next(self._moments)
            receipt = await self._repository.place_order(pet_id, AT)
            self._change(receipt.id, pet_id, OrderStatus.PLACED, begun)
            if number % 2:  # a slow reader finds each status
                await asyncio.sleep(self._pause)
            if pages:
                await asyncio.wait({reading}, timeout=pages * (0.002 + self._length.seconds))
            begun = next(self._moments)
            await self._repository.update_order(receipt.id, status)
            self._change(receipt.id, pet_id, status, begun)
            number += 1
            if number % 3:
                await asyncio.sleep(self._pause)

    def _change(self, order_id: int, pet_id: int, status: OrderStatus, begun: int) -> None:
        ended = next(self._moments)
        self._orders.by_id[order_id].append((status, begun, ended))
        self._pets.by_id[pet_id].append((PET_STATUS_BY_ORDER[status], begun, ended))


class Changes:
    """The statuses of pets or orders by id, each with the moments around the call that set it."""

    def __init__(self) -> None:
        self.by_id = defaultdict[int, list[tuple[str, float, float]]](list)

    def possible(self, id_: int, begin: float, end: float) -> set[str]:
        """Return the statuses that it may have had at some moment between these."""
        changes = self.by_id[id_]
        gone = [*(ended for _, _, ended in changes[1:]), inf]
        return {
            status
            for (status, begun, _), until in zip(changes, gone, strict=False)
            if begun <= end and until >= begin
        }

    def certain(self, id_: int, begin: float, end: float) -> set[str]:
        """Return the status that it had at all moments between these, if it is known."""
        changes = self.by_id[id_]
        going = [*(begun for _, begun, _ in changes[1:]), inf]
        return {
            status
            for (status, _, ended), until in zip(changes, going, strict=False)
            if ended <= begin and until >= end
        }


class Page(Struct):
    """A page that a call returned, and the moments around the call."""

    changes: Changes
    query: PetQuery | OrderQuery
    items: Sequence[Pet | Order]
    begin: float
    end: float

    def check(self) -> None:
        """Check that no item is missing, and that each is in order and in a state of the call."""
        for item in self.items:
            assert self.query.status in (None, item.status)
            assert item.status in self.changes.possible(item.id, self.begin, self.end)
        ids = [item.id for item in self.items]
        assert ids == sorted(set(ids))
        last = ids[-1] if len(ids) == self.query.count else inf
        for id_, changes in list(self.changes.by_id.items()):
            if id_ in ids or not self.query.after < id_ <= last:
                continue
            if self.query.status is None:
                matched = changes[0][2] <= self.begin
            else:
                matched = self.query.status in self.changes.certain(id_, self.begin, self.end)
            assert not matched, "an item is missing"
