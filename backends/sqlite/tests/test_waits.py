"""No call waits longer for other processes than `busy_seconds`, however it spends the time.

Time is a fake here: a lock that is held makes it pass.
"""

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import SqliteRepository

from backends.sqlite.tests import files
from petstore.contract import UnavailableError
from tests.support.repositories import REX, pets

BUSY_SECONDS = 30
LOCKED = "another process has it locked"
opened = partial(files.opened, busy_seconds=BUSY_SECONDS)


class Clock:
    """Passes while a wait for a lock is paused; `passed` is called then.

    loop -- the event loop of the calls: it runs those that can go on before any more time passes
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses = 0
        self.loop: asyncio.AbstractEventLoop | None = None

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1
        self.passed()
        if self.loop:
            asyncio.run_coroutine_threadsafe(settle(), self.loop).result(10)

    def passed(self) -> None:
        pass


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    class Event:
        def __init__(self) -> None:
            self.ended = False

        def set(self) -> None:
            self.ended = True

        def wait(self, seconds: float) -> bool:
            assert 0 < seconds <= 0.1
            clock.pause(seconds)
            return self.ended

    for module in ("file", "writer"):
        monkeypatch.setattr(f"petstore_sqlite.{module}.monotonic", clock.monotonic)
    monkeypatch.setattr("petstore_sqlite.file.Event", Event)
    return clock


@pytest.fixture
def other(file: Path) -> Iterator[apsw.Connection]:
    """Another process."""
    connection = apsw.Connection(str(file))
    yield connection
    connection.close()


async def waited(repository: SqliteRepository, clock: Clock) -> float:
    begin = clock.now
    with pytest.raises(UnavailableError, match=LOCKED):
        await repository.create_pet(REX)
    return clock.now - begin


async def test_a_call_that_queues_for_the_writer_waits_no_longer_in_total(
    file: Path, other: apsw.Connection, clock: Clock
) -> None:
    """It used to wait for the writer, which waited, and then as long again for itself."""
    async with opened(file) as repository:
        loop = clock.loop = asyncio.get_running_loop()
        calls: list[asyncio.Task[float]] = []

        def arrive() -> None:
            calls.append(asyncio.create_task(waited(repository, clock)))

        def passed() -> None:  # one call after the other, and all before the first ends
            if clock.pauses % 50 == 0 and clock.now < 1024:
                loop.call_soon_threadsafe(arrive)

        other.execute("BEGIN IMMEDIATE")
        clock.passed = passed  # type: ignore[method-assign]
        first = await waited(repository, clock)
        assert len(calls) >= 3
        assert await pets(repository) == [], "reads wait for nobody"
        seconds = [first, *await asyncio.gather(*calls)]
        assert seconds == pytest.approx([BUSY_SECONDS] * len(seconds), abs=0.2)


async def test_a_lock_that_is_held_for_long_is_logged_at_most_once_a_minute(
    file: Path, other: apsw.Connection, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(file) as repository:
        for held in (0.5, 3, 4):
            other.execute("BEGIN IMMEDIATE")

            def passed(end: float = clock.now + held) -> None:
                if other.in_transaction and clock.now > end:
                    other.execute("ROLLBACK")

            clock.passed = passed  # type: ignore[method-assign]
            await repository.create_pet(REX)
    [message] = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(f"sqlite at {file}: another process has held its lock for 3.\\d s", message)


async def test_without_a_lock_no_call_fails_however_long_the_queue_is(file: Path) -> None:
    async with opened(file, busy_seconds=0) as repository:
        creates = [repository.create_pet(REX) for _ in range(3000)]
        assert len(await asyncio.gather(*creates)) == 3000


async def test_opening_waits_no_longer_in_total(
    file: Path, other: apsw.Connection, clock: Clock
) -> None:
    """For the lock of the upgrade, that of the journal mode, and that of the checkpoint."""
    held: list[str] = []

    def hold_and_release() -> None:
        """Hold the lock for 20 seconds, release it, and take it again before WAL is enabled."""
        if clock.now > 1020 and not held:
            other.execute("ROLLBACK")
            held.append("once")

    other.execute("BEGIN IMMEDIATE")
    clock.passed = hold_and_release  # type: ignore[method-assign]

    def take_again(_: object, statement: str, __: object) -> bool:
        if "journal_mode" in statement and held == ["once"]:
            held.append("twice")
            other.execute("BEGIN IMMEDIATE")
        return True

    connect = apsw.connection_hooks
    connect.append(lambda connection: setattr(connection, "exec_trace", take_again))
    try:
        with pytest.raises(UnavailableError, match=LOCKED):
            async with opened(file):
                pass
    finally:
        connect.pop()
    assert held == ["once", "twice"]
    assert clock.now == pytest.approx(1000 + BUSY_SECONDS)
