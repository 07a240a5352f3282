"""Each clause ends within its minute, whatever a plugin does instead of returning."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from msgspec.structs import replace
from petstore_memory import MemoryRepository, MemorySettings, scratch_memory
from petstore_memory import backend as memory

from petstore.conformance import Conformance, sequences
from petstore.conformance import alarm as alarms
from petstore.conformance import kit as kit_module
from petstore.conformance.alarm import alarm
from petstore.conformance.kit import clauses
from petstore.contract import Pet, PetStatus
from tests.support.kits import kit

CLAUSES = clauses(Conformance)


class Waits(MemoryRepository):
    """Waits forever."""

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        await asyncio.Event().wait()
        return []


class Swallows(MemoryRepository):
    """Tries again when it is cancelled."""

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)


class Loops(MemoryRepository):
    """Never lets the event loop run again, and catches what it can."""

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        while True:
            with suppress(Exception):
                time.sleep(0.01)  # noqa: ASYNC251 - it blocks the event loop on purpose


@asynccontextmanager
async def endless_scratch(settings: MemorySettings) -> AsyncIterator[MemorySettings]:
    async with scratch_memory(settings) as place:
        yield place
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a minute short."""
    monkeypatch.setattr(kit_module, "CLAUSE_SECONDS", 0.3)
    monkeypatch.setattr(kit_module, "LIMIT_SECONDS", 0.6)
    monkeypatch.setattr(sequences, "LIMIT_SECONDS", 0.6)
    monkeypatch.setattr(alarms, "AGAIN_SECONDS", 0.3)


@pytest.mark.parametrize("clause", ["page-empty", "model"])
@pytest.mark.parametrize("repository", [Waits, Swallows, Loops])
def test_a_call_that_never_returns_fails_its_clause(
    repository: type[MemoryRepository], clause: str
) -> None:
    @asynccontextmanager
    async def open_(_: MemorySettings) -> AsyncIterator[MemoryRepository]:
        yield repository()

    tested = kit(replace(memory, open=open_), MemorySettings())
    with pytest.raises(AssertionError, match="has not ended within"):
        getattr(tested, CLAUSES[clause])()


class Forgets(MemoryRepository):
    """Fails the clause model with any sequence, and slowly."""

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        await asyncio.sleep(0.02)
        return []


def test_a_failure_that_is_found_before_time_is_over_is_the_one_that_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def open_(_: MemorySettings) -> AsyncIterator[MemoryRepository]:
        yield Forgets()

    monkeypatch.setattr(sequences, "MODEL_SECONDS", 2.0)
    monkeypatch.setattr(sequences, "LIMIT_SECONDS", 60)
    tested = kit(replace(memory, open=open_), MemorySettings())
    with pytest.raises(AssertionError, match=r"assert \[\] == \[Pet\("):
        getattr(tested, CLAUSES["model"])()


@pytest.mark.parametrize("clause", ["closed", "model"])
def test_a_scratch_that_is_never_removed_fails_the_clause(clause: str) -> None:
    tested = kit(replace(memory, scratch=endless_scratch), MemorySettings())
    with pytest.raises(AssertionError, match="has not ended within"):
        getattr(tested, CLAUSES[clause])()


def test_the_timer_of_someone_else_goes_on_afterwards() -> None:
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    before = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with pytest.raises(AssertionError), alarm(0.01):
            time.sleep(1000)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        assert rung == []
        with alarm(1000):
            pass
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler)
