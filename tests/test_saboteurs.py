"""The kit has teeth: every saboteur is caught by the clause that it breaks, whatever the seed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from petstore.conformance import Conformance, Kit, RemoteConformance, calls, machine
from petstore.conformance.kit import clauses
from petstore.contract import Backend
from tests.honest import Honest, PlaceSettings, backend
from tests.saboteurs import SABOTEURS

SEEDS = range(int(os.environ.get("PETSTORE_SEEDS", "1")))
CONTRACT = (Path(__file__).parent.parent / "petstore" / "contract.py").read_text()
CLAUSES = clauses(Conformance)

CAUGHT_BY_THE_MODEL_ALONE = 45
"""What the machine is at least worth without the named clauses, in 10 runs a saboteur."""


def kit(backend: Backend) -> Conformance:
    class OfSaboteur(Conformance):
        pass

    OfSaboteur.backend, OfSaboteur.settings = backend, PlaceSettings()
    return OfSaboteur()


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find lies without shrinking them, and do not wait long for calls that hang."""
    monkeypatch.setattr(calls, "CANCEL_SECONDS", 0.5)
    monkeypatch.setattr(machine, "PHASES", [hypothesis.Phase.generate])


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest, quickly: None) -> Iterator[int]:
    """Seed Hypothesis."""
    hypothesis.core.global_force_seed = request.param
    yield int(request.param)
    hypothesis.core.global_force_seed = None


def test_every_clause_of_the_contract_has_a_test_and_no_test_is_without_one() -> None:
    named = re.findall(r"\[([a-z]+(?:-[a-z]+)*)\]", CONTRACT.replace("[id-range], ends", "ends"))
    assert len(set(named)) == len(named), "a clause has one sentence"
    assert set(named) == set(CLAUSES)


def test_every_test_says_what_a_backend_that_fails_it_does_wrong() -> None:
    for test in CLAUSES.values():
        assert (getattr(Conformance, test).__doc__ or "").strip(), test


@pytest.mark.parametrize("name", sorted(CLAUSES))
def test_an_honest_repository_passes(name: str) -> None:
    getattr(kit(backend(Honest)), CLAUSES[name])()


def test_every_clause_has_a_saboteur_and_there_are_at_least_25() -> None:
    assert {clause for clause, _ in SABOTEURS.values()} == set(CLAUSES)
    assert len(SABOTEURS) >= 25


@pytest.mark.parametrize("name", sorted(SABOTEURS))
def test_a_saboteur_is_caught_by_the_clause_that_it_breaks(name: str, seed: int) -> None:
    clause, saboteur = SABOTEURS[name]
    with pytest.raises((Exception, pytest.fail.Exception)):
        getattr(kit(saboteur), CLAUSES[clause])()


def test_the_model_alone_catches_most_saboteurs(quickly: None) -> None:
    caught = []
    for name, (_, saboteur) in SABOTEURS.items():
        try:
            quick = kit(saboteur)
            type(quick).machine_examples = 10
            getattr(quick, CLAUSES["model"])()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a lie shows as any error
            caught.append(name)
    assert len(caught) >= CAUGHT_BY_THE_MODEL_ALONE, caught


def test_a_clause_cannot_be_overridden_or_deleted() -> None:
    name = CLAUSES["id-range"]
    for replacement in (lambda _: None, None):
        with pytest.raises(TypeError, match="would replace a clause"):
            type("Mine", (Conformance,), {name: replacement})


def test_only_places_time_and_restoring_are_left_out_for_a_remote_repository() -> None:
    left_out = set(CLAUSES) - set(clauses(RemoteConformance))
    assert left_out == {
        "closed", "scratch-empty", "scratch-apart", "durable-animals", "durable-ids",
        "durable-reads", "durable-orders", "shared-reads", "shared-ids", "shared-orders",
        "retry-expired", "restore-exact", "restore-again", "restore-other", "restore-next",
        "restore-order", "restore-live",
    }  # fmt: skip
    assert issubclass(Conformance, Kit)
