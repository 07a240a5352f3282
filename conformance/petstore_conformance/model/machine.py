"""A Hypothesis state machine that compares a repository with the model, for the clause [model]."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from petstore.contract import (
    MAX_ID,
    ConflictError,
    NewPet,
    OrderQuery,
    OrderStatus,
    PetQuery,
    PetStatus,
)
from petstore_conformance.harness.alarm import CANCEL_SECONDS, within
from petstore_conformance.harness.effort import measure
from petstore_conformance.harness.kit import RaisedOnPurposeError
from petstore_conformance.model.comparison import Comparison
from petstore_conformance.model.model import Model, Write
from petstore_conformance.model.reads import check_types, read_all
from petstore_conformance.model.values import (
    CATEGORIES,
    DAY_SECONDS,
    NAMES,
    NOW,
    PAST,
    PET_STATUSES,
    REX,
    TIMES,
)

HANDLES = 3  # how many times a location that can be shared is opened at once

# Those of an encoding, the default, take Hypothesis more than a second to compute.
SCALAR_VALUES = st.characters(exclude_categories=["Cs"])
NEW_PETS = st.builds(
    NewPet,
    name=st.sampled_from(["", "Rex", "rex", " Rex", *NAMES]) | st.text(SCALAR_VALUES, max_size=6),
    category_id=st.sampled_from([0, *CATEGORIES]) | st.integers(-(2**63), 2**63 - 1),
    status=st.sampled_from([PET_STATUSES[-1], *PetStatus]),
)
ORDER_FILTERS = st.sampled_from([None, *OrderStatus])
INDEXES = st.integers(0, 40)

# Distances from the id of a pet or an order, for ids that may be absent and pages that begin there.
OFFSETS = st.sampled_from([-2, -1, 0, 1, 2])
GAPS = st.sampled_from([0, 1, 3, 2**31, 2**33 + 1])
SOMETIMES = st.sampled_from([False, False, True])
TOKEN_NAMES = st.none() | st.sampled_from("abcdefgh")

# The clock of a caller may be slow, and its records may be valid for less or more than a day.
CLOCKS = st.tuples(
    st.sampled_from([0, 0, 1, 3600, DAY_SECONDS]),
    st.sampled_from([DAY_SECONDS, DAY_SECONDS, 1, 3600, 10 * DAY_SECONDS]),
)

OVERLAPPING = st.lists(
    st.tuples(
        st.sampled_from(["create", "place", "place", "update", "update", "pet", "order"]),
        st.integers(0, 5),
        st.sampled_from([None, None, "a", "b"]),
        st.sampled_from(OrderStatus),
        st.integers(0, HANDLES - 1),
    ),
    min_size=2,
    max_size=5,
)


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Turn a method into a rule that uses one of the handles.

    When the time is over, the rule still draws its data, but makes no call.
    """

    def decorate(method: Callable[..., None]) -> Any:
        @wraps(method)
        def run(machine: "ModelMachine", *given: Any, handle: int, **drawn: Any) -> None:
            if not machine.idle:
                machine.choose(handle)
                method(machine, *given, **drawn)

        chosen = st.integers(0, HANDLES - 1)
        return rule(handle=chosen, **arguments)(run)  # type: ignore[call-overload] # none is called target

    return decorate


