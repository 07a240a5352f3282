"""The clause that is no example: a state machine that compares the repository with a model."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import UNSET

from petstore.conformance.kit import Kit, Place, in_scratch
from petstore.conformance.model import Model, Written, page
from petstore.conformance.orders import AT, CLOSED
from petstore.conformance.retries import REX
from petstore.contract import (
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
)

EXAMPLES = 40
"""How many sequences of steps are tried."""

STEPS = 30
"""How many steps a sequence has at most."""

PHASES = [Phase.generate, Phase.shrink]

ANIMALS = st.builds(
    NewPet,
    name=st.sampled_from(["", "Rex", "rex", " Rex", "a\x00b", "\U0001f436"]) | st.text(max_size=6),
    category_id=st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 2**53 + 1, 2**63 - 1]),
    status=st.sampled_from([UNSET, *PetStatus]),
)
FILTERS = st.sampled_from([None, *PetStatus])
ORDER_FILTERS = st.sampled_from([None, *OrderStatus])
INDEXES = st.integers(0, 40)

# What is behind the last animal, at it, before it: a page begins anywhere.
OFFSETS = st.sampled_from([-2, -1, 0, 1, 2])


NAMES = st.none() | st.sampled_from("abc")
HOURS = st.sampled_from([1, 11, 12, 24])


class ModelMachine(RuleBasedStateMachine):
    """Drives one repository, and the model beside it.

    A small universe of animals, orders and retries is stored first, and later steps choose among
    them by index: otherwise nearly every run would look for animals in an empty store.
    """

    kit: ClassVar[Kit]
    reached: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._repository: Repository
        self._model = Model()

    @initialize(universe=st.lists(ANIMALS, min_size=4, max_size=14))
    def begin(self, universe: list[NewPet]) -> None:
        """Open an empty repository and store the universe."""

        async def open_() -> Repository:
            backend = self.kit.backend
            place = await self._stack.enter_async_context(backend.scratch(self.kit.settings))
            return await self._stack.enter_async_context(backend.open(place))

        self._repository = self._runner.run(open_())
        for new in universe:
            self.create(new, None)
        for name in "abc":
            self.create(REX, name)
            self.place(0, name)
        self.close(0, OrderStatus.CANCELLED)
        self.repeat(0)

    @rule(new=ANIMALS, name=NAMES)
    def create(self, new: NewPet, name: str | None) -> None:
        """Store an animal, also under a name that was used."""
        self._write(new, name)

    @rule(news=st.lists(ANIMALS, min_size=2, max_size=4))
    def create_together(self, news: list[NewPet]) -> None:
        """Store several animals at once."""

        async def together() -> list[Receipt]:
            return await asyncio.gather(*(self._repository.create_pet(new) for new in news))

        for new, receipt in zip(news, self._runner.run(together()), strict=True):
            self._model.write(new, None, receipt)
        self.reached["animals"] += len(news)

    @rule(index=INDEXES)
    def get(self, index: int) -> None:
        """Read an animal that is there."""
        pet = self._pet(index)
        assert self._runner.run(self._repository.get_pet(pet.id)) == pet

    @rule(index=INDEXES, offset=OFFSETS)
    def get_near(self, index: int, offset: int) -> None:
        """Read beside an animal, where there may be none."""
        number = max(1, self._pet(index).id + offset)
        expected = next((pet for pet in self._model.pets if pet.id == number), None)
        assert self._runner.run(self._repository.get_pet(number)) == expected

    @rule(index=INDEXES, offset=OFFSETS, count=st.integers(1, 16), status=FILTERS)
    def list_from(self, index: int, offset: int, count: int, status: PetStatus | None) -> None:
        """Read a page that begins near an animal."""
        self._check_page(max(0, self._pet(index).id + offset), count, status)

    @rule(count=st.integers(1, 4), status=FILTERS)
    def walk(self, count: int, status: PetStatus | None) -> None:
        """Read page after page."""
        after = 0
        while found := self._check_page(after, count, status):
            after = found[-1].id

    @rule(index=INDEXES, name=NAMES)
    def place(self, index: int, name: str | None) -> None:
        """Order an animal that is available, if there is one."""
        pets = [pet for pet in self._model.pets if pet.status is PetStatus.AVAILABLE]
        pets = pets or self._model.pets
        self._write(pets[index % len(pets)].id, name)

    @rule(index=INDEXES, name=NAMES)
    def place_any(self, index: int, name: str | None) -> None:
        """Order an animal, whatever its status."""
        self._write(self._pet(index).id, name)

    @rule(index=INDEXES)
    def repeat(self, index: int) -> None:
        """Repeat a write that was recorded."""
        records = list(self._model.records.items())
        (_, name), (_, what, _) = records[index % len(records)]
        self._write(what, name)

    @rule(index=INDEXES, status=st.sampled_from(CLOSED))
    def close(self, index: int, status: OrderStatus) -> None:
        """Complete or cancel an order that is placed, if there is one."""
        orders = [o for o in self._model.orders if o.status is OrderStatus.PLACED]
        orders = orders or self._model.orders
        self._update(orders[index % len(orders)], status)

    @rule(index=INDEXES, status=st.sampled_from(OrderStatus))
    def update_any(self, index: int, status: OrderStatus) -> None:
        """Give an order a status, whatever it has."""
        self._update(self._order(index), status)

    @rule(index=INDEXES, offset=OFFSETS, count=st.integers(1, 6), status=ORDER_FILTERS)
    def read_orders(self, index: int, offset: int, count: int, status: OrderStatus | None) -> None:
        """Read an order, and a page of orders that begins near it."""
        order = self._order(index)
        assert self._runner.run(self._repository.get_order(order.id)) == order
        after = max(0, order.id + offset)
        found = list(self._runner.run(self._repository.list_orders(after, count, status)))
        assert found == page(self._model.orders, after, count, status)

    @precondition(lambda self: self.kit.machine_restores)
    @rule(new=ANIMALS, gap=st.integers(1, 3), status=ORDER_FILTERS)
    def restore(self, new: NewPet, gap: int, status: OrderStatus | None) -> None:
        """Take over an animal from elsewhere, also with an order of it."""
        items = self._model.restore(new, gap, status)
        self._runner.run(self._repository.restore(items))

    @precondition(lambda self: self.kit.machine_moves_time)
    @rule(hours=HOURS)
    def wait(self, hours: int) -> None:
        """Let time go by, by which records expire."""
        self._model.now += hours * 3600

    @invariant()
    def counts(self) -> None:
        """Count the step; the list of all animals is the model's."""
        if self._model.pets:
            self.reached["steps"] += 1
            self._check_page(0, len(self._model.pets) + 1, None)

    def teardown(self) -> None:
        """Close the repository and remove its place."""
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def _pet(self, index: int) -> Pet:
        return self._model.pets[index % len(self._model.pets)]

    def _order(self, index: int) -> Order:
        return self._model.orders[index % len(self._model.orders)]

    def _write(self, what: Written, name: str | None) -> None:
        retry, expected = self._model.retry(what, name), self._model.expect(what, name)
        if isinstance(what, NewPet):
            call = self._repository.create_pet(what, retry)
        else:
            call = self._repository.place_order(what, AT, retry)
        if expected is None:
            self._model.write(what, name, self._runner.run(call))
            self.reached["animals" if isinstance(what, NewPet) else "orders"] += 1
        else:
            self._check(call, expected)
            self.reached["replays"] += isinstance(expected, Receipt)

    def _update(self, order: Order, status: OrderStatus) -> None:
        expected = self._model.update(order, status)
        self._check(self._repository.update_order(order.id, status), expected)
        self.reached["closed"] += isinstance(expected, Order) and expected != order

    def _check(self, call: Coroutine[Any, Any, object], expected: object) -> None:
        if isinstance(expected, type):
            with pytest.raises(expected):
                self._runner.run(call)
            self.reached["refusals"] += 1
        else:
            assert self._runner.run(call) == expected

    def _check_page(self, after: int, count: int, status: PetStatus | None) -> list[Pet]:
        found = list(self._runner.run(self._repository.list_pets(after, count, status)))
        assert found == page(self._model.pets, after, count, status)
        return found


