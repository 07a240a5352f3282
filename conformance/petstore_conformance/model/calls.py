"""Calls that overlap or are cancelled, and the search for an order that explains their results."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

from msgspec import Struct, UnsetType
from msgspec.structs import astuple, replace

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
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
    TokenRecord,
    TokenReusedError,
    UnavailableError,
)
from petstore_conformance.harness.alarm import CANCEL_SECONDS, OverdueError, stack
from petstore_conformance.harness.effort import AT_A_TIME, AnyItem, current
from petstore_conformance.model.model import AnyQuery, Model, Stored, Write, created, matching
from petstore_conformance.model.values import BORDERS, MANY_SECONDS, REX

COUNTED_ITERATIONS = 200
"""For so many iterations of the event loop `measure` checks in each if the call has ended."""

WAITING_SECONDS = 0.0001
"""A call that takes longer waits for a thread or a server."""

BUSY_SECONDS = 0.1
"""How much longer a busy server may take for a call whose caller was cancelled."""

SLOW_SECONDS = 0.02
"""A repository is slow if a call takes longer than this, or prolongs others by more."""

LATER_SECONDS = 0.3
"""For how long late effects of cancelled calls are looked for."""

EXACT_TYPES: Final[dict[type, Sequence[tuple[type, ...]]]] = {
    Pet: [(int, str, int, PetStatus), (int, str, int, UnsetType)],
    Order: [(int, int, OrderStatus, datetime)],
    Receipt: [(int, bool)],
    TokenRecord: [(bytes, bytes, int, int)],
}
"""The types of the values in each struct."""

AnyCall = Callable[[], Coroutine[Any, Any, Any]]


class Length(Struct, frozen=True):
    """The length of a call: in iterations of the event loop, and in seconds."""

    iterations: int = 0
    seconds: float = 0.0

    async def wait(self, tenths: float) -> None:
        """Wait for some tenths of it: in iterations if counted, because no timer is that short."""
        if self.iterations > COUNTED_ITERATIONS:
            await asyncio.sleep(self.seconds * tenths / 10)
        else:
            await yield_to_others(round(self.iterations * tenths / 10))


async def create(repository: Repository, new: NewPet, token: IdempotencyToken | None = None) -> Pet:
    """Create a pet; return it as it must be stored."""
    return created((await repository.create_pet(new, token)).id, new)


def one_effect(results: Sequence[object]) -> int:
    """Check that of some writes, all for one effect, exactly one had it; return its id."""
    receipts = [result for result in results if isinstance(result, Receipt)]
    assert [receipt.replayed for receipt in receipts].count(False) == 1, results
    assert len({receipt.id for receipt in receipts}) == 1, results
    return receipts[0].id


def kind(result: object) -> type:
    """Return the type of a result; for a refusal, the class of the contract that it is of.

    Raises an `UnavailableError`, which is judged as such: the machine may be too busy.
    """
    if isinstance(result, UnavailableError):
        raise result
    refusals = (NotFoundError, ConflictError, TokenReusedError)
    return next((refusal for refusal in refusals if isinstance(result, refusal)), type(result))


async def measure(call: Coroutine[Any, Any, Any]) -> tuple[Length, Any]:
    """Make a call; return how long it takes, and its result, or None if it was refused."""
    time = asyncio.get_running_loop().time
    begin, iterations = time(), 0
    task = asyncio.ensure_future(call)
    while not task.done():
        iterations += 1
        await asyncio.sleep(0 if iterations <= COUNTED_ITERATIONS else 0.001)
    length = Length(iterations, time() - begin)
    with suppress(RefusedError):
        return length, await task
    return length, None


async def sample(
    repository: Repository, items: Sequence[AnyItem], *, together: bool = False, reads: bool = False
) -> Sequence[AnyItem]:
    """Return the items that there is time for: all of them, unless the repository is slow.

    together -- whether the calls for several items overlap, so that only the time counts by which
        each prolongs the others
    reads -- whether the calls only read, so that slow writes do not matter
    """
    seconds = await _read_seconds(repository)
    if seconds > SLOW_SECONDS:  # something else may have held it up
        seconds = await _read_seconds(repository, AT_A_TIME if together else 1)
    if not reads:
        seconds = max(seconds, median(current().write_seconds[together][-100:] or [0]))
    return current().choose(items, min(1, SLOW_SECONDS / seconds))


async def _read_seconds(repository: Repository, count: int = 1) -> float:
    """Read a pet so many times at once; return how long it takes for each."""
    time = asyncio.get_running_loop().time
    begin = time()
    await asyncio.gather(*(repository.get_pet(1) for _ in range(count)))
    return max(time() - begin, 1e-9) / count


async def yield_to_others(times: int = 1) -> None:
    """Let other tasks run, for so many iterations of the event loop."""
    for _ in range(times):
        await asyncio.sleep(0)


def time_limit(seconds: float) -> Callable[[], bool]:
    """Return a function that returns whether so many seconds are not over yet."""
    time = asyncio.get_running_loop().time
    end = time() + seconds
    return lambda: time() < end


async def fill(count: int, make: Callable[[int], Awaitable[AnyItem]]) -> list[AnyItem]:
    """Make items of the first numbers, a hundred at once, for at most `MANY_SECONDS`."""
    made, in_time = list[AnyItem](), time_limit(MANY_SECONDS)
    while len(made) < count and in_time():
        made += await asyncio.gather(*map(make, range(count)[len(made) :][:100]))
    current().note(len(made), count)
    return made


async def each(items: Iterable[AnyItem], try_: Callable[[AnyItem], Awaitable[None]]) -> None:
    """Try each item; several at a time, so that a repository far away takes no longer."""
    left = iter(items)

    async def try_some() -> None:
        for item in left:
            await try_(item)

    await asyncio.gather(*(try_some() for _ in range(AT_A_TIME)))


async def read_each(
    repository: Repository, items: Sequence[AnyItem], read: Callable[[AnyItem], Awaitable[None]]
) -> None:
    """Read what belongs to each item that there is time for, several at a time."""
    await each(await sample(repository, items, together=True, reads=True), read)


async def cancel(calls: Sequence["asyncio.Task[Any]"], *, twice: bool = False) -> list[bool]:
    """Cancel calls, and wait for their end; return for each whether it had ended before."""
    done = [call.done() for call in calls]
    for call in calls:
        call.cancel()
    if twice:
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
    _, hanging = await asyncio.wait(calls, timeout=CANCEL_SECONDS)
    for call in hanging:
        text = f"a cancelled call has not ended within {CANCEL_SECONDS:g} s; it waits here:"
        raise OverdueError(f"{text}\n{stack(call)}")
    return done


async def read_page(repository: Repository, query: AnyQuery) -> list[Any]:
    """Return the page of pets or orders that a query asks for."""
    if isinstance(query, PetQuery):
        return await repository.list_pets(query)
    return await repository.list_orders(query)


def every_filter(after: int, count: int) -> list[AnyQuery]:
    """Return queries of pets and of orders, for each status and for all."""
    pets = [PetQuery(after, count, status) for status in (None, *PetStatus)]
    return [*pets, *(OrderQuery(after, count, status) for status in (None, *OrderStatus))]


async def look_up(repository: Repository, item: Pet | Order) -> tuple[Any, list[Any]]:
    """Return what is found by the id of an item, and on a page of its status that begins there."""
    if isinstance(item, Pet):
        query = PetQuery(item.id - 1, 1, item.status or None)
        return await repository.get_pet(item.id), await repository.list_pets(query)
    orders = OrderQuery(item.id - 1, 1, item.status)
    return await repository.get_order(item.id), await repository.list_orders(orders)


async def check_shown(repository: Repository, item: Pet | Order) -> None:
    """Check that an item is returned by its id, and by a page of its status that begins there."""
    found, listed = await look_up(repository, item)
    assert found == item
    assert listed == [item]


async def check_page(repository: Repository, query: AnyQuery, items: Sequence[Any]) -> None:
    """Check that a page has those of all pets, or of all orders, that the query asks for."""
    assert await read_page(repository, query) == matching(items, query)[: query.count]


async def check_pages(repository: Repository, items: Sequence[Any]) -> None:
    """Check pages of many sizes, given all pets, or all orders, in ascending id."""
    query_type = PetQuery if isinstance(items[0], Pet) else OrderQuery
    all_, *filtered = [one for one in every_filter(0, 1) if isinstance(one, query_type)]

    async def read(numbered: tuple[int, int]) -> None:
        number, count = numbered
        for query in (all_, filtered[number % 3]):
            ids = [0, *(item.id for item in matching(items, query))]
            any_id = items[number % len(items)].id if number % 3 else 0
            # The last two pages end with the last item, and one of them is full. An index may have
            # items of another status behind it.
            for after in (any_id, *ids[-count - 1 :][:2]):
                await check_page(repository, replace(query, after=after, count=count), items)

    await read_each(repository, [*enumerate((*BORDERS, 9999, 40_000, 2**31, 2**63 - 1))], read)


async def read_all(repository: Repository) -> Stored:
    """Return all pets and orders, as two lists show them."""
    pets = await repository.list_pets(PetQuery(0, 9999))
    return Stored(pets, await repository.list_orders(OrderQuery(0, 9999)))


def check_types(items: Iterable[Pet | Order | Receipt | TokenRecord]) -> None:
    """Check that all values have exactly the contract's types, which == does not: 1 == 1.0."""
    for item in items:
        types = tuple(type(value) for value in astuple(item))
        assert types in EXACT_TYPES.get(type(item), ()), item
        assert not isinstance(item, Order) or item.placed_at.utcoffset() == timedelta(0)


