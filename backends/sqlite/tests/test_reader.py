"""Reads leave the event loop while they wait for the disk, and return when they no longer do."""

import asyncio
import os
import resource
import threading
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import SqliteRepository, reader

from backends.sqlite.tests.files import execute, opened
from petstore.contract import PetQuery, PetStatus, UnavailableError, WrongStoreError
from tests.support.repositories import REX
from tests.support.waiting import HANG_SECONDS, eventually


class Disk:
    """Counts what threads read from disk, and time, as a test tells it to.

    cold -- whether each read of the file waits for the disk, for one second
    moving -- as long as it is clear, reads in threads wait
    held -- how many wait
    threads -- those in which the last call read
    """

    def __init__(self) -> None:
        self.cold = False
        self.moving = threading.Event()
        self.moving.set()
        self.held = 0
        self.threads = set[str]()
        self._blocks = defaultdict[str, int](int)
        self._seconds = 0
        self._lock = threading.Lock()

    def disk_reads(self) -> int:
        with self._lock:
            thread = threading.current_thread().name
            self.threads.add(thread)
            self._blocks[thread] += self.cold
            blocks = self._blocks[thread]
            self.held += 1
        if thread != threading.main_thread().name:
            assert self.moving.wait(HANG_SECONDS)
        return blocks

    def perf_counter(self) -> int:
        with self._lock:
            self._seconds += 1
        return self._seconds

    async def hold(self, repository: SqliteRepository, calls: int) -> "list[asyncio.Task[object]]":
        """Return calls that wait in threads, as many as there are threads for."""
        self.moving.clear()
        self.held = 0
        tasks = [asyncio.create_task(read(repository)) for _ in range(calls)]
        await eventually(lambda: self.held >= min(calls, reader.THREADS))
        return tasks

    async def on_loop(self, call: Awaitable[object]) -> bool:
        """Return whether a call read on the event loop."""
        self.threads.clear()
        await call
        [thread] = self.threads
        return thread == threading.main_thread().name


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Return a disk that waits for one second; then two reads must find the file in memory."""
    disk = Disk()
    for name in ("disk_reads", "perf_counter"):
        monkeypatch.setattr(reader, name, getattr(disk, name))
    monkeypatch.setattr(reader, "WARM_READS", 1)
    yield disk
    disk.moving.set()


async def read(repository: SqliteRepository) -> object:
    return await repository.get_pet(1)


async def leave_loop(disk: Disk, repository: SqliteRepository) -> None:
    disk.cold = True
    await read(repository)


async def test_cold_reads_go_to_threads_and_warm_ones_return(file: Path, disk: Disk) -> None:
    async with opened(file) as repository:
        assert await disk.on_loop(read(repository))  # slow, but not because of the disk
        disk.cold = True
        assert await disk.on_loop(read(repository))  # it cannot know before
        for _ in range(5):
            assert not await disk.on_loop(read(repository))
        disk.cold = False
        for _ in range(2):
            assert not await disk.on_loop(read(repository))
        for _ in range(2):
            assert await disk.on_loop(read(repository))


async def test_a_short_wait_is_no_reason_to_leave(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SUSPECT_SECONDS", 5)
    async with opened(file) as repository:
        disk.cold = True
        for _ in range(3):
            await read(repository)
        assert disk.threads == {threading.main_thread().name}


async def test_a_long_wait_does_not_count_for_ever(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WARM_READS", 1_000_000)
    monkeypatch.setattr(reader, "MOST_READS", 4)
    async with opened(file) as repository:
        await leave_loop(disk, repository)
        disk.cold = False
        places = [await disk.on_loop(read(repository)) for _ in range(6)]
        assert places == [False] * 5 + [True]


async def test_a_large_file_is_first_read_in_threads(
    file: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LARGE_PAGES", 1)
    monkeypatch.setattr(reader, "FIRST", 3)
    async with opened(file) as repository:
        places = [await disk.on_loop(read(repository)) for _ in range(5)]
        assert places == [False] * 3 + [True] * 2


async def test_an_error_in_a_thread_is_raised_and_disturbs_no_later_read(
    file: Path, disk: Disk
) -> None:
    async with opened(file) as repository:
        await repository.create_pet(REX)
        await leave_loop(disk, repository)
        execute(file, "ALTER TABLE pets RENAME TO hidden")
        with pytest.raises(UnavailableError, match="changed by hand"):
            await read(repository)
        execute(file, "ALTER TABLE hidden RENAME TO pets")
        assert await read(repository)


async def test_a_cancelled_read_ends_at_once(file: Path, disk: Disk) -> None:
    async with opened(file) as repository:
        await repository.create_pet(REX)
        await leave_loop(disk, repository)
        calls = await disk.hold(repository, reader.THREADS + 2)
        for call in calls:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
        disk.moving.set()
        assert await read(repository)


@pytest.mark.parametrize("cancelled", [False, True])
def test_closing_waits_for_reads_in_threads_and_refuses_them(
    file: Path, disk: Disk, *, cancelled: bool
) -> None:
    connections: list[apsw.Connection] = []

    async def run() -> None:
        calls = []
        held = asyncio.Event()

        async def serve() -> None:
            async with opened(file) as repository:
                await leave_loop(disk, repository)
                await read(repository)
                connections.extend(repository._reader._idle)  # noqa: SLF001
                calls.extend(await disk.hold(repository, reader.THREADS + 2))
                held.set()

        closing = asyncio.create_task(serve())
        await asyncio.wait_for(held.wait(), HANG_SECONDS)
        await asyncio.sleep(0.1)
        assert not closing.done()
        if cancelled:
            closing.cancel()
            await asyncio.sleep(0.1)
        disk.moving.set()
        with suppress(asyncio.CancelledError):
            await closing
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, UnavailableError)
            assert "the repository is closed" in str(outcome)

    asyncio.run(run())  # waits for the thread that closes, if its caller was cancelled
    [connection] = connections
    with pytest.raises(apsw.ConnectionClosedError):
        connection.execute("SELECT 1")
    names = [thread.name for thread in threading.enumerate()]
    assert [name for name in names if name.startswith("petstore-sqlite")] == []
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("left", [0, 1])
async def test_without_file_descriptors_for_threads_the_event_loop_reads(
    file: Path, disk: Disk, left: int
) -> None:
    """A connection needs two."""
    async with opened(file) as repository:
        await repository.create_pet(REX)
        await leave_loop(disk, repository)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.open(file.parent, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, hard))
        try:
            found = [await read(repository) for _ in range(reader.THREADS * 2)]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert None not in found
        disk.threads.clear()
        assert not await disk.on_loop(read(repository))


async def test_a_read_in_a_thread_notices_a_store_that_is_lost_meanwhile(
    file: Path, disk: Disk
) -> None:
    async with opened(file) as repository:
        await leave_loop(disk, repository)
        calls = await disk.hold(repository, reader.THREADS + 2)
        os.rename(file, file.with_name("moved"))  # noqa: PTH104
        with pytest.raises(WrongStoreError):
            await repository.check()
        disk.moving.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {WrongStoreError}


async def test_a_thread_does_not_read_a_file_that_took_the_place(file: Path, disk: Disk) -> None:
    """Its connection is opened after the repository's."""
    async with opened(file) as repository:
        await leave_loop(disk, repository)
        moved = file.with_name("moved")
        for suffix in ("", "-wal", "-shm"):
            os.rename(f"{file}{suffix}", f"{moved}{suffix}")  # noqa: PTH104
        async with opened(file) as other:
            await other.create_pet(REX)
            with pytest.raises(WrongStoreError, match="was deleted, moved or replaced"):
                await read(repository)


async def test_a_query_is_compiled_once(file: Path) -> None:
    compiled: list[object] = []

    def authorize(*action: object) -> int:  # SQLite asks while it compiles
        compiled.append(action)
        return apsw.SQLITE_OK

    async with opened(file) as repository:
        repository._reader.connection.authorizer = authorize  # noqa: SLF001
        await repository.list_pets(PetQuery(0, 20, PetStatus.SOLD))
        first = len(compiled)
        await repository.list_pets(PetQuery(7, 20, PetStatus.SOLD))
        assert len(compiled) == first > 0
