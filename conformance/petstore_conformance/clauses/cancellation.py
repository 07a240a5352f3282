"""Clauses of cancelled calls: each method, at every tenth of the time that it takes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from functools import partial
from itertools import count, islice
from operator import attrgetter
from typing import Any, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
)
from petstore_conformance.clauses.methods import CREATED_NAME, attempt, calls_of, give
from petstore_conformance.clauses.orders import add_pet, check_agreement, place_at
from petstore_conformance.clauses.pets import check_lives
from petstore_conformance.clauses.restore import pet_and_order
from petstore_conformance.harness.alarm import CANCEL_SECONDS, LateEffectError, within
from petstore_conformance.harness.effort import (
    SLOW_SECONDS,
    WRITES,
    Length,
    current,
    measure,
    sample,
    time_limit,
    yield_to_others,
)
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import (
    AnyCall,
    cancel,
    check_no_late_effects,
    create,
    settle,
    wait_for_server,
)
from petstore_conformance.model.model import Stored
from petstore_conformance.model.reads import look_up, read_all, read_each
from petstore_conformance.model.values import AT, NOW, REX

TRIAL_SECONDS = 15.0  # then no trial begins: a slow repository is cancelled at fewer moments
ENDED: Final = 10
# When calls are cancelled: in this order, even a few trials are spread over a call.
TENTHS: Final = (5, 0, 9, ENDED, 2, 14, 7, 4, 1, 8, 3, 6)  # one that waits for others takes longer
MANY_CALLS: Final = 200  # how many calls are cancelled together: a pool has fewer connections
LARGE_PAGE: Final = 1000  # how many pets are on a page that a backend may read in several parts


class Trial(Struct):
    """A method and a moment at which its calls are cancelled.

    number -- counts the trials, so that each can use names of its own
    make -- makes a call; if it writes, all calls of a trial write to the same pet or order
    length -- how long it takes when it is not cancelled
    tenth -- when it is cancelled, in tenths of this; `ENDED` is once the first of several ends
    """

    number: int
    name: str
    make: AnyCall
    length: Length
    tenth: int

    async def cancel(self, count: int = 1, *, twice: bool = False) -> bool:
        """Make calls at the same time and cancel them; return whether all raise `CancelledError`.

        Those that have ended before need not.
        """
        if self.tenth == ENDED and count > 1:
            return await self._cancel_at_the_end(count)
        calls = [asyncio.create_task(self.make()) for _ in range(count)]
        await self.length.wait(self.tenth)
        ended = await cancel(calls, twice=twice)
        return [call.cancelled() for call in calls] == [not done for done in ended]

    async def _cancel_at_the_end(self, count: int) -> bool:
        """Make calls; when the first ends, cancel the others in the same iteration of the loop."""
        cancelled: list[asyncio.Task[Any]] = []

        async def first() -> None:
            await attempt(self.make)
            cancelled.extend(call for call in others if call.cancel())

        leading = asyncio.create_task(first())
        others = [asyncio.create_task(self.make()) for _ in range(count - 1)]
        await self.finish(leading)
        await cancel(others)
        return all(call.cancelled() for call in cancelled)

    async def finish(self, result: Awaitable[Any]) -> Any:
        """Wait for a result, which must not hang."""
        async with within(CANCEL_SECONDS + 50 * self.length.seconds, "a call"):
            return await result


async def trials(kit: Kit, repository: Repository, *, writes: bool = False) -> AsyncIterator[Trial]:
    """Yield a trial of each method, or of each that writes, for each tenth, while there is time."""
    in_time, lengths, numbers = time_limit(TRIAL_SECONDS), dict[str, Length](), count(1)
    calls = calls_of(repository, await give(repository, 0), remote=kit.remote)
    names = [name for name in calls if name.startswith((*WRITES, "restore")) or not writes]
    for tenth in (None, *TENTHS):
        giving = (give(repository, number) for number in islice(numbers, len(names)))
        for name, given in zip(names, await asyncio.gather(*giving), strict=True):
            if not in_time():
                current().note(given.number, len(names) * (1 + len(TENTHS)))
                return
            await repository.get_order(given.order_id)  # it may be cached; so may these pets
            await asyncio.gather(*map(repository.get_pet, (given.pet_id, given.ordered_id)))
            call = calls_of(repository, given)[name]
            if name == "restore":
                stored = await read_all(repository)
                ids = stored.free_ids(max(stored.ids) if given.number % 2 else 0)
                items = [item for id_ in islice(ids, 3) for item in pet_and_order(id_)]
                call = partial(repository.restore, items)
            elif name == "update_order, to cancelled" and not kit.remote:
                # The order is far from its pet, and neither has an id that may be assigned next.
                pet = Pet(2**33 * given.number + 2**32, "distant", 7, PetStatus.PENDING)
                order = Order(pet.id + 2**45, pet.id, OrderStatus.PLACED, AT)
                await repository.restore([pet, order])
                call = partial(repository.update_order, order.id, OrderStatus.CANCELLED)
            if tenth is None:
                lengths[name], _ = await measure(call())
            else:
                yield Trial(given.number, name, call, lengths[name], tenth)


class CancellationClauses(Kit):
    """Clauses of all methods of `Repository`, when their calls are cancelled."""

    @location_clause("cancelled-write")
    async def test_a_cancelled_write_takes_effect_completely_or_not_at_all(
        self, location: Location
    ) -> None:
        """A pet and its order are stored in two steps, or an effect comes much later."""
        async with location.open_several(2) as handles:  # the other one may show more of a write
            await self._cancel_writes(handles[0], handles[-1])

    async def _cancel_writes(self, repository: Repository, reader: Repository) -> None:
        tried, seen = list[Trial](), set[int]()
        async for trial in trials(self, repository, writes=True):
            await read_all(repository)  # it may cache what it returns, until it is changed
            await trial.cancel()
            tried.append(trial)
            shown = set[int]()
            for tenths in (0, 10):  # at once, and when the call would have ended
                await trial.length.wait(tenths)
                for one in (repository, reader):
                    shown |= {pet.id for pet in await one.list_pets(PetQuery(0, 9998))}
            seen |= {pet.id for pet in await repository.list_pets(PetQuery(0, 9999))}
            assert shown <= seen, "a later page lacks what an earlier one has"
            for one in (reader, repository):  # first where nothing is left of the cancelled call
                assert await add_pet(one) not in seen, "an id is assigned again"
        longest = partial(max, key=attrgetter("seconds"), default=Length())
        await settle(repository, longest(it.length for it in tried))
        for trial in [it for it in tried if it.name.endswith("token")]:
            id_ = (await trial.make()).id
            get = repository.get_pet if trial.name.startswith("create") else repository.get_order
            assert await get(id_), f"the token of {trial.name} is recorded without its effect"
        longest_write = longest(it.length for it in tried if it.name.startswith(WRITES))
        for ahead in (0, 5):  # as soon as they begin, and while they wait for others
            stored = await self._look_for_late_effects(repository, longest_write, ahead)
        created = [pet for pet in stored.pets if pet.name == CREATED_NAME]
        assert {pet.status for pet in created} <= {PetStatus.SOLD}
        assert [await repository.get_pet(pet.id) for pet in created] == created
        pets = {pet.id: pet for pet in stored.pets}
        orders = {order.id: order for order in stored.orders}

        async def read(id_: int) -> None:  # it is found by its id if, and only if, it is listed
            assert await repository.get_pet(id_) == pets.get(id_)
            assert await repository.get_order(id_) == orders.get(id_)

        await read_each(repository, [*{*range(1, 100), *stored.ids}], read)
        for one in (reader, repository):  # on the pages of each status, too
            await check_agreement(one)

    async def _look_for_late_effects(
        self, repository: Repository, length: Length, ahead: int
    ) -> Stored:
        """Cancel one write of each kind, behind so many others; return what is stored then."""
        for number in range(5):  # a server may be slow by chance
            calls = calls_of(repository, await give(repository, -1 - number - ahead))
            writes = [call for name, call in calls.items() if name.startswith(WRITES)]
            others = [asyncio.create_task(add_pet(repository)) for _ in range(ahead)]
            await yield_to_others()
            tasks = [asyncio.create_task(attempt(call)) for call in writes]
            await yield_to_others()
            await cancel(tasks)
            await asyncio.gather(*others)
            await wait_for_server(length)
            before = await read_all(repository)
            stored = await check_no_late_effects(repository, length)
            if len({*stored.pets, *stored.orders} - {*before.pets, *before.orders}) == 1:
                return stored  # nothing has come with the one that was written meanwhile
        raise LateEffectError("a call took effect later than it would have otherwise: in the next")

    @clause("cancellation")
    async def test_a_cancelled_call_raises_cancelled_error(self, repository: Repository) -> None:
        """A bare except or a retry loop swallows CancelledError, and the call continues."""
        async for trial in trials(self, repository):
            together = trial.number % 2 == 1 and trial.name != "restore"
            trying = trial.cancel(6 if together else 1, twice=trial.number % 3 == 0)
            cancelling = asyncio.create_task(trying)
            await yield_to_others()  # those to be cancelled come first
            others = [repository.get_pet(1), repository.create_pet(REX)] if together else []
            beside = asyncio.gather(*others, return_exceptions=True)
            assert await cancelling, trial.name
            await trial.finish(beside)
        for _ in range(5):  # the others may end meanwhile by chance
            if not await self._cancel_the_last(repository):
                return
        raise AssertionError("it waits for the end of calls that were made before it")

    async def _cancel_the_last(self, repository: Repository) -> bool:
        """Cancel the last of many writes; return whether it ends late, after most of the others."""
        alone, _ = await measure(repository.create_pet(REX))
        numbers = await sample(repository, range(400), together=True)
        *others, last = [asyncio.create_task(repository.create_pet(REX)) for _ in (0, *numbers)]
        await yield_to_others()
        ending, _ = await measure(cancel([last]))
        most = sum(other.done() for other in others) > len(others) / 2
        await asyncio.gather(*others)
        return most and ending.seconds > SLOW_SECONDS + 5 * alone.seconds

    @location_clause("after-cancellation")
    async def test_a_cancelled_call_disturbs_no_other_call(self, location: Location) -> None:
        """A lock is not released, or a connection is reused with an unread reply in it."""
        async with location.open() as repository:
            await self._cancel_beside_others(repository)
        for iterations in (1, 3, 9):  # the first calls are cancelled while it may still connect
            async with location.open() as repository:
                local = repository.check, partial(repository.list_tokens, "", 9, NOW)
                once: list[AnyCall] = [] if self.remote else [*local]
                for make in (partial(repository.get_pet, 1), partial(repository.create_pet, REX)):
                    calls = [asyncio.create_task(it()) for it in (*once, *[make] * MANY_CALLS)]
                    await yield_to_others(iterations)
                    others = asyncio.gather(*calls[-9:], return_exceptions=True)
                    await cancel(calls[:-9])
                    assert not any(isinstance(it, BaseException) for it in await others), "beside"
                async with within(CANCEL_SECONDS, "a call after cancelled ones"):
                    await asyncio.gather(check_lives(repository, [REX]), *(it() for it in once))

    async def _cancel_beside_others(self, repository: Repository) -> None:
        """Cancel calls of each method while others are in flight, which return as usual."""
        stored = [Pet(await add_pet(repository), "Rex", 7, PetStatus.AVAILABLE) for _ in range(3)]
        written: dict[tuple[type, int], Any] = {(Pet, pet.id): pet for pet in stored}
        many = len(await sample(repository, range(MANY_CALLS), together=True))
        together = {TENTHS[0]: many, ENDED: 40}  # so that some wait for a connection
        async for trial in trials(self, repository):
            is_restore = trial.name == "restore"  # then no other write may overlap it
            usual = trial.tenth % 2, together.get(trial.tenth, 6), 2, 4
            before, cancelled, after, creates = (0, 1, 0, 0) if is_restore else usual
            reads = [asyncio.create_task(repository.get_pet(pet.id)) for pet in stored]
            equal = [asyncio.create_task(attempt(trial.make)) for _ in range(before)]
            cancelling = asyncio.create_task(trial.cancel(cancelled, twice=trial.tenth % 3 == 1))
            await yield_to_others()  # those to be cancelled come first, and may lead a group
            equal += [asyncio.create_task(attempt(trial.make)) for _ in range(after)]
            news = [NewPet(f"{trial.number}", n, PetStatus.SOLD) for n in range(creates)]
            writes: list[Coroutine[Any, Any, Any]] = [create(repository, new) for new in news]
            if trial.name.startswith("place"):  # as many as are cancelled, which may take ids back
                writes += [place_at(repository, AT) for _ in range(6)]
            writing = asyncio.gather(*writes)
            await cancelling
            if is_restore and trial.number % 2:  # the next one must not get the reply to this one
                with pytest.raises(ConflictError):
                    await trial.finish(repository.restore([replace(stored[0], name="another")]))
            assert await trial.finish(asyncio.gather(*reads)) == stored, trial.name
            await trial.finish(asyncio.gather(*equal))
            items = [*stored, *await trial.finish(writing)]
            found = await trial.finish(asyncio.gather(*(look_up(repository, it) for it in items)))
            assert [item for item, _ in found] == items, trial.name
            for item in items:
                first = written.setdefault((type(item), item.id), item)
                assert first is item, "an id is assigned twice"
            new = NewPet(f"after {trial.name}", trial.number, PetStatus.AVAILABLE)
            await trial.finish(check_lives(repository, [new]))
        if not self.remote:
            await self._cancel_large_pages(repository)
        await check_agreement(repository)
        shown = await read_all(repository)
        assert {*written.values()} <= {*shown.pets, *shown.orders}
        created = {it for it in written.values() if isinstance(it, Pet)}
        names = {pet.name for pet in created} - {"Rex"}
        twice = [pet for pet in shown.pets if pet.name in names and pet not in created]
        assert not twice, "a write that nobody cancelled was made twice"

    async def _cancel_large_pages(self, repository: Repository) -> None:
        """Cancel large pages; a cursor that stays open shows later reads an old store."""
        free = (await read_all(repository)).free_ids()
        await repository.restore([Pet(next(free), "restored", n) for n in range(LARGE_PAGE)])
        query = PetQuery(0, LARGE_PAGE)
        length, _ = await measure(repository.list_pets(query))
        for tenth in await sample(repository, TENTHS):
            pages = [asyncio.create_task(repository.list_pets(query)) for _ in range(4)]
            await length.wait(tenth)
            await cancel(pages)
            pet_id = await add_pet(repository)
            found = await asyncio.gather(*(repository.get_pet(pet_id) for _ in range(20)))
            assert None not in found, "a read shows the store as it was when a page was cancelled"
