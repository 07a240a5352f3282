"""The clause [model]: a Hypothesis state machine that compares the repository with a model."""

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
from petstore.conformance.model import Model, Payload, page
from petstore.conformance.orders import AT, FINAL_STATUSES
from petstore.conformance.tokens import REX
from petstore.contract import (
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
)

DEFAULT_EXAMPLES = 40
"""How many sequences of steps are tried."""

MAX_STEPS = 30
"""How many steps a sequence has at most."""

PHASES = [Phase.generate, Phase.shrink]

NEW_PETS = st.builds(
    NewPet,
    name=st.sampled_from(["", "Rex", "rex", " Rex", "a\x00b", "\U0001f436"]) | st.text(max_size=6),
    category_id=st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 2**53 + 1, 2**63 - 1]),
    status=st.sampled_from([UNSET, *PetStatus]),
)
PET_FILTERS = st.sampled_from([None, *PetStatus])
ORDER_FILTERS = st.sampled_from([None, *OrderStatus])
INDEXES = st.integers(0, 40)

# Distances from the id of a pet or an order, for ids that may be absent and pages that begin there.
OFFSETS = st.sampled_from([-2, -1, 0, 1, 2])

TOKEN_NAMES = st.none() | st.sampled_from("abc")
HOURS = st.sampled_from([1, 11, 12, 24])


