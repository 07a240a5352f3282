"""Calls of a repository in this process, whose server is behind a proxy.

Unlike over HTTP, calls can be cancelled, and writes can be made without a token, so that it shows
if one was sent twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from msgspec import to_builtins

from petstore.contract import (
    MAX_ID,
    NewPet,
    NotFoundError,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    RefusedError,
    Repository,
    UnavailableError,
)
from petstore_conformance.faults import histories
from petstore_conformance.faults.options import FaultOptions
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.stages import NotRecoveredError
from petstore_conformance.faults.verdicts import RoundOutcome
from petstore_conformance.harness.alarm import stack

CANCELLED_SECONDS: Final = 1
"""How long a cancelled call may take to end."""

MAX_REPLIES: Final = 20
"""How many replies to a write are lost at most, if a driver repeats it again and again."""

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_RESTORED: Final = Pet(10**6, "restored", 7, PetStatus.SOLD)

_Write = Callable[[], Awaitable[Any]]
MethodCalls = dict[str, Callable[[], Coroutine[Any, Any, Any]]]


class Caller:
    """One repository, and the faults that its calls meet.

    opened -- opens a repository
    outcome -- gets what was done and what was wrong
    """

    def __init__(
        self,
        options: FaultOptions,
        opened: Callable[[], AbstractAsyncContextManager[Repository]],
        proxy: Proxy,
        random: Random,
        outcome: RoundOutcome,
    ) -> None:
        self._report = outcome.found.add
        self._counts = outcome.counts
        self._options = options
        self._opened = opened
        self._proxy = proxy
        self._random = random
        self._names = 0
        self._repository: Repository

    async def run(self) -> None:
        """Let the calls of a repository meet each of the faults, in a random order."""
        async with self._opened() as self._repository:
            self._pet = await self._new_pet()
            self._order = (await self._repository.place_order(self._pet, _AT)).id
            parts = [self._cancel, self._stall, self._refuse, self._lose]
            self._random.shuffle(parts)
            for part in parts:
                await part()
                self._proxy.heal()
                await self._recover(part.__name__[1:])

    def _calls(self) -> MethodCalls:
        """Return a call of each method, and one that opens another repository."""
        repository, status = self._repository, OrderStatus.CANCELLED
        return {
            "create_pet": lambda: repository.create_pet(self._new()),
            "get_pet": lambda: repository.get_pet(self._pet),
            "list_pets": lambda: repository.list_pets(PetQuery(0, 10)),
            "place_order": lambda: repository.place_order(MAX_ID, _AT),
            "get_order": lambda: repository.get_order(self._order),
            "list_orders": lambda: repository.list_orders(OrderQuery(0, 10)),
            "update_order": lambda: repository.update_order(self._order, status),
            "restore": lambda: repository.restore([_RESTORED]),
            "open": self._try_open,
        }

    def _new(self) -> NewPet:
        self._names += 1
        return NewPet(f"pet {self._names}", 7, PetStatus.AVAILABLE)

    async def _new_pet(self) -> int:
        return (await self._repository.create_pet(self._new())).id

    async def _try_open(self) -> None:
        async with self._opened():
            pass

    async def _cancel(self) -> None:
        """Cancel a call of each method, and opening, while the server stalls."""
        self._proxy.frozen = True
        tasks = begin(self._calls())
        await asyncio.sleep(self._random.uniform(0.001, 0.1))
        cancelled = {name: task for name, task in tasks.items() if task.cancel()}
        self._counts["cancelled"] += len(cancelled)
        _, pending = await asyncio.wait(tasks.values(), timeout=CANCELLED_SECONDS)
        for name, task in cancelled.items():
            if task in pending:
                text = f"{name}: still running {CANCELLED_SECONDS} s after it was cancelled, here:"
                self._report("not cancelled", f"{text}\n{stack(task)}")
            elif not task.cancelled() and (error := task.exception()):
                self._report("wrong error", f"{name}, cancelled: {error!r}")
        self._proxy.heal()
        if pending:
            await asyncio.wait(pending, timeout=self._options.timeout_seconds)

    async def _stall(self) -> None:
        """Call each method, and open, while the server stalls."""
        self._proxy.frozen = True
        await self._call_in_time("the server stalls")

    async def _refuse(self) -> None:
        """Call each method, and open, while the server cannot be reached."""
        self._proxy.refuse()
        self._proxy.cut()
        await self._call_in_time("connections are refused")

    async def _call_in_time(self, why: str) -> None:
        """Call and open at the same time; each must raise `UnavailableError` in time, or return."""
        tasks, expected = begin(self._calls()), (UnavailableError, NotFoundError)
        self._counts["requests"] += len(tasks)
        seconds = self._options.timeout_seconds
        _, pending = await asyncio.wait(tasks.values(), timeout=seconds)
        for name, task in tasks.items():
            if task in pending:
                text = f"{name}, {why}: no end within {seconds:g} s; it waits here:"
                self._report("too late", f"{text}\n{stack(task)}")
                task.cancel()
            elif (error := task.exception()) and not isinstance(error, expected):
                self._report("wrong error", f"{name}, {why}: {error!r}")
        self._proxy.heal()
        if pending:
            await asyncio.wait(pending, timeout=seconds)

    async def _lose(self) -> None:
        """Lose the replies to writes without a token; none may take effect twice, or by half."""
        repository, names = self._repository, list[str]()

        async def create() -> _Write:
            new = self._new()
            names.append(new.name)
            return lambda: repository.create_pet(new)

        async def place() -> _Write:
            pet_id = await self._new_pet()
            return lambda: repository.place_order(pet_id, _AT)

        async def complete() -> _Write:
            order_id = (await repository.place_order(await self._new_pet(), _AT)).id
            return lambda: repository.update_order(order_id, OrderStatus.COMPLETED)

        await self._lose_each("create_pet", create)
        await self._lose_each("place_order", place)
        await self._lose_each("update_order", complete)
        pets = await self._retry(lambda: repository.list_pets(PetQuery(0, 1000)))
        orders = await self._retry(lambda: repository.list_orders(OrderQuery(0, 1000)))
        stored = Counter(pet.name for pet in pets)
        for nth, name in enumerate(names, start=1):
            if stored[name] > 1:
                text = f"create_pet, reply {nth} lost: {stored[name]} pets are stored"
                self._report("sent twice", text)
        created = [pet for pet in pets if pet.name != _RESTORED.name]
        for wrong in histories.wrong_statuses(to_builtins(created), to_builtins(orders)):
            self._report("otherwise wrong", f"after lost replies, {wrong}")

    async def _lose_each(self, name: str, prepare: Callable[[], Awaitable[_Write]]) -> None:
        """Lose the first reply to a write, then the second one to another, until none is lost.

        So each is lost, of a write that is several requests, and of those that a driver repeats.

        prepare -- returns the next write
        """
        for nth in range(1, MAX_REPLIES + 1):
            write = await self._retry(prepare)
            if not await self._lose_nth(name, nth, write):
                break

    async def _lose_nth(self, name: str, nth: int, write: _Write) -> bool:
        """Make a write, and lose its `nth` reply; return whether it had as many."""
        before, what = self._proxy.cuts, f"{name}, reply {nth} lost"
        self._proxy.drop = nth
        self._counts["requests"] += 1
        try:
            async with asyncio.timeout(self._options.timeout_seconds) as limit:
                await write()
        except RefusedError as error:
            if self._proxy.cuts > before:  # it was possible when it was sent for the first time
                self._report("sent twice", f"{what}: {error!r}")
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            if limit.expired():
                self._report("too late", what)
            elif not isinstance(error, UnavailableError):
                self._report("wrong error", f"{what}: {error!r}")
        finally:
            self._proxy.drop = 0
        return self._proxy.cuts > before

    async def _recover(self, after: str) -> None:
        """Wait until each method returns; it may raise `UnavailableError` before."""
        for name, call in self._calls().items():
            try:
                await self._retry(call)
            except NotRecoveredError as error:
                raise NotRecoveredError(f"{name} after {after}: {error}") from None
            except RefusedError:
                pass
            except Exception as error:  # noqa: BLE001 - a driver may raise anything
                self._report("wrong error", f"{name} after {after}: {error!r}")

    async def _retry(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call until the storage is available; return its result.

        Raises `NotRecoveredError`.
        """
        seconds = self._options.timeout_seconds
        end = time.monotonic() + seconds
        while True:
            self._counts["requests"] += 1
            try:
                async with asyncio.timeout(seconds) as limit:
                    return await call()
            except (UnavailableError, TimeoutError) as error:
                if isinstance(error, TimeoutError) and not limit.expired():
                    raise
                if time.monotonic() > end:
                    raise NotRecoveredError(f"not within {seconds:g} s: {error!r}") from None
            await asyncio.sleep(0.02)


def begin(calls: MethodCalls) -> dict[str, asyncio.Task[Any]]:
    """Begin calls. If the run is interrupted, asyncio reports no error that was not retrieved."""
    tasks = {name: asyncio.ensure_future(call()) for name, call in calls.items()}
    for task in tasks.values():
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return tasks
