"""The torture notices what is wrong, reports it, and finds nothing wrong with correct stores."""

import itertools
import json
import random
from math import inf
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from petstore_memory import MemoryRepository

from petstore.conformance.faults.histories import Attempt, Response
from petstore.conformance.faults.linearizability import search
from petstore.conformance.faults.operations import Operation, State, Step
from tests.faults.torture import __main__ as command
from tests.faults.torture import controls
from tests.faults.torture.histories import Loop
from tests.faults.torture.report import Result, combined, left_out, markdown
from tests.faults.torture.setups import memory
from tests.faults.torture.soak import Sample, rising
from tests.support.races import JudgedRace, nonlinearizable
from tests.support.services import Live


@pytest.mark.parametrize("racy", controls.RACY)
def test_a_racy_repository_is_noticed(racy: type[MemoryRepository]) -> None:
    assert any(controls.noticed(racy, f"{number}") for number in range(controls.HISTORIES))


def test_a_correct_repository_has_no_violations() -> None:
    assert controls.noticed(MemoryRepository, "1") == []


def explained(operations: list[Operation], pets: list[int]) -> bool:
    """Return the same as `search`, by trying every order."""
    for chosen in itertools.product((True, False), repeat=len(operations)):
        if any(o.ended < inf and not keep for o, keep in zip(operations, chosen, strict=True)):
            continue
        some = [o for o, keep in zip(operations, chosen, strict=True) if keep]
        for order in itertools.permutations(some):
            if any(b.ended < a.sent for a, b in itertools.combinations(order, 2)):
                continue
            states: list[State | None] = [State() for _ in pets]
            for operation in order:
                for index, pet in enumerate(pets):
                    if (step := operation.steps.get(pet)) and (state := states[index]) is not None:
                        states[index] = step(state)
            if None not in states:
                return True
    return False


def set_to(status: str) -> Step:
    """Return a write that changes the status, and fails if it has this status already."""
    return lambda state: None if state.status == status else State(status, state.orders)


def set_once(status: str, number: int) -> Step:
    """Return a write that changes the status, but only once: the state shows that it has."""
    done = (number, "done")
    return lambda s: s if done in s.orders else State(status, s.orders | {done})


def sees(status: str) -> Step:
    return lambda state: state if state.status == status else None


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Up to five writes and reads of two pets, which may overlap, end late, or never."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        sent = draw(st.integers(0, 6))
        ended = draw(st.sampled_from([sent + 0.5, sent + 2.5, inf]))
        steps: dict[int, Step] = {}
        for pet in draw(st.sampled_from([[1], [2], [1, 2]])):
            status = draw(st.sampled_from(["", "a", "b"]))
            if ended == inf:
                steps[pet] = set_once(status, number)
            else:
                steps[pet] = draw(st.sampled_from([sees, set_to]))(status)
        attempt = Attempt("x", "", 0, "", sent, ended, None)
        found.append(Operation(sent, ended, steps, attempt))
    return found


@given(histories())
def test_the_search_agrees_with_trying_every_order(operations: list[Operation]) -> None:
    assert search(operations, [1, 2])[0] is explained(operations, [1, 2])


def test_a_search_that_takes_too_long_is_given_up_and_counted() -> None:
    attempt = Attempt("x", "", 0, "", 0, 9, None)
    writes = [Operation(0, 9, {1: set_to(f"{n}")}, attempt) for n in range(20)]
    late = Operation(10, 11, {1: sees("never")}, attempt)
    assert search([*writes, late], [1], budget=500) == (None, None)


def test_a_history_without_requests_is_explained() -> None:
    assert nonlinearizable([]) == ([], 0)


def test_histories_on_memory_go_on_after_kills_and_find_nothing(tmp_path: Any) -> None:
    with memory(tmp_path) as set_up:
        total = combined(Loop(set_up, 1).run(tmp_path, 6))[0]
    assert total.violations == []
    assert total.counts["histories"] >= 1
    assert total.counts["acknowledged writes"] >= 50


@pytest.mark.parametrize(("stored", "expected"), [([1], []), ([], ["it is lost"])])
def test_after_a_failover_only_what_was_acknowledged_must_last(
    stored: list[int], expected: list[str]
) -> None:
    """An order was read and refused another one, but was never acknowledged, and is gone."""
    pet = {"id": 1, "name": "c", "categoryId": 7, "status": "available"}
    race = JudgedRace(Live("x", 1))
    race.settled = 10
    final = [pet] if stored else []
    race.history = [
        Attempt("create", "c", 0, "c", 0, 1, response_of(201, pet, "/v1/pets/1")),
        Attempt("pet", "", 1, "", 2, 3, response_of(200, pet | {"status": "pending"})),
        Attempt("place", "o", 1, "", 4, 5, response_of(409, {})),
        Attempt("place", "p", 1, "", 4, 5, response_of(404, {})),
        Attempt("pets", "", 0, "", 11, 12, response_of(200, final)),
    ]
    race.final = (final, [])
    found = race.violations(replaced=True)
    assert all([text for text in found if part in text] for part in expected)
    assert bool(found) is bool(expected)
    assert race.violations()


