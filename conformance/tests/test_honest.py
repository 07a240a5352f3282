"""The kit passes every backend that keeps the contract, however slow, and with whatever ids."""

import asyncio
import os
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from petstore_conformance import Conformance
from petstore_conformance.clauses import sequences
from petstore_conformance.clauses.costs import CostClauses
from petstore_conformance.clauses.processes import ProcessClauses
from petstore_conformance.harness import effort
from petstore_conformance.harness.kit import clauses
from petstore_sqlite import SqliteSettings
from petstore_sqlite import backend as sqlite

from conformance.tests.honest import LocationSettings
from conformance.tests.kits import kit
from conformance.tests.odd import (
    ODD,
    Distant,
    Jittery,
    Pooled,
    VirtualTime,
    odd,
    wrapped,
)

SEEDS = range(int(os.environ.get("PETSTORE_SEEDS", "1")))
CLAUSES = {
    name: test
    for name, test in clauses(Conformance).items()
    if name not in clauses(ProcessClauses)  # what is odd here lives in one process
}


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Seed Hypothesis; the backend takes its delays and gaps from the same seed."""
    monkeypatch.setattr(hypothesis.core, "global_force_seed", request.param)
    return int(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("clause", sorted(CLAUSES.keys() - clauses(CostClauses).keys()))
@pytest.mark.parametrize("name", ODD)
def test_an_odd_backend_passes_in_virtual_time(
    name: str, clause: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=VirtualTime))
    monkeypatch.setattr(effort, "LEAST_SHARE", 0)  # however slow
    getattr(kit(odd(name, seed), LocationSettings(), examples=10), CLAUSES[clause])()


@pytest.mark.slow
@pytest.mark.parametrize("clause", sorted(CLAUSES))
def test_sqlite_passes_behind_a_pool(
    clause: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(SEEDS) == 1:  # not by hand: the delays are real here
        monkeypatch.setattr(Jittery, "seconds", 0.001)
    settings = SqliteSettings(path=str(tmp_path / "pets.sqlite"))
    getattr(kit(wrapped(sqlite, Pooled, seed), settings, examples=10), CLAUSES[clause])()


@pytest.mark.slow
def test_a_slow_backend_has_fewer_sequences_in_the_clause_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "MODEL_SECONDS", 2)
    monkeypatch.setattr(effort, "LEAST_SHARE", 0)
    monkeypatch.setattr(Distant, "seconds", 0.03)
    getattr(kit(odd("Distant", 0), LocationSettings()), CLAUSES["model"])()
