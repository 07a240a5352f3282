"""The kit catches every saboteur with the clause that it breaks, whatever the seed."""

import ast
import asyncio
import os
import re
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace
from petstore_conformance import Conformance, Kit, RemoteConformance
from petstore_conformance.clauses import cancellation, costs, methods, processes, restore, sequences
from petstore_conformance.clauses.processes import ProcessClauses
from petstore_conformance.harness import cores, effort
from petstore_conformance.harness.alarm import LateEffectError, OverdueError, is_late
from petstore_conformance.harness.kit import clauses, sentences
from petstore_conformance.model import calls
from petstore_conformance.model.values import REX, make_token
from petstore_conformance.reporter import NARROW_FIRST, begin_with
from petstore_memory import MemorySettings
from petstore_memory import backend as memory

from conformance.tests import kits
from conformance.tests.correct import Correct, LocationSettings, Store, backend
from conformance.tests.filed import FILED, FileSettings
from conformance.tests.saboteurs import SABOTEURS
from conformance.tests.saboteurs.cancellation import MakesCancelledWritesSoon
from conformance.tests.unusual import VirtualTime
from petstore.contract import Backend, Expected, Order, PetStatus, Repository, StorageError
from tests.support.documents import ROOT

SEEDS = range(int(os.environ.get("PETSTORE_SEEDS", "1")))
CONTRACT = (ROOT / "petstore" / "contract.py").read_text()
CLAUSES = clauses(Conformance)

IN_PROCESSES = clauses(ProcessClauses)  # the clauses for which a store must outlive its process

DEAR = {
    *("CachesPets", "DropsWhatMatchesNoMore", "LooksForAllIdsAtOnce"),
    "NumbersItsScratchLocations",
    "SavesRecordsLast",
    "ShowsWhatItSavesLater",
}
"""Saboteurs that take seconds of CPU; shorter ones break the same clauses."""

CAUGHT = (
    *(AssertionError, StorageError, OverdueError, asyncio.CancelledError),
    pytest.fail.Exception,
)
"""What a clause raises that catches a saboteur. Any other error is one of the saboteur's own."""

RAISES_WHAT_NO_BACKEND_MAY = {
    *("NeedsAnItem", "RaisesAnotherErrorWhenClosed"),
    *("RemembersAbsentOrders", "RenamesAnArgument", "ReopensWithoutItsIndex", "UnwrapsGroups"),
}
"""Saboteurs that break their clauses by another error."""

CAUGHT_BY_THE_MODEL_ALONE = 60
"""How many saboteurs the state machine alone must catch, with 10 runs for each."""


def dear(names: Iterable[str], slow: Container[str]) -> list[Any]:
    """Return the names as parameters, some of them slow."""
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(name, marks=marks[name in slow]) for name in sorted(names)]


def kit(backend: Backend, examples: int = sequences.DEFAULT_EXAMPLES) -> Conformance:
    return kits.kit(backend, LocationSettings(), examples)


@pytest.fixture(autouse=True)
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge also what a busy machine has no time to try."""
    monkeypatch.setattr(effort, "LEAST_SHARE", 0)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip shrinking, do not wait long for calls that hang, and judge on a busy machine, too."""
    monkeypatch.setattr(cores, "read", dict)
    monkeypatch.setattr(effort, "SLOW_SECONDS", 60)  # try all values
    monkeypatch.setattr(costs, "COMPARED_SECONDS", 2)  # half a second misses 2 ms beside others
    monkeypatch.setattr(costs, "FILL_SECONDS", 10)
    monkeypatch.setattr(calls, "LATER_SECONDS", 2)
    monkeypatch.setattr(processes, "KILLING_SECONDS", 30)
    monkeypatch.setattr(restore, "RESTORING_SECONDS", 500)
    for module in (calls, cancellation):
        monkeypatch.setattr(module, "CANCEL_SECONDS", 0.5)
    generated = hypothesis.settings(sequences.DRAWN, phases=[hypothesis.Phase.generate])
    monkeypatch.setattr(sequences, "DRAWN", generated)
    monkeypatch.setattr(sequences, "LIMIT_SECONDS", 20)


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest, quickly: None) -> Iterator[int]:
    """Seed Hypothesis."""
    hypothesis.core.global_force_seed = request.param
    yield int(request.param)
    hypothesis.core.global_force_seed = None


