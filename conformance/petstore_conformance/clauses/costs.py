"""Clauses of what a call costs the process: how long it holds the event loop, how much it does."""

import asyncio
import gc
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from math import sqrt
from tempfile import TemporaryDirectory
from time import monotonic, process_time
from typing import Final

import pytest
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    NewPet,
    NotFoundError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
)
from petstore_conformance.clauses.methods import Given, all_calls_of, attempt, give
from petstore_conformance.clauses.orders import FINAL_STATUSES, add_pet, order_and_cancel, place_at
from petstore_conformance.harness.alarm import OverdueError
from petstore_conformance.harness.effort import current, sample, time_limit
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.model.calls import AnyCall
from petstore_conformance.model.reads import read_page
from petstore_conformance.model.values import AT, DAY_SECONDS, NOW, REX, make_token, record_of

HELD_SECONDS: Final = 0.1  # how long a call may hold the event loop
ITEMS: Final = 1000  # of a restore and of the largest page; what a large store has in addition
MANY_TOKENS: Final = 300  # used in one go: a driver may keep a statement or a lock for each
MANY_ITEMS = 20_000  # the pets, orders and records of tokens in a large store, as many of each
MANY_ORDERS = 10_000  # the orders that a pet of the large store was in
FEWER_ITEMS = 10_000  # enough to hold the event loop with: to go through them takes a moment
GROWTH: Final = 1.6  # by what factor a call may take longer there: 1.55 in a copied tree (LMDB)
SPARE_SECONDS: Final = {"": 0.0002, " of CPU": 0.00005}  # how much longer it may take besides
LEAST_TIMES: Final = 8  # how often calls are compared: some statements are planned anew after ten
SLOW_TIMES: Final = 6  # how often they are if that takes longer than `COMPARED_SECONDS`
COMPARED_SECONDS: Final = 10  # for how long, if some seem to take longer; twice that if by chance
FILL_SECONDS: Final = 15  # then a slow backend gets no more; too few items leave a clause open


