"""The kit passes every backend that keeps the contract, however slow, and with whatever ids."""

import asyncio
import os
from collections.abc import Sequence
from functools import partial

import hypothesis
import pytest
from petstore_conformance import Conformance
from petstore_conformance.clauses import costs, sequences
from petstore_conformance.clauses.costs import CostClauses
from petstore_conformance.clauses.processes import ProcessClauses
from petstore_conformance.harness import cores, effort
from petstore_conformance.harness.alarm import OverdueError
from petstore_conformance.harness.kit import clauses
from petstore_memory import MemoryRepository, MemorySettings

from conformance.tests.correct import Item, LocationSettings
from conformance.tests.kits import in_memory, kit
from conformance.tests.unusual import UNUSUAL, Distant, Jittery, VirtualTime, unusual, wrapped
from petstore.contract import Backend, Order, OrderQuery

SEEDS = range(int(os.environ.get("PETSTORE_SEEDS", "1")))
CLAUSES = {
    name: test
    for name, test in clauses(Conformance).items()
    if name not in clauses(ProcessClauses)  # what is unusual here lives in one process
}


@pytest.fixture(params=SEEDS)
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Seed Hypothesis; the backend takes its delays and gaps from the same seed."""
    monkeypatch.setattr(hypothesis.core, "global_force_seed", request.param)
    return int(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("clause", sorted(CLAUSES.keys() - clauses(CostClauses).keys()))
@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_backend_passes_in_virtual_time(
    name: str, clause: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=VirtualTime))
    monkeypatch.setattr(effort, "LEAST_SHARE", 0)  # however slow
    getattr(kit(unusual(name, seed), LocationSettings(), examples=10), CLAUSES[clause])()


class Scans(MemoryRepository):
    """A server that goes through all orders to find those of a status."""

    stored, seconds = 0, 1e-6

    async def restore(self, items: Sequence[Item]) -> None:
        await super().restore(items)
        self.stored += len(items)

    async def list_orders(self, query: OrderQuery) -> list[Order]:
        if query.status is not None:
            await asyncio.sleep(self.stored * self.seconds)
        return await super().list_orders(query)


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let delays cost nothing, and judge on a busy machine, too."""
    monkeypatch.setattr(cores, "read", dict)
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=VirtualTime))


@pytest.fixture(params=[0.003, 0.02], ids=["3 ms", "20 ms"])
def jitter(
    request: pytest.FixtureRequest, virtual_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let each call of `Jittery` take up to so many seconds longer, in virtual time."""
    monkeypatch.setattr(Jittery, "seconds", request.param / 2)


@pytest.mark.parametrize("number", range(2))
def test_jitter_is_not_taken_for_a_cost_that_grows(
    number: int, jitter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ITEMS", "MANY_ITEMS"):
        monkeypatch.setattr(costs, name, 100)
    backend = wrapped(in_memory(MemoryRepository), Jittery, number)
    getattr(kit(backend, MemorySettings()), CLAUSES["cost"])()


def test_jitter_does_not_hide_a_cost_that_grows(jitter: None) -> None:
    scans_are_found(wrapped(in_memory(Scans), Jittery, 0))


def test_a_cost_that_grows_is_found_in_a_few_calls_if_there_is_no_time_for_more(
    virtual_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scans, "seconds", 3e-5)  # nearly two for a call
    scans_are_found(in_memory(Scans))


class RestoresSlowly(MemoryRepository):
    """A restore goes through all orders, as without an index of them by their pets."""

    async def restore(self, items: Sequence[Item]) -> None:
        await asyncio.sleep(4)
        await super().restore(items)


@pytest.mark.parametrize("clause", ["cost", "event-loop"])
def test_a_store_that_was_not_filled_is_not_judged_as_a_large_one(
    clause: str, virtual_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "HELD_SECONDS", 60)  # a busy machine holds the event loop, too
    with pytest.raises(pytest.skip.Exception, match=r"only \d+% of the values were tried"):
        getattr(kit(in_memory(RestoresSlowly), MemorySettings()), CLAUSES[clause])()


def scans_are_found(backend: Backend) -> None:
    with pytest.raises(OverdueError, match=r"list_orders, of a status: .* ms in a small store"):
        getattr(kit(backend, MemorySettings()), CLAUSES["cost"])()


@pytest.mark.slow
def test_a_slow_backend_has_fewer_sequences_in_the_clause_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "MODEL_SECONDS", 2)
    monkeypatch.setattr(effort, "LEAST_SHARE", 0)
    monkeypatch.setattr(Distant, "seconds", 0.03)
    getattr(kit(unusual("Distant", 0), LocationSettings()), CLAUSES["model"])()