def test_every_clause_of_the_contract_has_a_test_and_every_test_has_a_clause() -> None:
    named = re.findall(r"\[([a-z]+(?:-[a-z]+)*)\]$", CONTRACT, re.MULTILINE)
    assert len(set(named)) == len(named), "two clauses share a name"
    assert set(named) == set(CLAUSES)


def test_the_table_of_calls_has_every_method() -> None:
    given = methods.Given(1, 1, 1, 1, 1, 1, make_token("used", REX))
    names = methods.calls_of(Correct(Store()), given)
    assert {name.partition(",")[0] for name in names} == Repository.__abstractmethods__


def test_every_docstring_of_a_clause_says_what_a_failing_backend_does_wrong() -> None:
    for test in CLAUSES.values():
        assert (getattr(Conformance, test).__doc__ or "").strip(), test


def test_the_clauses_are_in_an_order_of_breadth() -> None:
    assert sorted(NARROW_FIRST) == sorted(CLAUSES)
    assert NARROW_FIRST[-1] == "model"


@pytest.mark.parametrize(
    ("failed", "late", "first"),
    [
        (["scratch-apart", "durable-orders"], (), "durable-orders"),  # times cut when reopened
        (["token-deleted", "token-expired"], (), "token-expired"),
        (["restore-exact", "order-exact"], (), "order-exact"),  # the year 999
        (["token-atomic", "after-cancellation"], (), "after-cancellation"),
        (["no-aliasing", "durable-reads"], ["no-aliasing"], "durable-reads"),
    ],
)
def test_a_report_begins_with_the_narrowest_clause_that_does_not_fail_by_time(
    failed: list[str], late: Sequence[str], first: str
) -> None:
    assert begin_with(failed, late)[0] == first


@pytest.mark.parametrize("name", dear(CLAUSES, IN_PROCESSES))
def test_a_correct_repository_passes(name: str) -> None:
    if name == "cost":  # it needs indexes, which would make `Correct` longer
        getattr(kits.kit(memory, MemorySettings()), CLAUSES[name])()
    else:
        filed = name in IN_PROCESSES or name.startswith("store-")
        getattr(kit(FILED if filed else backend(Correct)), CLAUSES[name])()


def test_a_failure_says_what_its_clause_says_and_shows_no_frame_of_asyncio() -> None:
    with pytest.raises(AssertionError) as failure:
        getattr(kit(SABOTEURS["TrimsNames"][1]), test := CLAUSES["name-exact"])()
    probably = f"Probably: {getattr(Conformance, test).__doc__}"
    assert failure.value.__notes__ == [f"[name-exact] {sentences()['name-exact']}", probably]
    assert not [entry for entry in failure.traceback if "asyncio" in f"{entry.path}"]


def test_every_clause_has_a_saboteur() -> None:
    assert {clause for clause, _ in SABOTEURS.values()} == set(CLAUSES)


@pytest.mark.parametrize("name", dear(SABOTEURS, DEAR))
def test_a_saboteur_is_caught_by_the_clause_that_it_breaks(name: str, seed: int) -> None:
    clause, saboteur = SABOTEURS[name]
    error = Exception if name in RAISES_WHAT_NO_BACKEND_MAY else CAUGHT
    with pytest.raises(error):
        getattr(kit(saboteur), CLAUSES[clause])()


@pytest.mark.parametrize(
    "name",
    ["TrimsNames", "RaisesAnotherErrorWhenClosed", "LoadsAThousandPets", "ScratchIsOneLocation"],
)
def test_a_saboteur_does_not_hide_behind_an_open_that_swallows_its_failures(
    name: str, quickly: None
) -> None:
    clause, saboteur = SABOTEURS[name]

    @asynccontextmanager
    async def open_(settings: LocationSettings, expected: Expected) -> AsyncIterator[Repository]:
        with suppress(Exception):
            async with saboteur.open(settings, expected) as repository:
                yield repository

    with pytest.raises((Exception, pytest.fail.Exception)):
        getattr(kit(replace(saboteur, open=open_)), CLAUSES[clause])()