async def settle(repository: Repository, length: Length) -> Stored:
    """Return all pets and orders once cancelled calls can no longer take effect.

    A pet is created meanwhile, which a server syncs after what was sent before, however slow its
    disk is.

    length -- how long a call took
    """
    await wait_for_server(length)
    await repository.create_pet(REX)
    return await read_settled(repository)


async def wait_for_server(length: Length) -> None:
    """Wait until a server must have begun what it goes on with for a caller that was cancelled."""
    busy = BUSY_SECONDS if length.seconds > WAITING_SECONDS else 0.01
    await asyncio.sleep(10 * length.seconds + busy)


async def read_settled(repository: Repository) -> Stored:
    """Return all pets and orders when they change no more."""
    time = asyncio.get_running_loop().time
    begin = time()
    stored = await read_all(repository)
    while True:
        reading = time() - begin
        for order in stored.orders[-1:]:  # a write that changes nothing waits for those before it
            with suppress(RefusedError):
                await repository.update_order(order.id, order.status)
        await asyncio.sleep(5 * reading)  # as long as ten calls, for a server that is slower now
        begin = time()
        before, stored = stored, await read_all(repository)
        if stored == before:
            return stored


async def check_no_late_effects(repository: Repository, length: Length) -> Stored:
    """Return all pets and orders, after checking that no call of this length ends too late."""
    stored = await settle(repository, length)
    await asyncio.sleep(LATER_SECONDS)
    if await read_all(repository) != stored:
        raise OverdueError("a call took effect later than it would have otherwise")
    return stored


