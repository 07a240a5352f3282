"""The torture notices what is wrong, reports it, and finds nothing wrong with correct stores."""

import itertools
import os
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import NoReturn

import petstore_memory
import pytest
from hypothesis import given
from hypothesis import strategies as st
from petstore_conformance.faults.histories import Attempt
from petstore_conformance.faults.linearizability import RecordedCall, State, Step, search
from petstore_conformance.faults.verdicts import Findings, RoundOutcome
from petstore_memory import MemorySettings

from conformance.tests.filed import FILED, FileSettings
from tests.faults.torture import __main__ as command
from tests.faults.torture.runs import LeftOutError, Outcomes, Run, SetUp
from tests.faults.torture.stage import Topology, rounds
from tests.support.documents import ROOT
from tests.support.installed import install


def explained(operations: list[RecordedCall]) -> bool:
    """Return the same as `search`, by trying every order."""
    for chosen in itertools.product((True, False), repeat=len(operations)):
        if any(o.ended < inf and not keep for o, keep in zip(operations, chosen, strict=True)):
            continue
        some = [o for o, keep in zip(operations, chosen, strict=True) if keep]
        for order in itertools.permutations(some):
            if any(b.ended < a.sent for a, b in itertools.combinations(order, 2)):
                continue
            state: State | None = State()
            for operation in order:
                state = operation.step(state) if state is not None else None
            if state is not None:
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
def histories(draw: st.DrawFn) -> list[RecordedCall]:
    """Three to five writes and reads of a pet; most overlap, some end late, or never."""
    found = []
    for number in range(draw(st.integers(3, 5))):
        sent = draw(st.integers(0, 2))
        ended = draw(st.sampled_from([sent + 0.5, sent + 2.5, inf]))
        status = draw(st.sampled_from(["", "a"]))
        step = draw(st.sampled_from([sees, set_to]))(status)
        if ended == inf:
            step = set_once(status, number)
        attempt = Attempt("x", "", 0, "", sent, ended, None)
        found.append(RecordedCall(sent, ended, step, attempt))
    return found


@given(histories())
def test_the_search_agrees_with_trying_every_order(operations: list[RecordedCall]) -> None:
    assert search(operations)[0] is explained(operations)


@pytest.mark.slow
def test_rounds_on_memory_find_nothing(tmp_path: Path) -> None:
    topology = Topology(name="memory", backend=petstore_memory.backend, settings=MemorySettings())
    tried = rounds(topology, Run(1, 1, time.monotonic() + 300), tmp_path)
    for number, name in enumerate(("stall-worker", "set-clock", "jump-a-day"), 1):
        outcome = tried.run(number, [name])
        assert outcome.found == {}
        assert outcome.slow or outcome.counts["acknowledged"] > 10


FORGETS = """
import time
from conformance.tests import filed

class Forgets(filed.Filed):
    shared = False
    seen = 0.0

    def load(self):
        super().load()
        if time.time() > self.seen + 86400:
            self.data.records.clear()
        self.seen = time.time()

backend = filed.backend(Forgets)
"""


@pytest.mark.slow
def test_a_backend_that_forgets_keys_when_the_clock_jumps_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("tried", tmp_path, FORGETS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    topology = Topology(name="tried", backend=FILED, settings=FileSettings("unused"))
    outcome = rounds(topology, Run(1, 1, time.monotonic() + 300), tmp_path).run(1, ["jump-a-day"])
    assert [t for t in outcome.found["retried twice"] if "executed 2 times" in t], outcome


def of(outcome: RoundOutcome) -> tuple[SetUp, float]:
    """Return a set-up with one round of this outcome, and its share of the time."""

    def set_up(*_: object) -> Outcomes:
        yield outcome

    return set_up, 1


def raising(error: BaseException) -> tuple[SetUp, float]:
    def set_up(*_: object) -> NoReturn:
        raise error

    return set_up, 1


GOOD = of(RoundOutcome("kills", Counter(kills=2000)))
BAD = of(RoundOutcome("kills", found=Findings({"lost": ["pet 1"]})))
SLOW = of(RoundOutcome("kills", slow=["not recovered: no responses"]))
BROKEN = raising(OSError("no port"))


@pytest.mark.parametrize(
    ("others", "status", "said"),
    [
        ((), 0, "good: 0 violations: "),
        ((BAD,), 1, "        round 1: pet 1"),
        ((SLOW,), 75, "        round 1: not recovered: no responses"),
        ((BROKEN,), 75, "the set-up broke: OSError('no port')"),
        ((SLOW, BAD), 1, "     1  lost "),
    ],
)
def test_the_status_and_the_summary_say_what_was_found(
    others: tuple[tuple[SetUp, float], ...],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_ups = {"good": GOOD} | {f"other {n}": other for n, other in enumerate(others)}
    assert command.torture(set_ups, 10, 3) == status
    summary = capsys.readouterr().out.rpartition(" minutes, seed 3\n")[2]
    assert said in summary
    assert "good: 0 violations: 1 rounds, 2000 kills" in summary


def test_a_set_up_that_hangs_is_cut_short_and_the_next_one_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "GRACE_SECONDS", 0.2)

    def hangs(*_: object) -> NoReturn:
        time.sleep(1000)
        raise AssertionError

    assert command.torture({"one": (hangs, 1), "two": (hangs, 1)}, 0.1, 3) == 75
    summary = capsys.readouterr().out
    assert "cut short at the end of the run" in summary
    assert summary.count(": left out, the time was over\n") == 1


def test_what_is_left_out_is_a_violation_where_everything_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions = {"partitions": raising(LeftOutError("not permitted"))}
    for required, status in (("", 0), ("1", 1)):
        monkeypatch.setenv("PETSTORE_REQUIRE_SERVICES", required)
        assert command.torture(partitions, 10, 1) == status


def test_an_interrupted_run_reports_what_it_has_done(capsys: pytest.CaptureFixture[str]) -> None:
    set_ups = {"good": GOOD, "x": raising(KeyboardInterrupt())}
    assert command.torture(set_ups, 10, 5) == 130  # good comes first
    assert "good: 0 violations: " in capsys.readouterr().out