def response_of(status: int, item: object, location: str = "") -> Response:
    return Response(status, json.dumps(item).encode(), location)


def test_what_is_left_out_is_a_violation_where_everything_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PETSTORE_REQUIRE_SERVICES", raising=False)
    assert left_out("partitions", "not permitted", 1).violations == []
    monkeypatch.setenv("PETSTORE_REQUIRE_SERVICES", "1")
    assert left_out("partitions", "not permitted", 1).violations == ["not permitted"]


FLAT = [Sample(100 * n, 10 * n, 50_000_000, 30, 0.001, 0.01) for n in range(16)]


def varied(**growth: float) -> list[Sample]:
    """Return flat samples with noise, in which some figures grow by so much a sample."""
    choice = random.Random(1)  # noqa: S311 - no secret
    samples = []
    for number, sample in enumerate(FLAT):
        changes = {
            name: getattr(sample, name) * choice.uniform(0.98, 1.02) + by * number
            for name, by in growth.items()
        }
        samples.append(msgspec.structs.replace(sample, **changes))
    return samples


@pytest.mark.parametrize(
    ("figure", "little", "much"),
    [
        ("memory", 100_000, 1_000_000),
        ("descriptors", 0.5, 4),
        ("p50", 0.0001, 0.003),
        ("p99", 0.0005, 0.02),
    ],
)
def test_a_soak_notices_what_rises_and_nothing_else(
    figure: str, little: float, much: float
) -> None:
    assert rising(FLAT) == []
    assert rising(varied(**{figure: little})) == []
    [text] = rising(varied(**{figure: much}))
    assert text.startswith(f"{figure} rose from ")


def test_a_slow_moment_of_the_machine_is_not_a_rise() -> None:
    slow = [
        msgspec.structs.replace(sample, p99=5.0) if n % 3 else sample
        for n, sample in enumerate(FLAT)
    ]
    assert rising(slow) == []


def test_the_report_adds_up_what_was_done_and_names_the_seed_of_a_violation() -> None:
    parts = [
        Result("histories: x", {"histories": 1000, "kills": 0}, [], 7),
        Result("soak: y", {"samples": 3}, [], 7),
        Result("histories: x", {"histories": 500, "kills": 2}, ["pet 1 is lost"] * 2, 7),
    ]
    report = markdown(combined(parts), 5, 7)
    assert report.startswith("5 minutes, seed 7, 2 violations. petstore ")
    assert "| histories: x | 1,500 histories, 2 kills | 2 |\n| soak: y | 3 samples | 0 |" in report
    assert "- histories: x, seed 7: pet 1 is lost (2 times)" in report
    assert parts[0].counts["histories"] == 1000


@pytest.fixture
def run_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """Return a function that runs the command with other parts; it returns the exit status."""
    monkeypatch.setattr(command, "BUILD", tmp_path)

    def run(*results: Result | Exception) -> int:
        def part(seconds: float, seed: int) -> Any:
            assert 0 < seconds <= 6
            assert seed == 3
            for result in results:
                if isinstance(result, Exception):
                    raise result
                yield result

        monkeypatch.setattr(command, "PARTS", {"histories": (part, 1)})
        return command.main(["--minutes", "0.1", "--seed", "3", "--only", "histories"])

    return run


def test_the_status_and_the_report_say_what_was_violated(
    run_by: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = Result("a", {"histories": 1}, [], 3), Result("b", {}, ["a pet is lost"], 3)
    assert run_by(good, good) == 0
    out, err = capsys.readouterr()
    assert out == (tmp_path / "torture.md").read_text()
    assert err == "a: 2 histories; 0 violations\n"  # one line for a set-up, not one for each result
    assert run_by(good, bad) == 1
    assert "- b, seed 3: a pet is lost" in capsys.readouterr().out


def test_a_part_that_breaks_is_a_violation(run_by: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_by(OSError("no port")) == 1
    assert "- histories, which broke, seed 3: OSError('no port')" in capsys.readouterr().out


def test_an_interrupted_run_reports_what_it_has_done(
    run_by: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: object, result: Result) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.Progress, "show", interrupt)
    assert run_by(Result("a", {}, [], 3)) == command.INTERRUPTED
    assert "0 violations" in capsys.readouterr().out
