"""The clause that is no example: a state machine that compares the repository with a model."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec import UNSET

from petstore.conformance.kit import Kit, Place, in_scratch
from petstore.contract import MAX_ID, NewPet, Pet, PetStatus, Repository

EXAMPLES = 40
STEPS = 30
PHASES = [Phase.generate, Phase.shrink]

ANIMALS = st.builds(
    NewPet,
    name=st.sampled_from(["", "Rex", "rex", " Rex", "a\x00b", "\U0001f436"]) | st.text(max_size=6),
    category_id=st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 2**53 + 1, 2**63 - 1]),
    status=st.sampled_from([UNSET, *PetStatus]),
)
FILTERS = st.sampled_from([None, *PetStatus])
INDEXES = st.integers(0, 40)

# What is behind the last animal, at it, before it: a page begins anywhere.
OFFSETS = st.sampled_from([-2, -1, 0, 1, 2])


class ModelMachine(RuleBasedStateMachine):
    """Drives one repository and a plain list of animals.

    A small universe of animals is stored first, and later steps choose among them by index:
    otherwise nearly every run would look for animals in an empty store.
    """

    kit: ClassVar[Kit]
    reached: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._repository: Repository
        self._pets: list[Pet] = []

    @initialize(universe=st.lists(ANIMALS, min_size=4, max_size=14))
    def begin(self, universe: list[NewPet]) -> None:
        """Open an empty repository and store the universe."""

        async def open_() -> Repository:
            backend = self.kit.backend
            place = await self._stack.enter_async_context(backend.scratch(self.kit.settings))
            return await self._stack.enter_async_context(backend.open(place))

        self._repository = self._runner.run(open_())
        for new in universe:
            self.create(new)

    @rule(new=ANIMALS)
    def create(self, new: NewPet) -> None:
        """Store an animal."""
        receipt = self._runner.run(self._repository.create_pet(new))
        assert 1 <= receipt.id <= MAX_ID
        assert receipt.id not in [pet.id for pet in self._pets]
        self._pets.append(Pet(receipt.id, new.name, new.category_id, new.status))
        self._pets.sort(key=lambda pet: pet.id)
        self.reached["animals"] += 1

    @rule(news=st.lists(ANIMALS, min_size=2, max_size=4))
    def create_together(self, news: list[NewPet]) -> None:
        """Store several animals at once."""

        async def together() -> list[Any]:
            return await asyncio.gather(*(self._repository.create_pet(new) for new in news))

        for new, receipt in zip(news, self._runner.run(together()), strict=True):
            assert receipt.id not in [pet.id for pet in self._pets]
            self._pets.append(Pet(receipt.id, new.name, new.category_id, new.status))
        self._pets.sort(key=lambda pet: pet.id)
        self.reached["animals"] += len(news)

    @rule(index=INDEXES)
    def get(self, index: int) -> None:
        """Read an animal that is there."""
        pet = self._pets[index % len(self._pets)]
        assert self._runner.run(self._repository.get_pet(pet.id)) == pet

    @rule(index=INDEXES, offset=OFFSETS)
    def get_near(self, index: int, offset: int) -> None:
        """Read beside an animal, where there may be none."""
        number = max(1, self._pets[index % len(self._pets)].id + offset)
        expected = next((pet for pet in self._pets if pet.id == number), None)
        assert self._runner.run(self._repository.get_pet(number)) == expected

    @rule(index=INDEXES, offset=OFFSETS, count=st.integers(1, 16), status=FILTERS)
    def list_from(self, index: int, offset: int, count: int, status: PetStatus | None) -> None:
        """Read a page that begins near an animal."""
        after = max(0, self._pets[index % len(self._pets)].id + offset)
        self._check_page(after, count, status)

    @rule(count=st.integers(1, 4), status=FILTERS)
    def walk(self, count: int, status: PetStatus | None) -> None:
        """Read page after page."""
        after = 0
        while page := self._check_page(after, count, status):
            after = page[-1].id

    @invariant()
    def counts(self) -> None:
        """Count the step; the list of all animals is the model."""
        if self._pets:
            self.reached["steps"] += 1
            self._check_page(0, len(self._pets) + 1, None)

    def teardown(self) -> None:
        """Close the repository and remove its place."""
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def _check_page(self, after: int, count: int, status: PetStatus | None) -> list[Pet]:
        matching = [p for p in self._pets if p.id > after and status in (None, p.status)]
        page = list(self._runner.run(self._repository.list_pets(after, count, status)))
        assert page == matching[:count]
        return page


class ModelClause(Kit):
    """The repository and the model."""

    machine_examples: ClassVar[int] = EXAMPLES
    """How many runs; a slow repository may take fewer, but not fewer than 10."""

    def test_it_answers_as_a_plain_list_of_animals_would(self) -> None:
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

    test_it_answers_as_a_plain_list_of_animals_would.__dict__["clause"] = "model"


async def _nothing(_kit: Kit, _place: Place) -> None:
    """Only see whether a place can be opened."""
