"""Clauses of locations that several processes open, and of processes that are killed."""

import asyncio
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import partial
from itertools import count, permutations, product
from math import ceil
from operator import methodcaller
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    Access,
    Expected,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Repository,
    UnavailableError,
)
from petstore_conformance.clauses.costs import HELD_SECONDS, longest_hold
from petstore_conformance.clauses.durability import check_acknowledged, read_what_is_written
from petstore_conformance.clauses.methods import attempt
from petstore_conformance.clauses.orders import (
    FINAL_STATUSES,
    add_pet,
    check_agreement,
    place_orders,
    sell_once,
)
from petstore_conformance.clauses.restore import HIGHEST
from petstore_conformance.clauses.sharing import create_at_once, only_read, write_each_kind
from petstore_conformance.harness.alarm import OverdueError, within
from petstore_conformance.harness.child import Child, child, opened_meanwhile
from petstore_conformance.harness.cores import Cores
from petstore_conformance.harness.effort import current, measure, time_limit
from petstore_conformance.harness.kit import Kit, Location, location_clause
from petstore_conformance.harness.served import open_new
from petstore_conformance.model.calls import Call, cancel, create, explain, watch, write_once
from petstore_conformance.model.model import Model, Payload, Write, created, send
from petstore_conformance.model.reads import check_shown, read_all
from petstore_conformance.model.values import AT, REX, make_token

KILLS: Final = 20  # at most so many processes are killed after a step: of SQL, after each third
KILLING_SECONDS = 15  # after this time no more of them are started
NUMBERS: Final = count()  # those of the processes that are killed
PAUSES: Final = 14  # a process is paused after writes below this: the first two, then every second
FEW_STEPS: Final = 2  # in a call: its driver may make others that are not seen, so time is used
FRACTIONS: Final = (0.2, 0.4, 0.6, 0.8)  # of a call: when the process is paused or killed then
MEETINGS: Final = 20  # how often two processes write the same at once, wherever they are then
LOCKED_SECONDS: Final = 1.5  # how long one keeps its locks: some engines wait for a second

Change = Write | tuple[int, OrderStatus]  # the id of an order, and its new status


def call_of(change: Change) -> Call:
    """Return the call that makes a change."""
    if isinstance(change, Write):
        token = Model([], []).token(change)
        return Call(partial(send, payload=change.payload, token=token), change)
    return Call(methodcaller("update_order", *change), change)


async def change_beside(one: Repository, other: Child, moment: float, *changes: Change) -> bool:
    """Make the first change in a process, and the others here while that is paused.

    moment -- when it is paused, as of `Child.paused_at`; returns whether it was
    """
    stored, calls = await read_all(one), [*map(call_of, changes)]
    async with other.paused_at(calls[0].run(other), moment) as changing:
        is_paused = not changing.done()
        for call in calls[1:]:
            await call.run(one)
    await changing
    explain(Model(stored.pets, stored.orders), calls, await read_all(one))
    return is_paused


async def cancel_while_it_waits(repository: Repository, pet_id: int) -> None:
    """Order a pet often at once; if that takes long, read it, and cancel all calls but one."""
    call = partial(attempt, partial(repository.place_order, pet_id, AT))
    update = partial(repository.update_order, MAX_ID, OrderStatus.CANCELLED)
    calls = (*[call] * 20, partial(repository.create_pet, REX), partial(attempt, update))
    cancelled, kept, *others = (asyncio.create_task(make()) for make in calls)
    await asyncio.wait({cancelled, kept}, timeout=0.1)
    reading = asyncio.create_task(repository.get_pet(pet_id))
    async with within(LOCKED_SECONDS / 2, "a cancelled call that waits for another process"):
        await cancel([cancelled, *others])
    await asyncio.gather(kept, reading, read_all(repository), repository.check())


