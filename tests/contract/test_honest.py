"""The kit passes every backend that keeps the contract, however slow, and with whatever ids."""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import pytest
from petstore_memory import MemoryRepository
from petstore_sqlite import SqliteSettings
from petstore_sqlite import backend as sqlite

from petstore.conformance import Conformance, sequences
from petstore.conformance.costs import CostClauses
from petstore.conformance.kit import clauses
from petstore.conformance.processes import ProcessClauses
from tests.support.honest import PlaceSettings
from tests.support.kits import kit
from tests.support.odd import (
    ODD,
    SHAPES,
    Distant,
    Jittery,
    Pooled,
    Sequences,
    VirtualTime,
    Wrapped,
    odd,
    wrapped,
)
from tests.support.pets import AVAILABLE_REX
from tests.support.plugins import plugin_of
from tests.support.services import in_thread

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


@pytest.mark.parametrize("clause", sorted(CLAUSES.keys() - clauses(CostClauses).keys()))
@pytest.mark.parametrize("name", ODD)
def test_an_odd_backend_passes_in_virtual_time(
    name: str, clause: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=VirtualTime))
    getattr(kit(odd(name, seed), PlaceSettings(), examples=10), CLAUSES[clause])()


@pytest.mark.parametrize("clause", sorted(CLAUSES))
@pytest.mark.parametrize("wrapper", [Pooled, Sequences])
def test_sqlite_passes_behind_a_pool_and_with_any_sequence(
    wrapper: type[Wrapped],
    clause: str,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if len(SEEDS) == 1:  # make test: the delays are real here
        monkeypatch.setattr(Jittery, "seconds", 0.001)
    settings = SqliteSettings(path=str(tmp_path / "pets.sqlite"))
    getattr(kit(wrapped(sqlite, wrapper, seed), settings, examples=10), CLAUSES[clause])()


def test_a_slow_backend_has_fewer_sequences_in_the_clause_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "MODEL_SECONDS", 2)
    monkeypatch.setattr(Distant, "seconds", 0.03)
    getattr(kit(odd("Distant", 0), PlaceSettings()), CLAUSES["model"])()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_service_takes_any_sequence_as_a_page(shape: type[Sequence[Any]]) -> None:
    repository = Sequences(MemoryRepository(), Random(0))  # noqa: S311 - shapes, not secrets
    repository.shapes = [shape]
    with in_thread(plugin=plugin_of(repository)) as live:
        for _ in range(3):
            pet = live.client.post("/v1/pets", json=AVAILABLE_REX).json()
            assert live.client.post("/v1/store/orders", json={"petId": pet["id"]}).is_success
        for path in ("/v1/pets", "/v1/store/orders"):
            response = live.client.get(path, params={"limit": 2})
            assert [item["id"] for item in response.json()] == [1, 2]
            response = live.client.get(response.links["next"]["url"])
            assert [item["id"] for item in response.json()] == [3]
            assert response.links == {}
        assert live.client.get("/readyz").is_success