@pytest.mark.parametrize("name", ["AcknowledgesWhatItDrops", "RollsBackWhenCancelled"])
def test_the_model_alone_catches_what_closing_loses(name: str, seed: int) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)):
        getattr(kit(SABOTEURS[name][1], 10 * sequences.DEFAULT_EXAMPLES), CLAUSES["model"])()


def test_a_call_that_a_store_that_is_gone_answers_is_shown(quickly: None) -> None:
    clause, saboteur = SABOTEURS["SellsWhatItRemembers"]
    with pytest.raises(AssertionError, match="is raised by a call of get_pet"):
        getattr(kit(saboteur), CLAUSES[clause])()


def test_an_effect_soon_after_its_cancellation_is_seen(
    quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=VirtualTime))
    with pytest.raises(LateEffectError, match="later than it would have otherwise") as caught:
        getattr(kit(backend(MakesCancelledWritesSoon)), CLAUSES["cancelled-write"])()
    assert not is_late("cancelled-write", caught.value), "the report begins with it"


class FailsOnce(Correct):
    failures = 0

    async def get_order(self, order_id: int) -> Order | None:
        type(self).failures += 1
        if self.failures == 1:
            raise BrokenPipeError
        return await super().get_order(order_id)


def test_the_model_shows_a_failure_that_it_cannot_repeat(quickly: None) -> None:
    with pytest.raises(BrokenPipeError):
        getattr(kit(backend(FailsOnce)), CLAUSES["model"])()


def test_a_bug_of_cpython_is_not_blamed_on_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*arguments: Any, **named: Any) -> None:  # as `ast.parse` did in 3.11.7
        run_state_machine_as_test(*arguments, **named)
        raise SystemError("AST constructor recursion depth mismatch (before=144, after=192)")

    monkeypatch.setattr(sequences, "run_state_machine_as_test", parse)
    getattr(kit(backend(Correct)), CLAUSES["model"])()


def test_a_failure_of_the_model_is_a_program_that_repeats_it(quickly: None) -> None:
    _, saboteur = SABOTEURS["LeavesThePetAvailable"]
    with pytest.raises(AssertionError) as caught:
        getattr(kit(saboteur), CLAUSES["model"])()
    (program,) = (note for note in caught.value.__notes__ if "async with" in note)
    lines = program.splitlines()[1:-1]  # without what introduces it, and a hint
    assert "place_order" in lines[-2]
    lines[-1] = lines[-1].replace("await", "found = await")
    run = compile("\n".join(lines), "program", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    values: dict[str, Any] = {"backend": saboteur, "settings": LocationSettings()}
    asyncio.run(eval(run, values))  # noqa: S307 - what the kit has written
    assert values["found"].status is PetStatus.AVAILABLE


@pytest.mark.slow
def test_the_model_alone_catches_many_saboteurs(quickly: None) -> None:
    caught = []
    for name, (_, saboteur) in SABOTEURS.items():
        if saboteur.settings is FileSettings:  # slow, and a time limit may leave a file open
            continue
        try:
            getattr(kit(saboteur, examples=10), CLAUSES["model"])()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a saboteur may fail with any error
            caught.append(name)
        if len(caught) == CAUGHT_BY_THE_MODEL_ALONE:
            return  # all of them would take minutes
    pytest.fail(f"only {len(caught)} are caught: {caught}")


def test_a_clause_cannot_be_overridden_or_deleted() -> None:
    name = CLAUSES["id-range"]
    for replacement in (lambda _: None, None):
        with pytest.raises(TypeError, match="would replace a clause"):
            type("Mine", (Conformance,), {name: replacement})


def test_a_remote_repository_skips_only_the_clauses_of_locations_time_and_restoring() -> None:
    located: tuple[str, ...] = ("closed", "durable", "failure", "scratch", "shared", "snapshot")
    located += ("store", "cost", "event-loop", "restore")
    located += ("token-deleted", "token-expired", "token-walk")
    skipped = set(CLAUSES) - set(clauses(RemoteConformance))
    assert skipped == {name for name in CLAUSES if name.startswith(located)}
    assert issubclass(Conformance, Kit)