class Call(Struct):
    """One of several calls that overlap.

    make -- calls the repository
    what -- a write; or the id and new status of an order to update; or the id of an item to read
    result -- what was returned, or the type of the refusal that was raised
    unknown -- whether it may have had its effect or not, because it was cancelled or the repository
        was closed
    """

    make: Callable[[Repository], Coroutine[Any, Any, Any]]
    what: Write | tuple[int, OrderStatus] | tuple[int, type]
    result: Any = None
    unknown: bool = True

    async def run(self, repository: Repository, *, closing: bool = False) -> None:
        """Make the call and keep its result.

        closing -- whether the repository may be closed, and so unavailable, before the call ends
        """
        try:
            self.result = await self.make(repository)
        except RefusedError as refusal:
            self.result = kind(refusal)
        except UnavailableError:
            if not closing:
                raise
            return
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise AssertionError("CancelledError, although nobody cancelled the call") from error
        self.unknown = False


def explain(model: Model, calls: Sequence[Call], stored: Stored) -> Model:
    """Find an order of the calls that explains their results; return the model after it.

    stored -- all pets and orders after the calls

    Raises `AssertionError` if there is no such order.
    """
    __tracebackhide__ = True
    begin = model.copy()  # a write may count as using its token while it is in flight
    begin.reserved += (call.what for call in calls if isinstance(call.what, Write))
    for after in _orders(begin, list(calls), stored):
        if after.pets == stored.pets and after.orders == stored.orders:
            del after.reserved[len(model.reserved) : len(begin.reserved)]
            return after
    old, new = (*model.pets, *model.orders), (*stored.pets, *stored.orders)
    lines = (
        "No order of these overlapping calls explains their results:",
        *(f"  {call.what} -> {'unknown' if call.unknown else call.result}" for call in calls),
        "Stored after them, and not before:",
        *(f"  {item}" for item in new if item not in old),
        "Stored before them, and not after:",
        *(f"  {item}" for item in old if item not in new),
    )
    raise AssertionError("\n".join(lines))


def _orders(model: Model, calls: list[Call], stored: Stored) -> Iterable[Model]:
    """Yield the model after the calls, for each order of them in which they have these results."""
    if not calls:
        yield model
    for index, call in enumerate(calls):
        others = calls[:index] + calls[index + 1 :]
        after = model.copy()
        if _fits(after, call, stored):
            yield from _orders(after, others, stored)
        if call.unknown:  # it may have had no effect
            after = model.copy()
            after.reserved += [call.what] if isinstance(call.what, Write) else []
            yield from _orders(after, others, stored)


def _fits(model: Model, call: Call, stored: Stored) -> bool:
    """Apply a call to the model; return whether it has this result then."""
    what = call.what
    if isinstance(what, Write):
        if call.result is TokenReusedError and model.is_reserved(what):
            return True
        expected = model.expect(what)
        if expected is not None:
            return not call.unknown and bool(call.result == expected)
        if call.unknown:
            return _find(model, what, stored)
        if not isinstance(call.result, Receipt) or call.result.replayed:
            return False
        model.write(what, call.result)
        return True
    id_, change = what
    if isinstance(change, OrderStatus):
        updated = model.update(id_, change)
        return call.unknown or bool(updated == call.result)
    return call.unknown or bool((model.pet if change is Pet else model.order)(id_) == call.result)


def _find(model: Model, write: Write, stored: Stored) -> bool:
    """Apply a write of unknown outcome to the model, if it can be found; return whether it was."""
    if isinstance(new := write.payload, NewPet):
        for pet in stored.pets:
            same = (pet.name, pet.category_id) == (new.name, new.category_id)
            if same and model.pet(pet.id) is None:
                model.write(write, Receipt(pet.id))
                return True
        return False
    for order in stored.orders:
        same = order.pet_id == new and (model.own_clock or order.placed_at == write.at)
        if same and model.order(order.id) is None:
            model.write(replace(write, at=order.placed_at), Receipt(order.id))
            return True
    return False
