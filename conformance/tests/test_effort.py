"""How much is tried of a slow backend: all that may overlap, else what the seed chooses."""

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial

import hypothesis
import pytest
from msgspec.structs import replace
from petstore_conformance import Conformance
from petstore_conformance.clauses import cancellation, costs
from petstore_conformance.harness import cores, effort
from petstore_conformance.harness.effort import EFFORTS, Effort
from petstore_conformance.harness.kit import clauses

from conformance.tests.correct import Correct, LocationSettings, Token, backend
from conformance.tests.kits import kit
from conformance.tests.saboteurs import SABOTEURS
from conformance.tests.unusual import (
    Distant,
    ListsSlowly,
    Locked,
    RestoresSlowly,
    VirtualTime,
    Wrapped,
    WritesInTurn,
    WritesSlowly,
    wrapped,
)
from petstore.contract import NewPet, Receipt

CLAUSES = clauses(Conformance)


class TrimsSpaces(Correct):
    """Strips blanks from names."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        return await super().create_pet(replace(new, name=new.name.strip(" ")), token)


def run(clause: str, repository: type[Correct], wrapper: type[Wrapped], seconds: float) -> Effort:
    """Run a clause in virtual time, with calls that take so long; return what was tried."""
    slow = type("Slow", (wrapper,), {"seconds": seconds})
    tested = kit(wrapped(backend(repository), slow, 0), LocationSettings())
    getattr(tested, CLAUSES[clause])()
    return EFFORTS[clause]


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let delays cost nothing."""
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=VirtualTime))


@pytest.mark.parametrize("seed", range(2))
def test_a_slow_saboteur_is_caught_as_a_fast_one_is(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypothesis.core, "global_force_seed", seed)
    with pytest.raises(AssertionError, match="name=' '"):
        run("name-exact", TrimsSpaces, Distant, 0.025)


def test_calls_that_overlap_are_all_made_however_far_away_the_server_is() -> None:
    far, near = run("name-exact", Correct, Distant, 0.14), run("name-exact", Correct, Distant, 0)
    assert far.share == near.share == 1
    assert far.calls >= near.calls > 100


def test_a_clause_with_too_few_values_is_inconclusive_and_says_so() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"inconclusive: only 1\d% of the values"):
        run("name-exact", Correct, Locked, 0.14)
    assert 1 / 7 <= EFFORTS["name-exact"].share < 0.2
    assert run("name-exact", Correct, Locked, 0.03).share == pytest.approx(2 / 3, abs=0.02)


def test_what_a_busy_machine_left_out_is_not_blamed_on_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = itertools.count(0, 10**12)
    monkeypatch.setattr(cores, "read", lambda: {"1": (0, next(waited))})
    with pytest.raises(pytest.skip.Exception, match="are needed: the machine is too busy: in"):
        run("name-exact", Correct, Locked, 0.14)


@pytest.mark.parametrize("seconds", [0.0006, 0.002])
def test_as_many_items_are_restored_as_there_is_time_for(seconds: float) -> None:
    effort = run("restore-sizes", Correct, RestoresSlowly, seconds)
    assert effort.share == pytest.approx(min(1, 25 / 41_000 / seconds), abs=0.02)


def test_what_there_is_no_time_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "TRIAL_SECONDS", 1)
    with pytest.raises(pytest.skip.Exception, match="inconclusive: only"):
        run("cancellation", Correct, Distant, 0.05)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["PlacesInTwoTransactions", "CancelsInTwoTransactions"])
def test_few_values_are_read_through_either_handle(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypothesis.core, "global_force_seed", seed)
    monkeypatch.setattr(effort, "LEAST_SHARE", 0)
    choose = Effort.choose
    monkeypatch.setattr(Effort, "choose", lambda self, items, _share: choose(self, items, 1 / 7))
    clause, saboteur = SABOTEURS[name]
    with pytest.raises(AssertionError):
        getattr(kit(saboteur, LocationSettings()), CLAUSES[clause])()


@pytest.mark.parametrize("seconds", [0.03, 0.06])
def test_a_slow_write_counts_like_a_slow_read(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "FEWER_ITEMS", 100)  # `Correct` has no index
    overlapping = run("event-loop", Correct, WritesSlowly, seconds)
    assert overlapping.share == pytest.approx(0.02 / seconds, abs=0.03)
    assert run("overlapping-calls", Correct, WritesSlowly, seconds).share == 1
    in_turn = run("overlapping-calls", Correct, WritesInTurn, seconds)
    assert in_turn.share == pytest.approx(0.02 / seconds, abs=0.03)


def test_nothing_changes_hundreds_of_times_while_a_slow_page_is_read() -> None:
    ListsSlowly.pages = 0
    effort = run("page-overlap", Correct, ListsSlowly, 0.04)
    assert effort.share == 1
    assert ListsSlowly.pages > 50
    assert effort.calls < 30 * ListsSlowly.pages


def test_the_seed_chooses_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(seed: int) -> Sequence[int]:
        monkeypatch.setattr(hypothesis.core, "global_force_seed", seed)
        return Effort("name-exact", {}).choose(range(100), 1 / 7)

    first, again, other = chosen(1), chosen(1), chosen(2)
    assert first == again != other
    assert len(first) == len(other) == 15
    assert list(first) == sorted(first)