class ProcessClauses(Kit):
    """Clauses of `Backend` for which a second process is started."""

    @location_clause("shared-processes", needs="shared")
    async def test_two_processes_share_a_location(self, location: Location) -> None:
        """A lock, counter, cache or time is local to a process, or two share a scratch location."""
        async with location.open() as one, child(location) as other:
            assert other.store == one.store, "each process has an identity of its own"
            await create_at_once((one, other), 40)
            await self._write_the_same(one, other)
            await check_agreement(other)
            await only_read(one, other)
            await only_read(other, one)
            await self._write_long_names(one, other)
        await self._pause_between_steps(location)
        await self._make_new_locations(location)
        steps = await self._open_at_once(location, MAX_ID)
        for step in current().random.sample(range(1, steps + 1), min(steps, 3)):
            await self._open_at_once(location, step)

    async def _write_the_same(self, one: Repository, other: Repository) -> None:
        """Make the same writes in two processes at once: each takes effect once, for both."""
        length, _ = await measure(other.create_pet(REX))
        for number in range(MEETINGS):
            writer, reader = (one, other) if number % 2 else (other, one)
            # The process that is farther away begins up to the length of two calls earlier.
            names = (f"create {number} {n}" for n in range(5))  # some may meet on the way
            writes = (write_once((other, one), REX, name, length, number) for name in names)
            pet_id, *_ = await asyncio.gather(*writes)
            await check_shown(reader, created(pet_id, REX))
            order = await sell_once(writer, reader, pet_id, begin_with_token=number % 4 < 2)
            assert order.placed_at == AT, "one process stores its local time"
            for handle in (one, other):
                await check_shown(handle, order)

    async def _write_long_names(self, one: Repository, other: Repository) -> None:
        """Write so much that half of it may be in a file, or the file is larger than expected."""
        long = NewPet(self.long_name(2**20), 7)
        for _ in range(3):
            writing = partial(asyncio.gather, create(other, long), create(one, long))
            for pet in await watch(writing, [partial(one.get_pet, 1)]):
                for handle in (one, other):
                    await check_shown(handle, pet)
        await check_shown(one, await create(other, NewPet(self.long_name(2**24), 7)))

    async def _open_at_once(self, location: Location, step: int) -> int:
        """Open a new location while another process pauses that does so; return its steps."""
        async with location.new() as new, AsyncExitStack() as stack:
            folder, handles = stack.enter_context(TemporaryDirectory()), list[Repository]()

            async def open_it() -> None:
                handles.extend(await stack.enter_async_context(new.open_several(1, folder)))

            paused = opened_meanwhile(new, folder, step, open_it)
            handles.append(other := await stack.enter_async_context(paused))
            steps = other.writes
            assert handles[0].store == other.store, "each process makes a store"
            # Calls are in flight while the other process notes more than they see.
            checks = [handle.check for handle in handles]
            await watch(partial(create_at_once, handles, 40), checks * 8)
            return steps

    async def _wait_for_a_lock(self, one: Repository, other: Child, times: list[float]) -> None:
        """Make calls while another process stands still that has locked what they need."""
        holds, current().cores = list[float](), Cores()  # how busy it was before does not matter
        for moment in (*range(1, PAUSES), *times):
            pet_id, begin = await add_pet(one), monotonic()
            ordering = attempt(partial(other.place_order, pet_id, AT))
            async with other.paused_at(ordering, moment, LOCKED_SECONDS) as paused:
                waiting = asyncio.create_task(cancel_while_it_waits(one, pet_id))
                held = await longest_hold(partial(asyncio.wait, [waiting]))
            await paused
            if (error := waiting.exception()) and held < HELD_SECONDS:
                raise error
            if monotonic() > begin + LOCKED_SECONDS / 2:  # it has waited
                holds.append(held)
                if held < HELD_SECONDS or len(holds) == 3:  # a busy machine may hold it, too
                    break
        if min(holds, default=0) >= HELD_SECONDS:
            raise OverdueError(f"the event loop waits for another process: {holds} seconds")

    async def _pause_between_steps(self, location: Location) -> None:
        """Make writes while another process stands still between two steps of such a write."""
        async with location.new() as new, new.open() as one, child(new, last_write=0) as other:
            _, (length, _) = [await measure(other.create_pet(REX)) for _ in range(2)]
            times = [part * length.seconds for part in FRACTIONS]
            steps = (1, 2, *range(3 + current().random.randrange(2), PAUSES, 2))
            seen = [step for step in steps if await self._pause(one, other, step)]
            for moment in times if len(seen) < FEW_STEPS else ():
                await self._pause(one, other, moment)
            await self._wait_for_a_lock(one, other, times)
            await add_pet(other)  # the lock is not kept for a call that was cancelled
            await check_agreement(one)

    async def _pause(self, one: Repository, other: Child, moment: float) -> bool:
        """Pause another process in writes of each kind, and make others; return whether it was."""
        pet_id, placed = await add_pet(one), await place_orders(one, 2)
        creating, placing = Write(REX, f"{moment}"), Write(pet_id, f"{moment}")
        trials: list[list[Change]] = [[creating] * 2, [placing, Write(pet_id), placing]]
        for order, statuses in zip(placed, permutations(FINAL_STATUSES), strict=True):
            trials.append([*((order.id, to) for to in statuses), Write(order.pet_id)])
        return any([await change_beside(one, other, moment, *trial) for trial in trials])

    async def _make_new_locations(self, location: Location) -> None:
        """Let two processes make their first new location: each must have its own."""
        backend = replace(location.backend, open=partial(open_new, location.backend))
        new = Location(backend, self.settings)
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory())
            made = (child(new, notes=folder, closes=True) for _ in range(2))
            one, other = await asyncio.gather(*map(stack.enter_async_context, made))
            await add_pet(one)
            assert await other.list_pets(PetQuery(0, 9)) == []
            async with child(new, closes=True) as third:
                assert await third.list_pets(PetQuery(0, 9)) == []
                await add_pet(third)
                assert len({one.store, other.store, third.store}) == 3, "two have one identity"
            assert len(await one.list_pets(PetQuery(0, 9))) == 1

    @location_clause("durable-killed", needs="durable")
    async def test_what_was_acknowledged_survives_a_kill(self, location: Location) -> None:
        """Writes are saved on closing, by a timer, or in several steps."""
        if not location.backend.shared:  # otherwise another clause does so
            await self._make_new_locations(location)
        steps, lengths = await self._write_and_kill(location)
        every = max(1, ceil(steps / KILLS))  # each step, or each n-th if there are too many
        first = 1 + current().random.randrange(every)  # the seed chooses it
        calls = {"update": 1, "restore": 2, "or refused": 2, "create": 4, "place": 5, "cancel": 7}
        endings: list[Any] = [{"others": 40}, *({"last_call": n} for n in calls.values())]
        endings += [{"others": 40, "last_call": n} for n in (17, 22)]  # an equal update, or create
        endings += [{"step": step} for step in range(first, steps + 1, every)]
        if steps < FEW_STEPS * len(lengths):
            lengths.insert(1, lengths[-1])  # later ones also update an order of the last process
            timed = product(enumerate(lengths), FRACTIONS)
            endings += [{"last_call": n, "after": part * length} for (n, length), part in timed]
        left, in_time = enumerate(endings), time_limit(KILLING_SECONDS)

        async def kill_some(place: Location, *survivors: Repository) -> None:
            for number, ending in left:  # each ending is tried in one of both places
                if not in_time():
                    current().note(number, len(endings))
                    break
                await self._write_and_kill(place, *survivors, **ending)

        async with location.new() as second, AsyncExitStack() as stack:
            opening = [second.open()] if location.backend.shared else []
            survivors = [await stack.enter_async_context(opened) for opened in opening]
            kills = kill_some(location), kill_some(second, *survivors)  # one while another writes
            killing = [*map(asyncio.create_task, kills)]
            try:
                await asyncio.gather(*killing)
            finally:
                await cancel(killing)
        # Long names are written for a while, perhaps those of several pets together.
        creates: list[Payload] = [*[NewPet(self.long_name(2**20), 7)] * 7, REX]
        for orders in (True, False, False, False):
            async with child(location) as killed:  # as soon as a call shows what it is writing
                pet_id = await add_pet(killed)
                payloads: list[Payload] = [pet_id] if orders else creates
                changed_id = pet_id if orders else min(pet_id + len(creates), MAX_ID)
                seen = await read_what_is_written(killed, payloads, changed_id, lists=orders)
            async with location.open(Expected(access=Access.WRITE)) as repository:
                check_acknowledged(seen, await read_all(repository))
                await check_agreement(repository)

    async def _write_and_kill(
        self,
        location: Location,
        *survivors: Repository,
        step: int = 0,
        after: float = 0,
        others: int = 0,
        last_call: int | None = None,
    ) -> tuple[int, list[float]]:
        """Write in a process that is killed, and compare; return its steps, and its `lengths`.

        survivors -- one that was open all the time, or none: the location is opened again
        step -- after which of its writes to a file or a server it ends; 0 is after all calls
        last_call -- the number of the call after whose result it ends
        after -- if not 0, it ends so many seconds after that call has begun
        others -- how many creates are in flight then, and, for each twenty, two equal updates
        """
        number = next(NUMBERS)
        name, free_id = f"killed {number}", HIGHEST + number * 10**6  # above all that are assigned
        acknowledged, refused = list[Pet | Order](), number % 2 == 0  # in every second process
        async with child(location, last_write=step, last_call=last_call, after=after) as killed:
            with suppress(UnavailableError):
                for order in await killed.list_orders(OrderQuery(0, 1, OrderStatus.PLACED)):
                    acknowledged.append(await killed.update_order(order.id, OrderStatus.COMPLETED))
                async for items in write_each_kind(killed, name, [free_id], refused=refused):
                    acknowledged += items
            placed = await place_orders(killed, others // 20)
            twice = [*placed, *placed]  # the second time, nothing changes
            writes: list[Any] = [killed.update_order(it.id, OrderStatus.COMPLETED) for it in twice]
            for new in [NewPet("in flight", n // 2) for n in range(others)]:  # each of them twice
                token = make_token(f"{name} {new}", new) if new.category_id % 2 else None
                writes.append(create(killed, new, token))
            tasks = [asyncio.create_task(write) for write in writes]
            finished = asyncio.gather(*tasks, return_exceptions=True)
            if tasks:
                until = asyncio.ALL_COMPLETED if last_call else asyncio.FIRST_COMPLETED
                await asyncio.wait(tasks, return_when=until)
            await killed.kill()
        for result in await finished:
            assert isinstance(result, Pet | Order | UnavailableError), result
            acknowledged += [result] if isinstance(result, Pet | Order) else []
        again = nullcontext(survivors[0]) if survivors else location.open()
        async with again as repository:
            stored = await read_all(repository)
            check_acknowledged(acknowledged, stored)
            await check_agreement(repository)
            (order,) = await place_orders(repository)  # the next process completes it
            for assigned, kept in ((order.pet_id, stored.pets), (order.id, stored.orders)):
                known = {item.id for item in kept}
                assert assigned not in known
                assert assigned > free_id or free_id not in known, "what is restored does not count"
            # The same writes with the same tokens: what was stored before is not stored twice.
            async for items in write_each_kind(repository, name, [free_id], refused=refused):
                acknowledged += items
            stored = await read_all(repository)
            check_acknowledged(acknowledged, stored)
            pets = [pet for pet in stored.pets if pet.name == name]
            assert [pet.status for pet in pets] == [PetStatus.SOLD]
            statuses = [order.status for order in stored.orders if order.pet_id == pets[0].id]
            assert sorted(statuses) == [OrderStatus.CANCELLED, OrderStatus.COMPLETED]
        return killed.writes, killed.lengths
