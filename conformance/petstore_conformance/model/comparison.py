"""Calls of one or several repositories, each of them compared with the model."""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import cycle
from time import monotonic
from typing import Any, ClassVar, Final

import pytest
from hypothesis.control import current_build_context
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine
from msgspec.structs import replace

from petstore.contract import NewPet, Order, OrderStatus, Pet, PetStatus, Receipt, Repository
from petstore_conformance.harness.alarm import CANCEL_SECONDS, uninterrupted, within
from petstore_conformance.harness.effort import Length
from petstore_conformance.harness.forwarding import Forwarding
from petstore_conformance.harness.kit import Kit, Location
from petstore_conformance.model.calls import Call, cancel, explain, read_settled, wait_for_server
from petstore_conformance.model.model import AnyItem, AnyQuery, Model, Payload, Write, send
from petstore_conformance.model.reads import check_types, read_all, read_page
from petstore_conformance.model.values import REX, TIMES

_NAMES: Final = ("one", "two", "three")  # what a program calls the handles

_PROGRAM: Final = """\
The writes that led to it, and the call after them, as a program for `python -m asyncio`:
from msgspec import UNSET
from petstore.contract import *
import datetime
async with backend.scratch(settings) as place, {handles}:
    {calls}
If a call that was cancelled took effect later than otherwise, begin with [cancelled-write]."""