class ModelClause(Kit):
    """The repository and the model."""

    machine_examples: ClassVar[int] = EXAMPLES
    """How many runs; a slow repository may take fewer, but not fewer than 10."""

    machine_moves_time: ClassVar[bool] = False
    """Whether records of retries expire by what the machine says."""

    machine_restores: ClassVar[bool] = False
    """Whether animals and orders come from elsewhere."""

    def test_it_answers_as_plain_lists_would(self) -> None:
        """Two features that work alone do not work together."""
        kit = self
        reached = Counter[str]()

        class Machine(ModelMachine):
            pass

        Machine.kit, Machine.reached = kit, reached
        with asyncio.Runner() as runner:
            runner.run(in_scratch(kit, _nothing))  # skips where the storage cannot be reached
        examples = max(10, self.machine_examples)
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            ),
        )
        # A machine that hardly ever stores anything would be green on every repository.
        assert reached["animals"] >= 5 * examples, reached
        assert reached["steps"] >= 10 * examples, reached
        for what in ("orders", "closed", "replays", "refusals"):
            assert reached[what] >= examples / 2, reached

    test_it_answers_as_plain_lists_would.__dict__["clause"] = "model"


async def _nothing(_kit: Kit, _place: Place) -> None:
    """Only see whether a place can be opened."""
