"""Clauses of overlapping calls."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import cycle, islice, product, repeat
from tempfile import TemporaryDirectory
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
    add_pet,
    check_agreement,
    place_at,
    status_of,
)
from petstore_conformance.clauses.pets import check_lives
from petstore_conformance.harness.effort import (
    Length,
    current,
    measure,
    sample,
    time_limit,
    yield_to_others,
)
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import AnyCall, create, kind, watch
from petstore_conformance.model.model import AnyQuery
from petstore_conformance.model.reads import check_shown, each, every_filter, read_all, read_page
from petstore_conformance.model.values import AT, NOW, REX, make_token

CALLS_AT_ONCE: Final = 800  # nearly as many as a client may have in flight: 888 by default
WATCHED_READS: Final = 128  # orders that are read while they change: a network holds up 1 of 50
WATCHING_SECONDS: Final = 15  # then no further one is changed, and no further pages are read
ORDERED_PETS: Final = 15  # ordered and released while pages are read: a few of those shown
OVERLAPPED_PAGES: Final = 60  # how many of each kind and size are read meanwhile, if there is time


class ConcurrencyClauses(Kit):
    """Clauses of calls that overlap, and of pages while others write."""

    @clause("overlapping-calls")
    async def test_hundreds_of_calls_may_overlap(self, repository: Repository) -> None:
        """A check and its change are not atomic, or calls disturb each other on one connection."""
        numbers = await sample(repository, range(200), together=True)
        creates = [create(repository, NewPet(f"{n}", n, PetStatus.SOLD)) for n in numbers]
        lists = [repository.list_pets(PetQuery(0, 400, PetStatus.SOLD)) for _ in range(20)]
        pets, pages = await asyncio.gather(asyncio.gather(*creates), asyncio.gather(*lists))
        assert len({pet.id for pet in pets}) == len(creates)
        for page in pages:
            assert {*page} <= {*pets}
            assert len({*page}) == len(page)
        assert {*await repository.list_pets(PetQuery(0, 400))} == {*pets}
        await self._create_beside_refused_writes(repository)
        stored = await read_all(repository)
        assert {*pets} <= {*stored.pets}
        reads: Any = (repository.get_pet, stored.pets), (repository.get_order, stored.orders)
        for read, items in reads:  # again and again at once, and the ids after them as well
            by_id = {item.id: item for item in items}
            absent = {min(id_ + 1, MAX_ID) for id_ in by_id} - by_id.keys()
            many = [*islice(cycle([*by_id, *absent]), CALLS_AT_ONCE)]
            ids = await sample(repository, many, together=True, reads=True)
            assert await asyncio.gather(*map(read, ids)) == [by_id.get(id_) for id_ in ids]

    async def _create_beside_refused_writes(self, repository: Repository) -> None:
        """Create pets while other writes are refused."""
        order = await place_at(repository, AT)
        await repository.create_pet(REX, make_token("used", REX))
        other = NewPet("other", 1)
        refusals: Sequence[tuple[AnyCall, type[RefusedError]]] = (
            (lambda: repository.place_order(-1, AT), NotFoundError),
            (lambda: repository.place_order(order.pet_id, AT), ConflictError),
            (lambda: repository.update_order(MAX_ID, OrderStatus.COMPLETED), NotFoundError),
            (lambda: repository.create_pet(other, make_token("used", other)), TokenReusedError),
        )
        numbers = await sample(repository, range(56), together=True)
        news = [NewPet("beside", number, PetStatus.SOLD) for number in numbers]
        creates, refused = list[Any](), list[Any]()
        for number, (new, (call, _)) in enumerate(zip(news, cycle(refusals), strict=False)):
            token = make_token(f"beside {number}", new) if number % 3 else None
            creates.append(asyncio.ensure_future(create(repository, new, token)))
            refused.append(asyncio.ensure_future(call()))
            if number % 5 == 0:  # the calls meet in different states
                await yield_to_others()
        results = await asyncio.gather(*refused, return_exceptions=True)
        for result, (_, error) in zip(results, cycle(refusals), strict=False):
            assert kind(result) is error, results
        pets = await asyncio.gather(*creates)
        found = await repository.list_pets(PetQuery(0, 9999, PetStatus.SOLD))
        assert {pet for pet in found if pet.name == "beside"} == {*pets}

    @location_clause("healthy")
    async def test_contention_is_not_an_outage(self, location: Location) -> None:
        """A deadlock, taken lock or full pool is raised, not repeated; notes are read too late."""
        with TemporaryDirectory() as notes:
            async with location.open_several(4, notes) as opened:
                await self._write_in_opposite_orders(opened)
                numbers = await sample(opened[0], range(CALLS_AT_ONCE), together=True)
                tokens = (make_token(f"{n} at once", REX) if n % 2 else None for n in numbers)
                await asyncio.gather(*map(opened[0].create_pet, repeat(REX), tokens))
            for _ in range(2 if location.backend.durable else 0):  # it is not behind what was noted
                async with location.open_several(1, notes) as again:
                    await again[0].check()

    async def _write_in_opposite_orders(self, opened: Sequence[Repository]) -> None:
        """Let clients order the same pets and cancel the orders, through all handles at once."""
        pet_ids = [await add_pet(opened[0]) for _ in range(3)]

        async def write(repository: Repository, client: int) -> None:
            shared = client % 5  # the tokens are those of other clients, too
            # Half of the clients take the locks in the opposite order.
            for pet_id in pet_ids if client % 2 else reversed(pet_ids):
                for token in (make_token(f"{shared} {pet_id}", pet_id), None):
                    with suppress(RefusedError):
                        placed = await repository.place_order(pet_id, AT, token)
                        await repository.update_order(placed.id, OrderStatus.CANCELLED)
                creating = make_token(f"create {shared}", REX) if client % 2 else None
                await repository.create_pet(REX, creating)
                await repository.list_pets(PetQuery(0, 50, PetStatus.PENDING))
                await repository.list_orders(OrderQuery(0, 50, OrderStatus.PLACED))

        clients = await sample(opened[0], range(40), together=True)
        writes = partial(map, write, cycle(opened), clients)
        lists = (partial(one.list_tokens, "", 9, NOW) for one in opened)
        beside: list[AnyCall] = [] if self.remote else [*(one.check for one in opened), *lists]
        await watch(lambda: asyncio.gather(*writes()), beside)
        await check_agreement(opened[0])

    @location_clause("read-after-write")
    async def test_a_read_sees_every_write_that_has_returned(self, location: Location) -> None:
        """Reads go to a replica that lags, or a write is acknowledged before it takes effect."""
        async with AsyncExitStack() as stack:
            handles = await stack.enter_async_context(location.open_several(2))
            repository = handles[0]
            news = [NewPet("Rex", 7, status) for status in PetStatus]
            for new in await sample(repository, news * 3):
                await check_lives(repository, [new])
            await check_lives(repository, await sample(repository, news * 13))
            await self._read_after_each_answer(repository, handles[-1])
            numbers = await sample(repository, range(WATCHED_READS), together=True)
            orders = await asyncio.gather(*(place_at(repository, AT) for _ in numbers))
            if location.backend.durable:  # so that none of them is in a cache
                await stack.aclose()
                repository = await stack.enter_async_context(location.open())
            await self._read_beside_equal_reads(repository, orders)

    async def _read_after_each_answer(self, repository: Repository, other: Repository) -> None:
        """Make equal writes at once: what a replay or a refusal tells of, reads show as well."""

        async def write() -> int:
            pet = await create(repository, REX, make_token("equal", REX))
            await check_shown(repository, pet)
            return pet.id

        async def change(call: Awaitable[object], before: PetStatus) -> None:
            with suppress(ConflictError):
                await call
            assert await status_of(other, pet_id) is not before

        equal = await sample(repository, range(6), together=True)
        pet_id, *_ = await asyncio.gather(*(write() for _ in equal))
        placings = (repository.place_order(pet_id, AT) for _ in equal)
        await asyncio.gather(*(change(call, PetStatus.AVAILABLE) for call in placings))
        (order,) = await repository.list_orders(OrderQuery(0, 1, OrderStatus.PLACED))
        updates = (repository.update_order(order.id, FINAL_STATUSES[n % 2]) for n in equal)
        await asyncio.gather(*(change(call, PetStatus.PENDING) for call in updates))

    async def _read_beside_equal_reads(self, repository: Repository, given: list[Order]) -> None:
        """Read while equal reads are in flight that began before the write; nothing vanishes.

        A read that is still in flight, because a network held it up, may get the old state: some
        of many do. So many orders are changed, several at a time; those given are placed.
        """
        in_time, tried = time_limit(WATCHING_SECONDS), list[Order]()
        tenths_of_a_read, first_reads = range(0, 12, 2), range(4)
        ways = cycle(product(tenths_of_a_read, FINAL_STATUSES, first_reads))
        # Where calls queue, those of many readers would only hold up the changes.
        readers = 3 if len(given) == WATCHED_READS else 1

        def reads_of(order: Order) -> list[AnyCall]:
            return [
                partial(repository.get_pet, order.pet_id),
                partial(repository.get_order, order.id),
                partial(repository.list_pets, PetQuery(order.pet_id - 1, 1)),
                partial(repository.list_orders, OrderQuery(order.id - 1, 1)),
                partial(repository.list_orders, OrderQuery(0, 999, OrderStatus.PLACED)),
            ]

        async def views(order: Order) -> list[Any]:
            return await asyncio.gather(*(read() for read in reads_of(order)))

        async def change_and_read(trial: tuple[Order, tuple[int, OrderStatus, int]]) -> None:
            order, (tenths, status, first) = trial
            if not in_time():
                return
            tried.append(order)
            length, _ = await measure(views(given[-1]))  # which may be in a cache then

            async def check_present() -> None:
                pet, found, pets, orders, _ = await views(order)
                ids = [item and item.id for item in (pet, *pets, found, *orders)]
                assert ids == [order.pet_id] * 2 + [order.id] * 2, "it is gone while it changes"

            async def update() -> Any:
                await yield_to_others(tenths)  # a repository in memory may take no longer
                await length.wait(tenths)
                updated = await repository.update_order(order.id, status)
                later = asyncio.gather(*(call() for call in reads_of(order)))
                return updated, await reads_of(order)[first](), await later  # begun before these

            changed, seen_first, seen_later = await watch(update, [check_present] * readers)
            pet, found, pets, orders, placed = seen_later
            assert seen_first == seen_later[first]
            assert pet is not None
            assert pet.status is PET_STATUS_BY_ORDER[status]
            assert (pets, found, orders) == ([pet], changed, [changed])
            assert order.id not in [other.id for other in placed]

        await each(zip(given, ways, strict=False), change_and_read)
        current().note(len(tried), len(given))

    @location_clause("page-overlap")
    async def test_a_page_shows_what_was_stored_during_the_call(self, location: Location) -> None:
        """A page is read by offset, or its items are read after they were selected."""
        async with location.open_several(2) as handles:  # one alone may make its calls in turn
            repository, readers = handles[0], (handles[-1], handles[0], handles[-1])
            large = [] if self.remote else [((2000,), 1000)]  # perhaps read in parts
            for sizes, number in [((200, 7, 4), 0), *large]:
                length, _ = await measure(repository.list_orders(OrderQuery(0, 9)))
                some = await sample(repository, range(ORDERED_PETS), together=True)
                pairs = [(await add_pet(repository), await add_pet(repository)) for _ in some]
                pets = [Pet(2**41 + n, "restored", n, PetStatus.AVAILABLE) for n in range(number)]
                if pets:
                    await repository.restore(pets)
                staying = {*(id_ for id_, _ in pairs), *(pet.id for pet in pets)}
                overlap = Overlap(repository, length, staying)
                orders = [partial(overlap.order, it, n % 4) for n, (_, it) in enumerate(pairs)]
                await watch(partial(asyncio.gather, *map(overlap.read, readers, sizes)), orders)


class Overlap(Struct):
    """Orders that are placed and cancelled while pages are read, and what is certain of them.

    repository -- makes the writes
    length -- how long it takes to read a page
    staying -- the ids of pets that stay available
    orders -- the status of each order that is not just being cancelled
    """

    repository: Repository
    length: Length
    staying: set[int]
    orders: dict[int, OrderStatus] = {}

    async def order(self, pet_id: int, pages: int) -> None:
        """Order a pet, and cancel after about so many pages; order another, which stays so."""
        order_id = await self._place(pet_id)
        await self._place(await add_pet(self.repository))
        await self.length.wait(10 * pages)
        del self.orders[order_id]
        await self.repository.update_order(order_id, OrderStatus.CANCELLED)
        self.orders[order_id] = OrderStatus.CANCELLED
        await self.length.wait(10)

    async def read(self, reader: Repository, most: int) -> None:
        """Read pages of every status, from each to the next one, as long as there is time."""
        queries, in_time = every_filter(0, most), time_limit(WATCHING_SECONDS)
        for number in range(OVERLAPPED_PAGES):
            if number and not in_time():
                break
            await yield_to_others()  # a repository in memory may never wait
            queries = [await self._read(reader, query) for query in queries]

    async def _place(self, pet_id: int) -> int:
        order_id = (await self.repository.place_order(pet_id, AT)).id
        self.orders[order_id] = OrderStatus.PLACED
        return order_id

    async def _read(self, reader: Repository, query: AnyQuery) -> AnyQuery:
        """Read and check a page; return the query of the next one, or of the first again."""
        before = {**self.orders}
        page = await read_page(reader, query)
        ids = [item.id for item in page]
        assert ids == sorted(set(ids))
        throughout: dict[int, str] = dict(before.items() & self.orders.items())
        if isinstance(query, PetQuery):
            throughout = dict.fromkeys(self.staying, PetStatus.AVAILABLE)
        for item in page:
            assert query.status in (None, item.status)
            had = throughout.get(item.id, item.status)
            assert item.status == had, "it did not have this status during the call"
        is_full = len(page) == query.count
        last = ids[-1] if is_full else MAX_ID
        matching = {id_ for id_, status in throughout.items() if query.status in (None, status)}
        if isinstance(query, OrderQuery) and query.status is None:  # its status may have changed
            matching |= before.keys()
        missing = {id_ for id_ in matching if query.after < id_ <= last} - {*ids}
        assert not missing, "an item is missing"
        return replace(query, after=last if is_full else 0)
