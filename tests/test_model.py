"""The HTTP surface against a model: creates, reads and pages in any order and combination."""

from collections import Counter
from contextlib import ExitStack
from typing import Any

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.live import Live, in_thread
from tests.test_paging import next_link

STATUSES = ("available", "pending", "sold")
ANIMALS = st.fixed_dictionaries(
    {"name": st.text(max_size=8), "categoryId": st.integers(-(2**63), 2**63 - 1)},
    optional={"status": st.sampled_from(STATUSES)},
)
LIMITS = st.sampled_from([1, 1, 2, 2, 3, None, 100])  # mostly less than there are animals
FILTERS = st.sampled_from([None, None, None, *STATUSES])

reached = Counter[str]()
"""What all examples together did, so that a machine that does nothing does not pass for one."""


class ServiceMachine(RuleBasedStateMachine):
    """Drives one service and remembers what it must answer: the animals, and walks under way."""

    live: Live

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.animals: list[dict[str, Any]] = []
        self.walks: list[tuple[str, str | None, list[int], list[int]]] = []

    @initialize(universe=st.lists(ANIMALS, min_size=6, max_size=12))
    def begin(self, universe: list[dict[str, Any]]) -> None:
        """Open an empty store and put a small universe of animals into it."""
        self.live = self.stack.enter_context(in_thread())
        for animal in universe:
            self.create(animal)
        self.first_page(2, None)  # every run has a walk under way

    def teardown(self) -> None:
        self.stack.close()

    @rule(animal=ANIMALS)
    def create(self, animal: dict[str, Any]) -> None:
        """Add an animal."""
        answer = self.live.client.post("/v1/pets", json=animal)
        assert answer.status_code == 201
        pet = answer.json()
        assert pet == {"id": pet["id"], **animal}
        assert pet["id"] not in [other["id"] for other in self.animals]
        assert answer.headers["location"] == f"/v1/pets/{pet['id']}"
        self.animals.append(pet)
        self._count("creates")

    @rule(index=st.integers(0, 50))
    def get(self, index: int) -> None:
        """Read an animal that exists."""
        pet = self.animals[index % len(self.animals)]
        assert self.live.client.get(f"/v1/pets/{pet['id']}").json() == pet
        self._count("gets")

    @rule(number=st.integers(1, 2**53 - 1))
    def get_absent(self, number: int) -> None:
        """Read an animal that does not exist."""
        if number not in [pet["id"] for pet in self.animals]:
            assert self.live.client.get(f"/v1/pets/{number}").status_code == 404

    @rule(limit=LIMITS, status=FILTERS)
    def first_page(self, limit: int | None, status: str | None) -> None:
        """Read a first page, and begin a walk if it has a successor."""
        answer = self._page(limit, status)
        expected = self._matching(status)[: limit or 20]
        assert answer.json() == expected
        link = next_link(answer)
        assert (link is not None) == (len(self._matching(status)) > (limit or 20))
        if link is not None:
            before = [pet["id"] for pet in self._matching(status)]
            self.walks.append((link, status, before, [pet["id"] for pet in expected]))
            self._count("walks")

    @rule(index=st.integers(0, 50), to_the_end=st.booleans())
    def next_page(self, index: int, to_the_end: bool) -> None:
        """Go on with a walk; when it ends, it has seen what was there when it began."""
        if not self.walks:
            return
        following, status, before, seen = self.walks.pop(index % len(self.walks))
        link: str | None = following
        while link is not None:
            answer = self.live.client.get(link)
            assert answer.status_code == 200
            assert all(pet in self._matching(status) for pet in answer.json())
            seen = [*seen, *(pet["id"] for pet in answer.json())]
            assert seen == sorted(set(seen))
            link = next_link(answer)
            if link is not None and not to_the_end:
                self.walks.append((link, status, before, seen))
                return
        assert set(before) <= set(seen)
        self._count("finished walks")

    @invariant()
    def ids_ascend(self) -> None:
        """Animals are listed in ascending id."""
        if self.animals:
            ids = [pet["id"] for pet in self._page(100, None).json()]
            assert ids == sorted(pet["id"] for pet in self.animals)[:100]

    def _page(self, limit: int | None, status: str | None) -> httpx.Response:
        parameters = {"limit": limit, "status": status}
        given = {name: value for name, value in parameters.items() if value is not None}
        answer = self.live.client.get("/v1/pets", params=given)
        assert answer.status_code == 200
        return answer

    def _matching(self, status: str | None) -> list[dict[str, Any]]:
        found = [pet for pet in self.animals if status in (None, pet.get("status"))]
        return sorted(found, key=lambda pet: int(pet["id"]))

    def _count(self, what: str) -> None:
        reached[what] += 1


def test_the_service_answers_as_the_model() -> None:
    reached.clear()
    run_state_machine_as_test(
        ServiceMachine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None)
    )
    assert reached["creates"] >= 150, reached
    assert reached["gets"] >= 10, reached
    assert reached["walks"] >= 15, reached
    assert reached["finished walks"] >= 5, reached
