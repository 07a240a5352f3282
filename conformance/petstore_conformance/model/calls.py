"""Calls that overlap or are cancelled, and the search for an order that explains their results."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    OrderStatus,
    Pet,
    Receipt,
    RefusedError,
    Repository,
    TokenReusedError,
    UnavailableError,
)
from petstore_conformance.harness.alarm import CANCEL_SECONDS, LateEffectError, OverdueError, stack
from petstore_conformance.harness.effort import Length, yield_to_others
from petstore_conformance.model.model import Model, Payload, Stored, Write, created, send
from petstore_conformance.model.reads import read_all
from petstore_conformance.model.values import PAST, REX, make_token

BUSY_SECONDS = 0.03  # how much longer a server may take for a call whose caller was cancelled
LATER_SECONDS = 0.3  # for how long late effects of cancelled calls are looked for
READERS = 8  # how many read during a change while it is made

AnyCall = Callable[[], Coroutine[Any, Any, Any]]

AnyResult = TypeVar("AnyResult")


async def create(repository: Repository, new: NewPet, token: IdempotencyToken | None = None) -> Pet:
    """Create a pet; return it as it must be stored."""
    return created((await repository.create_pet(new, token)).id, new)


def one_effect(results: Sequence[object]) -> int:
    """Check that of some writes, all for one effect, exactly one had it; return its id."""
    receipts = [result for result in results if isinstance(result, Receipt)]
    assert [receipt.replayed for receipt in receipts].count(False) == 1, results
    assert len({receipt.id for receipt in receipts}) == 1, results
    return receipts[0].id


async def write_once(
    handles: Sequence[Repository], payload: Payload, name: str, length: Length, tenths: float
) -> int:
    """Make one write with one token through every handle, twice each; return its id.

    length -- that of a write; the calls of the next handle begin some tenths of it later
    """
    token, writes = make_token(name, payload), list[asyncio.Task[Receipt]]()
    if tenths % 2:  # every second time, the record of an earlier write with it has expired
        await handles[0].create_pet(REX, replace(token, now=PAST, until=PAST + 1))
    for handle in handles:
        writes += [asyncio.create_task(send(handle, payload, token)) for _ in range(2)]
        await length.wait(tenths)
    return one_effect(await asyncio.gather(*writes))


def kind(result: object) -> type:
    """Return the type of a result; for a refusal, the class of the contract that it is of.

    Raises an `UnavailableError`, which is judged as such: the machine may be too busy.
    """
    if isinstance(result, UnavailableError):
        raise result
    refusals = (NotFoundError, ConflictError, TokenReusedError)
    return next((refusal for refusal in refusals if isinstance(result, refusal)), type(result))


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


async def watch(change: Callable[[], Awaitable[AnyResult]], reads: Sequence[AnyCall]) -> AnyResult:
    """Make a change and return its result; meanwhile make other calls, each again and again.

    Each begins an iteration of the event loop later than the one before it, so that some are made
    between any two steps.
    """
    changing = True

    async def read_again_and_again(delay: int, read: AnyCall) -> None:
        await yield_to_others(delay)
        while changing:
            await read()
            await yield_to_others()  # the reads may never do so

    reading = [asyncio.create_task(read_again_and_again(*read)) for read in enumerate(reads)]
    try:
        await yield_to_others(len(reads))
        result = await change()
    finally:
        changing = False
        failures = await asyncio.gather(*reading, return_exceptions=True)
    for failure in failures:
        if failure is not None:
            raise failure
    return result


async def settle(repository: Repository, length: Length) -> Stored:
    """Return all pets and orders once cancelled calls can no longer take effect.

    A pet is created meanwhile, which a server with a slow disk syncs after what was sent before.

    length -- how long a call took
    """
    await wait_for_server(length)
    await repository.create_pet(REX)
    return await read_settled(repository)


async def wait_for_server(length: Length) -> None:
    """Wait until a server must have begun what it goes on with for a caller that was cancelled."""
    for _ in range(10):  # if the machine is busy, each part of it ends late, as the server does
        await asyncio.sleep(length.seconds + BUSY_SECONDS / 10)


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
        raise LateEffectError("a call took effect later than it would have otherwise")
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
    """Find a sequence of the calls that explains their results; return the model after it.

    stored -- all pets and orders after the calls

    Raises `AssertionError` if there is none.
    """
    __tracebackhide__ = True
    begin = model.copy()  # a write may count as using its token while it is in flight
    begin.reserved += (call.what for call in calls if isinstance(call.what, Write))
    for after in _sequences(begin, list(calls), stored):
        if after.pets == stored.pets and after.orders == stored.orders:
            del after.reserved[len(model.reserved) : len(begin.reserved)]  # they have ended
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


def _sequences(model: Model, calls: list[Call], stored: Stored) -> Iterable[Model]:
    """Yield the model after each sequence of the calls in which they have these results."""
    if not calls:
        yield model
    for index, call in enumerate(calls):
        others = calls[:index] + calls[index + 1 :]
        after = model.copy()
        if _fits(after, call, stored):
            yield from _sequences(after, others, stored)
        if call.unknown:  # it may have had no effect
            after = model.copy()
            after.reserved += [call.what] if isinstance(call.what, Write) else []
            yield from _sequences(after, others, stored)


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