class Recorded(Forwarding):
    """Notes the calls of a repository as lines of a program, without reads before other calls."""

    def __init__(self, inner: Repository, name: str, lines: list[str]) -> None:
        self.store = inner.store
        self._inner, self._name, self._lines = inner, name, lines

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Note the call, make it and return its result."""
        __tracebackhide__ = True
        given = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in named.items())]
        given = [re.sub(r"<(\w+\.\w+): '\w+'>", r"\1", text) for text in given]  # an enum's member
        if self._lines and re.match(r"await \w+\.(get|list)_", self._lines[-1]):
            self._lines.pop()
        self._lines.append(f"await {self._name}.{method}({', '.join(given)})")
        return await getattr(self._inner, method)(*arguments, **named)


class Comparison(RuleBasedStateMachine):
    """Makes the same calls to a repository and to the model, and compares the results.

    kit -- the kit whose backend is tested
    reached -- how often the runs did what they must do some time, by name
    end -- after this time no call is made; on the monotonic clock
    failure -- the exception of the latest sequence that failed
    """

    kit: ClassVar[Kit]
    reached: ClassVar[Counter[str]]
    end: ClassVar[float]
    failure: ClassVar[BaseException | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._shows_a_failure = current_build_context().is_final
        self._runner = asyncio.Runner()
        self._run: Callable[[Coroutine[Any, Any, Any]], Any] = self._runner.run
        self._stack = AsyncExitStack()
        self._location: Location
        self._opened: list[AsyncExitStack] = []
        self._handles: list[Repository] = []
        self._repository: Repository
        self._model = Model([], [])
        self._length = Length()
        self._steps = 0
        self._lines: list[str] = []

    @property
    def idle(self) -> bool:
        """Whether the time is over, so that no calls are made."""
        return monotonic() > self.end and not self._shows_a_failure

    def choose(self, handle: int) -> None:
        """Make the next calls through one of the handles."""
        self._repository = self._handles[handle % len(self._handles)]

    def _make_together(self, drawn_calls: list[Any], cancelled: int, tenth: int) -> None:
        calls = [self._call(number, *what) for number, (*what, _) in enumerate(drawn_calls)]
        targets = [self._handles[handle % len(self._handles)] for *_, handle in drawn_calls]

        async def together() -> None:
            self._lines.append(f"# the next {len(calls)} calls overlap")
            tasks = [asyncio.create_task(run) for run in map(Call.run, calls, targets)]
            await self._length.wait(tenth)
            if cancelled:
                self._lines.append(f"# the first {cancelled} of these {len(calls)} are cancelled")
                await cancel(tasks[:cancelled])
            async with within(CANCEL_SECONDS + 50 * self._length.seconds, "a call"):
                await asyncio.gather(*tasks[cancelled:])

        self._run(together())
        self._explain(calls)

    def _explain(self, calls: list[Call]) -> None:
        """Find an order that explains the results; continue from the model after it."""
        if any(call.unknown for call in calls):
            self._run(wait_for_server(self._length))
            self._write(Write(REX))  # as in `settle`
            stored = self._run(read_settled(self._repository))
        else:
            stored = self._run(read_all(self._repository))
        self._model = explain(self._model, calls, stored)
        self.reached["overlaps"] += 1

    def teardown(self) -> None:
        """Close the repositories and remove their location; keep the failure that has led here."""
        failure = sys.exc_info()[1]
        of_hypothesis = isinstance(failure, HypothesisException)
        if isinstance(failure, Exception | pytest.fail.Exception) and not of_hypothesis:
            names = _NAMES[: len(self._handles)]
            handles = ", ".join(f"backend.open(place, Expected()) as {name}" for name in names)
            failure.add_note(_PROGRAM.format(handles=handles, calls="\n    ".join(self._lines)))
            type(self).failure = failure

        with uninterrupted(), self._runner:
            self._runner.run(self._stack.aclose())

    async def _open(self, handles: int) -> None:
        given = Location(self.kit.backend, self.kit.settings)
        self._location = await self._stack.enter_async_context(given.new())
        for index in range(handles):
            self._opened.append(await self._stack.enter_async_context(AsyncExitStack()))
            await self._reopen(index)
        self._repository = self._handles[0]

    async def _reopen(self, index: int) -> None:
        repository = await self._opened[index].enter_async_context(self._location.open())
        self._handles[index : index + 1] = [Recorded(repository, _NAMES[index], self._lines)]

    async def _close(self, index: int, failure: BaseException | None = None) -> None:
        how = f" with {failure!r}" if failure else ""
        self._lines.append(f"# {_NAMES[index]} is closed{how}, and opened again")
        await self._opened[index].__aexit__(type(failure) if failure else None, failure, None)

    def _pet(self, index: int, status: PetStatus | None = None) -> Pet:
        return _choose(self._model.pets, index, status)

    def _order(self, index: int, status: OrderStatus | None = None) -> Order:
        return _choose(self._model.orders, index, status)

    def _timed(
        self, payload: Payload, name: str | None, clock: tuple[int, int], at: Any = TIMES[0]
    ) -> Write:
        timed = () if self.kit.remote else (at, *clock)  # a service has its own clock
        write = Write(payload, name, *timed)
        return replace(write, name=None) if self._model.is_reserved(write) else write

    def _call(self, number: int, kind: str, index: int, name: str | None, status: Any) -> Call:
        """Return one of several calls that overlap; an index from 0 to 5 chooses what it is of."""
        order = self._order(index, None if index in (0, 3) else OrderStatus.PLACED)
        pet_id = order.pet_id if index in (1, 3, 5) else self._pet(index, PetStatus.AVAILABLE).id
        if kind == "pet":
            return Call(lambda repository: repository.get_pet(pet_id), (pet_id, Pet))
        if kind == "order":
            return Call(lambda repository: repository.get_order(order.id), (order.id, Order))
        if kind == "update":
            what = order.id, status
            return Call(lambda repository: repository.update_order(*what), what)
        new = NewPet("overlapping", number, PetStatus.AVAILABLE)
        payload = new if kind == "create" else -1 if index == 0 else pet_id
        # Writes that differ may have the same name, and so the same token.
        write = Write(payload, name, TIMES[number])
        return Call(partial(self._make, write=write), write)

    def _make(self, repository: Repository, write: Write) -> Coroutine[Any, Any, Receipt]:
        return send(repository, write.payload, self._model.token(write), write.at)

    def _write(self, write: Write) -> None:
        is_pet = isinstance(write.payload, NewPet)
        expected = self._model.expect(write)
        if expected is None:
            receipt = self._run(self._make(self._repository, write))
            self._model.write(write, receipt)
            self.reached["pets" if is_pet else "orders"] += 1
            self._check_everywhere(receipt.id, 0) if is_pet else self._check_order(receipt.id)
            return
        for handle in self._handles:  # each may remember what it has found, or not found
            self._check(self._make(handle, write), expected)
        self.reached["replays"] += isinstance(expected, Receipt)

    def _repeat(self, writes: Sequence[Write]) -> None:
        """Make writes that change nothing at once, through every handle: each may have a cache."""
        tried = [write for write in writes for _ in self._handles]
        calls = [Call(partial(self._make, write=write), write) for write in tried]

        async def together() -> None:
            await asyncio.gather(*map(Call.run, calls, cycle(self._handles)))

        self._run(together())
        for write, call in zip(tried, calls, strict=True):
            assert call.result == self._model.expect(write), write
            self.reached["replays" if isinstance(call.result, Receipt) else "refusals"] += 1

    def _update(self, order_id: int, status: OrderStatus) -> None:
        before = self._model.order(order_id)
        expected = self._model.update(order_id, status)
        self._check(self._repository.update_order(order_id, status), expected)
        self._check_order(order_id)
        self.reached["updates"] += isinstance(expected, Order) and expected != before

    def _check_order(self, order_id: int) -> None:
        order = self._model.order(order_id)
        self._check_everywhere(order.pet_id if order else order_id, order_id)

    def _check_everywhere(self, pet_id: int, order_id: int) -> None:
        """Read a pet and an order through every handle: one may cache what another changes.

        Every second time only through one, so that the others have not read the change.
        """
        for handle in self._handles if self._steps % 2 else [self._repository]:
            assert self._run(handle.get_pet(pet_id)) == self._model.pet(pet_id)
            if order_id:
                assert self._run(handle.get_order(order_id)) == self._model.order(order_id)

    def _check(self, call: Coroutine[Any, Any, object], expected: object) -> None:
        if isinstance(expected, type):
            with pytest.raises(expected):
                self._run(call)
            self.reached["refusals"] += 1
        else:
            assert self._run(call) == expected

    def _check_page(self, query: AnyQuery) -> list[Any]:
        page: list[Any] = self._run(read_page(self._repository, query))
        check_types(page)
        assert page == self._model.page(query)
        return page


def _choose(items: Sequence[AnyItem], index: int, status: object) -> AnyItem:
    """Return one of the items by an index, one that has a status if there is any."""
    chosen = [item for item in items if status in (None, item.status)] or items
    return chosen[index % len(chosen)]
