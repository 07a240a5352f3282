"""Calls of a repository in this process, whose server is behind a proxy.

Unlike over HTTP, calls can be cancelled, and writes can be made without a token, so that it shows
if one was sent twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import NoneType
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from petstore import contract
from petstore_conformance.clauses.methods import CREATED_NAME, Given, calls_of, give
from petstore_conformance.faults import histories
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.stages import NotRecoveredError
from petstore_conformance.faults.subjects import FaultOptions
from petstore_conformance.faults.verdicts import RoundOutcome
from petstore_conformance.harness.alarm import OverdueError, stack, within
from petstore_conformance.model.calls import AnyCall

CANCELLED_SECONDS: Final = 1  # how long a cancelled call may take to end
_RESTORED: Final = contract.Pet(10**6, "restored", 7, contract.PetStatus.SOLD)

Tasks = dict[str, asyncio.Task[Any]]


@dataclass
class Caller:
    """One repository, and the faults that its calls meet.

    opened -- opens a repository
    outcome -- gets what was done and what was wrong
    """

    options: FaultOptions
    opened: Callable[[], AbstractAsyncContextManager[contract.Repository]]
    proxy: Proxy
    random: Random
    outcome: RoundOutcome
    _numbers: Iterator[int] = field(default_factory=count, init=False)
    _repository: contract.Repository = field(init=False)
    _given: Given = field(init=False)

    async def run(self) -> None:
        """Let the calls of a repository meet each of the faults, in a random order."""
        async with self.opened() as self._repository:
            self._given = replace(await self._give(), items=[_RESTORED])
            parts = [self._cancel, self._stall, self._refuse, self._lose]
            self.random.shuffle(parts)
            for part in parts:
                await part()
                self.proxy.heal()
                await self._recover(part.__name__[1:])

    async def _give(self) -> Given:
        return await give(self._repository, next(self._numbers))

    def _calls(self) -> dict[str, AnyCall]:
        """Return calls of every method, and one that opens another repository."""
        return calls_of(self._repository, self._given) | {"open": self._try_open}

    def _begin_calls(self) -> Tasks:
        """Begin them. If the run is interrupted, asyncio reports no error that nobody retrieved."""
        tasks = {name: asyncio.ensure_future(call()) for name, call in self._calls().items()}
        for task in tasks.values():
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return tasks

    async def _try_open(self) -> None:
        async with self.opened():
            pass

    async def _cancel(self) -> None:
        """Cancel a call of each method, and opening, while the server stalls."""
        self.proxy.frozen = True
        tasks = self._begin_calls()
        await asyncio.sleep(self.random.uniform(0.001, 0.1))
        cancelled = {name: task for name, task in tasks.items() if task.cancel()}
        self.outcome.counts["cancelled"] += len(cancelled)
        if cancelled:
            await self._judge(cancelled, "cancelled", "not cancelled", CANCELLED_SECONDS)

    async def _stall(self) -> None:
        self.proxy.frozen = True
        await self._call_in_time("the server stalls")

    async def _refuse(self) -> None:
        self.proxy.refuse()
        self.proxy.cut()
        await self._call_in_time("connections are refused")

    async def _call_in_time(self, why: str) -> None:
        """Call and open at the same time; each must raise `UnavailableError` in time, or return."""
        tasks = self._begin_calls()
        self.outcome.counts["requests"] += len(tasks)
        expected = contract.UnavailableError, contract.RefusedError
        await self._judge(tasks, why, "too late", self.options.timeout_seconds, *expected)

    async def _judge(
        self, tasks: Tasks, why: str, late: str, seconds: float, *expected: type[BaseException]
    ) -> None:
        """Report calls that do not end in time, or raise another error; heal, and let them end.

        late -- the kind of violation if a call does not end
        """
        _, pending = await asyncio.wait(tasks.values(), timeout=seconds)
        for name, task in tasks.items():
            if task in pending:
                text = f"{name}, {why}: no end within {seconds:g} s; it waits here:"
                self.outcome.found.add(late, f"{text}\n{stack(task)}")
                task.cancel()
            elif not task.cancelled() and not isinstance(task.exception(), (*expected, NoneType)):
                self.outcome.found.add("wrong error", f"{name}, {why}: {task.exception()!r}")
        self.proxy.heal()
        if pending:
            await asyncio.wait(pending, timeout=self.options.timeout_seconds)

    async def _lose(self) -> None:
        """Lose the replies to writes without a token; none may take effect twice, or by half."""
        repository, tried = self._repository, dict[int, int]()
        for name in ("create_pet", "place_order", "update_order"):
            # Of one write the first reply, of the next the second one, until a write has no more.
            for nth in range(1, 21):  # a driver may repeat it again and again
                given = await self._retry(self._give)
                tried[given.number] = nth
                if not await self._lose_nth(name, nth, calls_of(repository, given)[name]):
                    break
        pets = await self._retry(lambda: repository.list_pets(contract.PetQuery(0, 1000)))
        orders = await self._retry(lambda: repository.list_orders(contract.OrderQuery(0, 1000)))
        stored = Counter(pet.category_id for pet in pets if pet.name == CREATED_NAME)
        for number, nth in tried.items():
            if stored[number] > 1:
                text = f"create_pet, reply {nth} lost: {stored[number]} pets are stored"
                self.outcome.found.add("sent twice", text)
        available = [pet for pet in pets if pet.name == "Rex" and pet.status]  # they were at first
        for wrong in histories.wrong_statuses(to_builtins(available), to_builtins(orders)):
            self.outcome.found.add("otherwise wrong", f"after lost replies, {wrong}")

    async def _lose_nth(self, name: str, nth: int, write: AnyCall) -> bool:
        """Make a write, and lose its `nth` reply; return whether it had as many."""
        what = f"{name}, reply {nth} lost"
        self.proxy.drop = nth
        self.outcome.counts["requests"] += 1
        try:
            async with asyncio.timeout(self.options.timeout_seconds) as limit:
                await write()
        except contract.RefusedError as error:
            if not self.proxy.drop:  # it was possible when it was sent for the first time
                self.outcome.found.add("sent twice", f"{what}: {error!r}")
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            if limit.expired():
                self.outcome.found.add("too late", what)
            elif not isinstance(error, contract.UnavailableError):
                self.outcome.found.add("wrong error", f"{what}: {error!r}")
        finally:
            lost, self.proxy.drop = not self.proxy.drop, 0
        return lost

    async def _recover(self, after: str) -> None:
        """Wait until each method returns; it may raise `UnavailableError` before."""
        for name, call in self._calls().items():
            try:
                with suppress(contract.RefusedError):
                    await self._retry(call)
            except NotRecoveredError as error:
                raise NotRecoveredError(f"{name} after {after}: {error}") from None
            except Exception as error:  # noqa: BLE001 - a driver may raise anything
                self.outcome.found.add("wrong error", f"{name} after {after}: {error!r}")

    async def _retry(self, call: AnyCall) -> Any:
        """Call until the storage is available; return the result. Raises `NotRecoveredError`."""
        seconds = self.options.timeout_seconds
        end = time.monotonic() + seconds
        while True:
            self.outcome.counts["requests"] += 1
            try:
                async with within(seconds, "a call"):
                    return await call()
            except (contract.UnavailableError, OverdueError) as error:
                if time.monotonic() > end:
                    raise NotRecoveredError(f"not within {seconds:g} s: {error!r}") from None
            await asyncio.sleep(0.02)