class ModelMachine(Comparison):
    """The rules, in an order that Hypothesis draws.

    A few pets, orders and recorded writes are stored first, and later steps choose among them by
    index: otherwise nearly every run would read from an empty store. A location that can be shared
    is opened up to three times, and one that is durable is closed and opened again.
    """

    @initialize(
        news=st.lists(NEW_PETS, min_size=4, max_size=14),
        handles=st.integers(1, HANDLES),
        now=st.sampled_from([NOW, PAST]),
    )
    def begin(self, news: list[NewPet], handles: int, now: int) -> None:
        """Open an empty repository and store the first pets, orders and records."""
        if self.idle:
            return
        self._model = Model([], [], now=now, own_clock=self.kit.remote)
        self._run(self._open(handles if self.kit.backend.shared else 1))
        for new in news:
            self._write(Write(new))
        self.reached["sequences"] += 1
        for name in "abc":
            self._write(Write(REX, name))
            self._write(Write(self._pet(0, PetStatus.AVAILABLE).id, name))
            self._write(Write(REX, name))
        self.choose(1)
        self._update(self._model.orders[0].id, OrderStatus.CANCELLED)
        self._length, receipt = self._run(measure(self._repository.create_pet(REX)))
        self._model.write(Write(REX), receipt)

    @step(new=NEW_PETS, name=TOKEN_NAMES, clock=CLOCKS)
    def create(self, new: NewPet, name: str | None, clock: tuple[int, int]) -> None:
        """Create a pet, perhaps with a token that was used before."""
        self._write(self._timed(new, name, clock))

    @step(drawn_calls=OVERLAPPING)
    def overlap(self, drawn_calls: list[Any]) -> None:
        """Make several calls at the same time."""
        self._make_together(drawn_calls, 0, 0)

    @step(drawn_calls=OVERLAPPING, cancelled=st.sampled_from([0, 1, 2, 9]), tenth=st.integers(0, 9))
    def overlap_and_cancel(self, drawn_calls: list[Any], cancelled: int, tenth: int) -> None:
        """Make several calls at the same time, and cancel none, the first ones, or all."""
        self._make_together(drawn_calls, cancelled, tenth)

    @precondition(lambda self: self.kit.backend.durable)
    @step(
        drawn_calls=st.sampled_from([[], []]) | OVERLAPPING,
        tenth=st.integers(0, 9),
        failure=st.sampled_from([None, RaisedOnPurposeError, asyncio.CancelledError]),
        all_=st.booleans(),
    )
    def reopen(
        self, drawn_calls: list[Any], tenth: int, failure: type[BaseException] | None, *, all_: bool
    ) -> None:
        """Close one of the handles, or all, perhaps with calls in flight; check everything."""
        index = self._handles.index(self._repository)
        calls = [self._call(number, *what) for number, (*what, _) in enumerate(drawn_calls)]
        closed = range(len(self._handles)) if all_ else [index]

        async def again() -> None:
            runs = (call.run(self._repository, closing=True) for call in calls)
            tasks = [asyncio.create_task(run) for run in runs]
            await self._length.wait(tenth)
            for number in closed:
                await self._close(number, failure() if failure else None)
            async with within(CANCEL_SECONDS, "a call in flight while the repository was closed"):
                await asyncio.gather(*tasks)
            for number in closed:
                await self._reopen(number)

        self._run(again())
        self._repository = self._handles[index]
        if calls:
            self._explain(calls)
        self.check_everything(handle=index)

    @step()
    def check_everything(self) -> None:
        """Read each pet and order, all at once; repeat all recorded writes, and restore all."""
        pets, orders, repository = self._model.pets, self._model.orders, self._repository

        async def read() -> list[Any]:
            reads: list[Any] = [repository.get_pet(pet_id=pet.id) for pet in pets]
            reads += [repository.get_order(order_id=order.id) for order in orders]
            return await asyncio.gather(*reads)

        check_types(found := self._run(read()))
        assert found == [*pets, *orders]
        if not self.kit.remote:
            self._run(repository.restore([*pets, *orders]))
        records, now = self._model.records.items(), self._model.now
        same = [Write(what, name) for (_, name), (until, what, _) in records if until > now]
        new = NewPet("other", 1)
        others = [replace(w, payload=new if isinstance(w.payload, NewPet) else -1) for w in same]
        for writes in (others, same):
            self._repeat(writes)

    @step(index=INDEXES, offset=OFFSETS, count=st.integers(1, 16))
    def read_pets(self, index: int, offset: int, count: int) -> None:
        """Read at an id near that of a pet, where there may be none, and pages that begin there."""
        after = min(max(0, self._pet(index).id + offset), MAX_ID)
        for handle in self._handles:
            assert self._run(handle.get_pet(after or 1)) == self._model.pet(after or 1)
        for status in (None, *PetStatus):
            self._check_page(PetQuery(after, count, status))

    @step(count=st.integers(1, 4), status=st.sampled_from([None, *PetStatus]), index=INDEXES)
    def walk(self, count: int, status: PetStatus | None, index: int) -> None:
        """Read all pages, one after the other; after the first, change something elsewhere."""
        after, reader = 0, self._repository
        while found := self._check_page(PetQuery(after, count, status)):
            if after == 0:
                self.choose(index)
                self._write(Write(self._pet(index, PetStatus.AVAILABLE).id))
                if not self.kit.remote:
                    pet_and_order = self._model.restore(self._model.free_id(0), REX, None)
                    self._run(self._repository.restore(pet_and_order))
                self._repository = reader
            after = found[-1].id

    @step(index=INDEXES, name=TOKEN_NAMES, at=st.sampled_from(TIMES), clock=CLOCKS, any_=SOMETIMES)
    def place(
        self, index: int, name: str | None, at: Any, clock: tuple[int, int], *, any_: bool
    ) -> None:
        """Order an available pet, or any pet."""
        pet = self._pet(index, None if any_ else PetStatus.AVAILABLE)
        self._write(self._timed(pet.id, name, clock, at))

    @step(index=INDEXES, clock=CLOCKS)
    def replay(self, index: int, clock: tuple[int, int]) -> None:
        """Repeat a recorded write."""
        records = list(self._model.records.items())
        (_, name), (_, payload, _) = records[index % len(records)]
        self._write(self._timed(payload, name, clock))

    @step(index=INDEXES, status=st.sampled_from(OrderStatus), any_=SOMETIMES, offset=OFFSETS)
    def update(self, index: int, status: OrderStatus, offset: int, *, any_: bool) -> None:
        """Give a status to a placed order, if there is one, or to an id near that of any order."""
        order = self._order(index, None if any_ else OrderStatus.PLACED)
        order_id = order.id + offset if any_ else order.id
        self._update(min(max(1, order_id), MAX_ID), status)

    @step(index=INDEXES, offset=OFFSETS, count=st.integers(1, 6), status=ORDER_FILTERS)
    def read_orders(self, index: int, offset: int, count: int, status: OrderStatus | None) -> None:
        """Read an order, one near its id, and a page of orders that begins there."""
        order = self._order(index)
        after = min(max(0, order.id + offset), MAX_ID)
        for order_id in (order.id, max(after, 1)):
            assert self._run(self._repository.get_order(order_id)) == self._model.order(order_id)
        self._check_page(OrderQuery(after, count, status))

    @precondition(lambda self: not self.kit.remote)
    @step(new=NEW_PETS, gap=GAPS, status=ORDER_FILTERS, refused=SOMETIMES)
    def restore(self, new: NewPet, gap: int, status: OrderStatus | None, *, refused: bool) -> None:
        """Restore a pet of another store and its order, perhaps before one that is refused."""
        id_ = self._model.free_id(gap)
        self._check_everywhere(id_, id_)
        other = replace(self._pet(id_), name=f"not {self._pet(id_).name}")
        items = self._model.restore(id_, new, status)
        if refused:
            self._check(self._repository.restore([*items, other]), ConflictError)
        else:
            self._run(self._repository.restore(items * 2))  # the second time, they are skipped
        self._check_everywhere(id_, id_)

    @precondition(lambda self: not self.kit.remote)
    @step(hours=st.sampled_from([1, 11, 12, 24]))
    def advance_time(self, hours: int) -> None:
        """Let time pass, so that records expire."""
        self._model.now += hours * 3600

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        """Compare all pets and orders with the model's, as another handle shows them."""
        if self._model.pets and not self.idle:
            self.reached["steps"] += 1
            self._steps += 1
            self.choose(self._steps)
            stored = self._run(read_all(self._repository))
            assert stored.pets == self._model.pets
            assert stored.orders == self._model.orders
            after = self._pet(self._steps).id if self._steps % 2 else 0
            number, most = self._steps % 3, 1 + self._steps % 4
            self._check_page(PetQuery(after, most, list(PetStatus)[number]))
            self._check_page(OrderQuery(after, most, list(OrderStatus)[number]))
