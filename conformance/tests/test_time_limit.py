"""Each clause ends within its minute, whatever a plugin does; a busy machine is not its fault."""

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace
from petstore_conformance import Conformance
from petstore_conformance.harness import alarm as alarms
from petstore_conformance.harness import cores
from petstore_conformance.harness import kit as kit_module
from petstore_conformance.harness.alarm import alarm
from petstore_conformance.harness.cores import Cores
from petstore_conformance.harness.kit import clauses
from petstore_memory import MemoryRepository, MemorySettings, scratch_memory
from petstore_memory import backend as memory

from conformance.tests.kits import in_memory, kit
from petstore.contract import Backend, Expected, Pet, PetQuery, UnavailableError
from tests.support.waiting import HANG_SECONDS

CLAUSES = clauses(Conformance)


def ring_soon(seconds: float = 0.05) -> None:
    """Let the alarm ring soon: not before its block is where it is to be interrupted."""
    signal.setitimer(signal.ITIMER_REAL, seconds, alarms.AGAIN_SECONDS)


class Waits(MemoryRepository):
    """Waits forever."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        ring_soon(0.6)
        await asyncio.Event().wait()
        return []


class Swallows(MemoryRepository):
    """Tries again when it is cancelled."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        ring_soon(0.6)
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)


class Loops(MemoryRepository):
    """Never lets the event loop run again, and catches what it can."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        ring_soon(0.6)
        while True:
            with suppress(Exception):
                time.sleep(0.01)  # noqa: ASYNC251 - it blocks the event loop on purpose


def opening(repository: type[MemoryRepository]) -> Conformance:
    """Return the kit of a backend that opens repositories of this class."""
    return kit(in_memory(repository), MemorySettings())


def test_an_alarm_during_garbage_collection_is_not_lost() -> None:
    begin = time.monotonic()

    def collects(_phase: str, _info: dict[str, int]) -> None:
        while time.monotonic() < begin + 0.1:
            pass

    def wait() -> None:
        gc.collect()
        time.sleep(HANG_SECONDS)

    gc.callbacks.append(collects)
    try:
        with pytest.raises(AssertionError, match="has not ended within"), alarm(0.05):
            wait()
    finally:
        gc.callbacks.remove(collects)


def test_what_a_library_makes_of_the_alarm_is_a_time_that_is_over() -> None:
    """As Hypothesis does, which the alarm may interrupt while it draws."""

    def draw() -> None:
        try:
            time.sleep(HANG_SECONDS)
        finally:
            raise LookupError("inconsistent data")

    with pytest.raises(alarms.OverdueError), alarm(0.05):
        draw()


@asynccontextmanager
async def endless_scratch(settings: MemorySettings) -> AsyncIterator[MemorySettings]:
    async with scratch_memory(settings) as location:
        yield location
        ring_soon()
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a minute short, and the machine one that is never too busy."""
    monkeypatch.setattr(cores, "read", dict)
    monkeypatch.setattr(kit_module, "CLAUSE_SECONDS", 0.3)
    monkeypatch.setattr(alarms, "AGAIN_SECONDS", 0.3)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, soon: None) -> None:
    """Make it long again, for what ends by itself."""
    monkeypatch.setattr(kit_module, "CLAUSE_SECONDS", HANG_SECONDS)


@pytest.mark.parametrize("clause", ["page-empty", "model"])
@pytest.mark.parametrize("repository", [Waits, Swallows, Loops])
def test_a_call_that_never_returns_fails_its_clause(
    repository: type[MemoryRepository], clause: str
) -> None:
    with pytest.raises(AssertionError, match="has not ended within"):
        getattr(opening(repository), CLAUSES[clause])()


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the machine one that gives this process 6 % of a core."""
    times: Iterator[dict[str, tuple[int, int]]] = iter([{}, {"1": (6 * 10**9, 94 * 10**9)}])
    monkeypatch.setattr(cores, "read", lambda: next(times))


@pytest.mark.parametrize("clause", ["page-empty", "model"])
def test_on_a_busy_machine_a_call_that_never_returns_is_inconclusive(
    clause: str, busy: None
) -> None:
    message = "^inconclusive: .* has not ended within .* had 6% of what they needed$"
    with pytest.raises(pytest.skip.Exception, match=message):
        getattr(opening(Waits), CLAUSES[clause])()


class Locked(MemoryRepository):
    """Raises at once what a busy file or an empty pool raises."""

    seconds = 0

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        await asyncio.sleep(self.seconds)
        raise UnavailableError("database is locked")


class TimesOut(Locked):
    """Has waited before."""

    seconds = cores.EXCUSED_SECONDS


@asynccontextmanager
async def locked(*_: object) -> AsyncIterator[Any]:
    yield await Locked().list_pets(PetQuery(0, 1))


@pytest.mark.parametrize(
    ("backend", "clause"),
    [
        (in_memory(Locked), "page-empty"),
        (in_memory(Locked), "model"),
        (replace(memory, scratch=locked), "page-empty"),
        (replace(memory, open=locked), "page-empty"),
    ],
)
def test_on_a_busy_machine_what_is_unavailable_at_once_is_wrong(
    backend: Backend, clause: str, busy: None, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the clause has taken until then."""
    monkeypatch.setenv("PETSTORE_REQUIRE_SERVICES", "1")
    with pytest.raises((UnavailableError, pytest.skip.Exception)) as raised:
        getattr(kit(backend, MemorySettings()), CLAUSES[clause])()
    assert raised.type is UnavailableError


def test_on_a_busy_machine_what_is_unavailable_after_a_time_is_inconclusive(
    busy: None, patient: None
) -> None:
    with pytest.raises(pytest.skip.Exception, match="database is locked"):
        getattr(opening(TimesOut), CLAUSES["page-empty"])()


@pytest.mark.parametrize(
    ("ran", "waited", "short"),
    [(0, 0, False), (60, 40, False), (1, 9, False), (20, 30, True), (0, 100, True)],
)
def test_a_process_has_too_little_of_a_core_if_it_waits_for_one_longer_than_it_runs(
    ran: int, waited: int, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 seconds, during which it waited for nothing else, or for a call as well."""
    monkeypatch.setattr(cores, "monotonic", iter([0.0, 100.0]).__next__)
    counted = Cores()
    monkeypatch.setattr(cores, "read", lambda: {"new": (ran * 10**9, waited * 10**9)})
    assert bool(counted.shortage()) is short


@asynccontextmanager
async def endless_open(_: MemorySettings, __: Expected) -> AsyncIterator[MemoryRepository]:
    await asyncio.Event().wait()
    yield MemoryRepository()


@pytest.mark.parametrize("clause", ["closed", "model"])
@pytest.mark.parametrize(
    ("backend", "message", "shown"),
    [
        (replace(memory, open=endless_open), "opening a location has not ended", "endless_open"),
        (replace(memory, scratch=endless_scratch), "has not ended within", ""),
    ],
    ids=["open", "scratch"],
)
def test_a_location_that_is_never_opened_or_removed_is_shown(
    backend: Backend, message: str, shown: str, clause: str
) -> None:
    with pytest.raises(AssertionError, match=message) as raised:
        getattr(kit(backend, MemorySettings()), CLAUSES[clause])()
    assert shown in str(raised.getrepr(chain=True))


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