class ModelMachine(RuleBasedStateMachine):
    """Makes the same calls to a repository and to the model, and compares the results.

    A few pets, orders and recorded writes are stored first, and later steps choose among them by
    index: otherwise nearly every run would read from an empty store.

    kit -- the kit whose backend is tested
    reached -- how often the runs reached what they must reach, by name
    """

    kit: ClassVar[Kit]
    reached: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._repository: Repository
        self._model = Model()

    @initialize(news=st.lists(NEW_PETS, min_size=4, max_size=14))
    def begin(self, news: list[NewPet]) -> None:
        """Open an empty repository and store the first pets, orders and records."""

        async def open_() -> Repository:
            backend = self.kit.backend
            place = await self._stack.enter_async_context(backend.scratch(self.kit.settings))
            return await self._stack.enter_async_context(backend.open(place))

        self._repository = self._runner.run(open_())
        for new in news:
            self.create(new, None)
        for name in "abc":
            self.create(REX, name)
            self.place_available(0, name)
        self.update_placed(0, OrderStatus.CANCELLED)
        self.replay(0)

    @rule(new=NEW_PETS, name=TOKEN_NAMES)
    def create(self, new: NewPet, name: str | None) -> None:
        """Create a pet, perhaps with a token that was used before."""
        self._write(new, name)

    @rule(news=st.lists(NEW_PETS, min_size=2, max_size=4))
    def create_together(self, news: list[NewPet]) -> None:
        """Create several pets at the same time."""

        async def together() -> list[Receipt]:
            return await asyncio.gather(*(self._repository.create_pet(new) for new in news))

        for new, receipt in zip(news, self._runner.run(together()), strict=True):
            self._model.write(new, None, receipt)
        self.reached["pets"] += len(news)

    @rule(index=INDEXES)
    def get(self, index: int) -> None:
        """Read a pet that is stored."""
        pet = self._pet(index)
        assert self._runner.run(self._repository.get_pet(pet.id)) == pet

    @rule(index=INDEXES, offset=OFFSETS)
    def get_near(self, index: int, offset: int) -> None:
        """Read at an id near that of a pet, where there may be none."""
        pet_id = max(1, self._pet(index).id + offset)
        expected = next((pet for pet in self._model.pets if pet.id == pet_id), None)
        assert self._runner.run(self._repository.get_pet(pet_id)) == expected

    @rule(index=INDEXES, offset=OFFSETS, count=st.integers(1, 16), status=PET_FILTERS)
    def list_from(self, index: int, offset: int, count: int, status: PetStatus | None) -> None:
        """Read a page that begins near the id of a pet."""
        self._check_page(max(0, self._pet(index).id + offset), count, status)

    @rule(count=st.integers(1, 4), status=PET_FILTERS)
    def walk(self, count: int, status: PetStatus | None) -> None:
        """Read all pages, one after the other."""
        after = 0
        while found := self._check_page(after, count, status):
            after = found[-1].id

    @rule(index=INDEXES, name=TOKEN_NAMES)
    def place_available(self, index: int, name: str | None) -> None:
        """Order an available pet, if there is one, or else any pet."""
        pets = [pet for pet in self._model.pets if pet.status is PetStatus.AVAILABLE]
        pets = pets or self._model.pets
        self._write(pets[index % len(pets)].id, name)

    @rule(index=INDEXES, name=TOKEN_NAMES)
    def place_any(self, index: int, name: str | None) -> None:
        """Order a pet, whatever its status."""
        self._write(self._pet(index).id, name)

    @rule(index=INDEXES)
    def replay(self, index: int) -> None:
        """Repeat a recorded write."""
        records = list(self._model.records.items())
        (_, name), (_, payload, _) = records[index % len(records)]
        self._write(payload, name)

    @rule(index=INDEXES, status=st.sampled_from(FINAL_STATUSES))
    def update_placed(self, index: int, status: OrderStatus) -> None:
        """Complete or cancel a placed order, if there is one, or else any order."""
        orders = [o for o in self._model.orders if o.status is OrderStatus.PLACED]
        orders = orders or self._model.orders
        self._update(orders[index % len(orders)], status)

    @rule(index=INDEXES, status=st.sampled_from(OrderStatus))
    def update_any(self, index: int, status: OrderStatus) -> None:
        """Give any status to an order, whatever its status."""
        self._update(self._order(index), status)

    @rule(index=INDEXES, offset=OFFSETS, count=st.integers(1, 6), status=ORDER_FILTERS)
    def read_orders(self, index: int, offset: int, count: int, status: OrderStatus | None) -> None:
        """Read an order, and a page of orders that begins near its id."""
        order = self._order(index)
        assert self._runner.run(self._repository.get_order(order.id)) == order
        after = max(0, order.id + offset)
        found = list(self._runner.run(self._repository.list_orders(after, count, status)))
        assert found == page(self._model.orders, after, count, status)

    @precondition(lambda self: self.kit.machine_restores)
    @rule(new=NEW_PETS, gap=st.integers(1, 3), status=ORDER_FILTERS)
    def restore(self, new: NewPet, gap: int, status: OrderStatus | None) -> None:
        """Restore a pet of another store, and an order of it."""
        items = self._model.restore(new, gap, status)
        self._runner.run(self._repository.restore(items))

    @precondition(lambda self: self.kit.machine_advances_time)
    @rule(hours=HOURS)
    def advance_time(self, hours: int) -> None:
        """Let time pass, so that records expire."""
        self._model.now += hours * 3600

    @invariant()
    def all_pets_are_those_of_the_model(self) -> None:
        """Compare the list of all pets with the model's, and count the step."""
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

    def _write(self, payload: Payload, name: str | None) -> None:
        token, expected = self._model.token(payload, name), self._model.expect(payload, name)
        if isinstance(payload, NewPet):
            call = self._repository.create_pet(payload, token)
        else:
            call = self._repository.place_order(payload, AT, token)
        if expected is None:
            self._model.write(payload, name, self._runner.run(call))
            self.reached["pets" if isinstance(payload, NewPet) else "orders"] += 1
        else:
            self._check(call, expected)
            self.reached["replays"] += isinstance(expected, Receipt)

    def _update(self, order: Order, status: OrderStatus) -> None:
        expected = self._model.update(order, status)
        self._check(self._repository.update_order(order.id, status), expected)
        self.reached["updates"] += isinstance(expected, Order) and expected != order

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
    """The clause of whole sequences of calls."""

    machine_examples: ClassVar[int] = DEFAULT_EXAMPLES
    """How many sequences are run; fewer for a slow repository, but at least 10."""

    machine_advances_time: ClassVar[bool] = False
    """Whether the machine sets the clock by which records of tokens expire."""

    machine_restores: ClassVar[bool] = False
    """Whether the machine calls `restore`."""

    def test_it_returns_what_plain_lists_would(self) -> None:
        """Methods that work alone fail in combination."""
        reached = Counter[str]()

        class Machine(ModelMachine):
            pass

        Machine.kit, Machine.reached = self, reached
        with asyncio.Runner() as runner:
            runner.run(in_scratch(self, _no_test))  # skips if the storage cannot be reached
        examples = max(10, self.machine_examples)
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=MAX_STEPS,
                deadline=None,
                database=None,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            ),
        )
        # A machine that stores hardly anything would pass with every repository.
        assert reached["pets"] >= 5 * examples, reached
        assert reached["steps"] >= 10 * examples, reached
        for name in ("orders", "updates", "replays", "refusals"):
            assert reached[name] >= examples / 2, reached

    test_it_returns_what_plain_lists_would.__dict__["clause"] = "model"


async def _no_test(_kit: Kit, _place: Place) -> None:
    """Do nothing: `in_scratch` alone checks that a place can be opened."""