class CostClauses(Kit):
    """Clauses of a repository in this process."""

    @location_clause("event-loop")
    async def test_no_call_holds_the_event_loop(self, location: Location) -> None:
        """A driver that blocks is called on the event loop, or a lock is waited for there."""
        async with location.open_several(4) as opened:
            repository, *others = opened
            held_once = {"a restore": await _fill(repository, FEWER_ITEMS, ITEMS // 3)}
            reads = (partial(other.get_pet, 1) for other in others)  # they are behind by all of it
            held_once["a read"] = min([await longest_hold(read) for read in reads], default=0)
            held_once["a late create"] = await longest_hold(_late(repository), process_time)
            if max(held_once.values()) >= HELD_SECONDS:  # a reorganization may come now and then
                raise OverdueError(f"a large store holds the event loop, in seconds: {held_once}")
            held: dict[str, float] = {}
            for number in range(10):  # a machine that is busy may hold it, too, but not each time
                items = await free_items(repository, ITEMS // 2)
                given = replace(await give(repository, number), items=items, count=ITEMS)
                calls = all_calls_of(repository, given) | self._long_calls(given, opened)
                for name, call in calls.items():
                    held[name] = min(await longest_hold(call), held.get(name, 60))
                if max(held.values()) < HELD_SECONDS:
                    return
        too_long = {name: seconds for name, seconds in held.items() if seconds >= HELD_SECONDS}
        raise OverdueError(f"the event loop is held, in seconds: {too_long}")

    def _long_calls(self, given: Given, handles: Sequence[Repository]) -> dict[str, AnyCall]:
        """Return calls that are several, or with much in them; of all handles if they overlap."""
        repository = handles[0]

        async def overlapping() -> None:
            await asyncio.gather(*(one.create_pet(REX) for one in handles for _ in range(20)))
            await asyncio.gather(*(place_at(one, AT) for one in handles for _ in range(2)))

        async def long_names() -> None:
            most = self.longest_name(70_000)
            # To compress the last one holds the event loop, to copy it does not.
            names = "n" * most, " " * 30_000 + "n", "n " * 15_000, self.long_name(2**22)
            for new in self.storable(NewPet(name, 7) for name in names):
                await repository.create_pet(new)

        async def many_tokens() -> None:
            for n in await sample(repository, range(MANY_TOKENS)):
                await repository.create_pet(REX, make_token(f"{given.number} {n}", REX))
                await asyncio.sleep(0)

        tokens = (make_token(f"restored {given.number} {n}", REX) for n in range(ITEMS))
        records = [record_of(token, given.pet_id) for token in tokens]
        return {
            "create_pet, with long names": long_names,
            "create_pet, with many tokens": many_tokens,
            "overlapping writes": overlapping,
            "restore, of records": lambda: repository.restore(records),
            "restore, refused": lambda: repository.restore([Pet(given.pet_id, "another", 7)]),
        }

    @location_clause("cost")
    async def test_the_work_of_calls_does_not_grow_with_the_store(self, location: Location) -> None:
        """All items are searched for one of them, for those of a status, or for expired records."""
        async with AsyncExitStack() as stack:
            stores = list[Sequence[Repository]]()
            for _ in range(2):
                new = await stack.enter_async_context(location.new())
                notes = stack.enter_context(TemporaryDirectory())
                stores.append(await stack.enter_async_context(new.open_several(2, notes)))
            (small, *_), (large, *_) = stores
            for repository in (small, large):  # the pages of both are full
                await repository.restore(await free_items(repository, 30))
            await _fill(large, MANY_ITEMS, ITEMS)  # first: what the calls look for comes after that
            often = await _order_often(small, 1), await _order_often(large, MANY_ORDERS)
            await self._compare(stores, often)

    async def _compare(self, stores: Sequence[Sequence[Repository]], often: Sequence[int]) -> None:
        """Compare what calls take in a small store and a large one; fail if they take longer there.

        stores -- the handles of each: calls are made through the first, after writes of the last

        What a busy machine adds is not in the shortest of many times of each. What a network
        adds may be in the shortest of a few, so most times must be longer, too. The CPU time of
        this process shows what waiting for the disk hides, if the engine is in this process.
        """
        times = defaultdict[tuple[str, str], tuple[list[float], list[float]]](lambda: ([], []))
        time = asyncio.get_running_loop().time
        end = time() + COMPARED_SECONDS
        for rounds in count(1):
            for index, (handles, pet_id) in enumerate(zip(stores, often, strict=True)):
                repository = handles[0]
                calls = all_calls_of(repository, await give(handles[-1], rounds))
                calls["create_pet, when all records have expired"] = _late(repository, rounds)
                final = OrderQuery(pet_id, 20, OrderStatus.COMPLETED)  # behind cancelled ones
                calls["list_orders, of a final status"] = partial(repository.list_orders, final)
                sold = PetQuery(0, 9, PetStatus.SOLD)
                for query in (sold, OrderQuery(0, 9, OrderStatus.COMPLETED)):
                    calls[f"{query}, which thousands match"] = partial(read_page, repository, query)
                again = partial(order_and_cancel, repository, pet_id)
                calls["place_order, as often before"] = again
                for name, call in calls.items():
                    if not name.startswith(("restore", "list_tokens")):  # their work may grow
                        begin, begin_cpu = time(), process_time()
                        await attempt(call)
                        taken, taken_of_cpu = time() - begin, process_time() - begin_cpu
                        times[name, ""][index].append(taken)
                        times[name, " of CPU"][index].append(taken_of_cpu)
            # The later half: a server may plan anew what comes often.
            later = {key: [each[rounds // 2 :] for each in pair] for key, pair in times.items()}
            longer = {
                (name, unit): (small, large)
                for (name, unit), (small, large) in later.items()
                if min(large) > GROWTH * min(small) + SPARE_SECONDS[unit]
            }
            late = time() - end
            certain = late > 0 and not any(by_chance(*pair) for pair in longer.values())
            enough = rounds >= (SLOW_TIMES if late > 0 else LEAST_TIMES)
            if enough and (certain or not longer or late > COMPARED_SECONDS):
                break
        grows = [
            f"{name}: {1000 * min(small):.2f} ms{unit} in a small store, {1000 * min(large):.2f} ms"
            " in a large one"
            for (name, unit), (small, large) in longer.items()
            if not by_chance(small, large)
        ]
        if grows:
            text = "the time that a call takes grows with the store:\n" + "\n".join(grows)
            # No busy machine explains the time that this process had of a core.
            raise AssertionError(text) if " of CPU" in text else OverdueError(text)


def by_chance(some: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether the others may be longer only by chance.

    They are not if, in pairs of one of each, they are longer by four standard deviations (of the
    Mann-Whitney test, which assumes no distribution) more often than in half, or always.
    """
    known = sorted(some)
    longer = sum(bisect_left(known, seconds) for seconds in others)
    pairs, both = len(some) * len(others), len(some) + len(others)
    return longer < pairs and longer <= pairs / 2 + 4 * sqrt(pairs * (both + 1) / 12)


async def _fill(repository: Repository, most: int, size: int) -> float:
    """Restore many pets, orders and records, of which no later call needs any.

    most -- as many of each kind, if there is time for them; what there was none for is noted
    size -- as many of each kind are in a call

    Returns the second longest time that a call has held the event loop, in seconds of a processor:
    the longest may be chance. A garbage collection of a large process would take as long.
    """
    first = (await add_pet(repository)) + 10
    in_time, holds, stored = time_limit(FILL_SECONDS), [0.0, 0.0], 0
    gc.disable()
    try:
        while stored < most and in_time():
            ids = range(first + stored, first + stored + size)
            tokens = (  # they do not expire in the order of their ids
                make_token(f"restored {id_}", REX, NOW, DAY_SECONDS - id_ % 1000) for id_ in ids
            )
            records = list(map(record_of, tokens, ids))
            restoring = partial(repository.restore, [*_stored(ids), *records])
            holds.append(await longest_hold(restoring, process_time))
            stored += size
    finally:
        gc.enable()
    current().note(stored, most)
    for query in (
        OrderQuery(first - 1, stored),
        OrderQuery(first - 1, stored // 2, OrderStatus.CANCELLED),
        PetQuery(first - 1, stored // 2, PetStatus.SOLD),
    ):
        assert len(await read_page(repository, query)) == query.count, "a page is not full"
    order = await place_at(repository, AT)  # behind all others, none of which has its status
    orders = await repository.list_orders(OrderQuery(0, 1, order.status))
    pets = await repository.list_pets(PetQuery(0, 1, PetStatus.PENDING))
    assert orders == [order], "a page of a status ends before it is full"
    assert [pet.id for pet in pets] == [order.pet_id], "a page of a status ends before it is full"
    return sorted(holds)[-2]


async def _order_often(repository: Repository, number: int) -> int:
    """Restore so many cancelled orders of a pet before one that is refused; return its id."""
    pet_id = await add_pet(repository)
    ids = range(pet_id + ITEMS, pet_id + ITEMS + number)  # others may have those before them
    orders = [Order(id_, pet_id, OrderStatus.CANCELLED, AT) for id_ in ids]
    with pytest.raises(NotFoundError):
        await repository.restore([*orders, replace(orders[0], id=ids.stop, pet_id=MAX_ID)])
    return pet_id


def _late(repository: Repository, number: int = 0) -> AnyCall:
    """Return a create with a token of a time when all records have expired."""
    token = make_token(f"late {number}", REX, NOW + 2 * DAY_SECONDS)
    return partial(repository.create_pet, REX, token)


async def free_items(repository: Repository, number: int) -> list[Pet | Order]:
    """Return so many pets and their orders for `restore`, under ids that are free."""
    first = (await add_pet(repository)) + MANY_ITEMS
    return _stored(range(first, first + number))


def _stored(ids: range) -> list[Pet | Order]:
    """Return pets, every second of them sold, and their orders with the same ids."""
    pets = [Pet(id_, f"{id_}", id_, [PetStatus.SOLD, PetStatus.AVAILABLE][id_ % 2]) for id_ in ids]
    return [*pets, *(Order(id_, id_, FINAL_STATUSES[id_ % 2], AT) for id_ in ids)]


async def longest_hold(call: AnyCall, clock: Callable[[], float] = monotonic) -> float:
    """Make a call; return the longest time, in seconds of a clock, without any other task."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            begin = clock()
            await asyncio.sleep(0.001)
            longest = max(longest, clock() - begin)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    await attempt(call)
    await asyncio.sleep(0.002)  # lets the tick end that the call may have held up
    ticking.cancel()
    return longest
