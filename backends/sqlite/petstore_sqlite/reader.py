"""Reads: on the event loop while the file is in memory, in threads while they wait for the disk."""

import asyncio
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

import apsw

from petstore.contract import UnavailableError
from petstore_sqlite.file import LockWait
from petstore_sqlite.schema import READ_ERRORS, connect, translated_errors, unavailable
from petstore_sqlite.store import OpenStore

_Result = TypeVar("_Result")
_Convert = Callable[[Sequence[Any]], _Result]
_Values = tuple[int | str | bytes, ...]

THREADS: Final = 4
"""How many reads wait for the disk at once. Each has a connection of its own, opened when needed.
"""

LARGE_PAGES: Final = 4096
FIRST: Final = 100
"""How many of the first reads go to threads if the file has more than `LARGE_PAGES`: it may not be
in memory yet."""

SUSPECT_SECONDS: Final = 0.0001
"""A read on the event loop that took longer may have waited for the disk. Shorter waits do not
matter: handing a read to a thread takes as long."""

WARM_READS: Final = 100_000
"""For each second spent waiting for the disk, this many reads must hit memory before the event loop
reads again."""

MOST_READS: Final = 10_000
"""The maximum of these reads, so that one long wait does not count for hours."""

_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)


def disk_reads() -> int:
    """Return how many blocks this thread has read from disk; 0 where the system cannot tell."""
    return 0 if _THREAD is None else resource.getrusage(_THREAD).ru_inblock


class Reader:
    """Reads the file: on the event loop or in a thread, by what the last reads have met.

    connection -- used by the thread of the event loop only; threads open others
    busy -- how long a read waits for locks
    store -- checked before and after each read in a thread: it may be lost meanwhile

    If the connection has begun a transaction, for a snapshot, all reads are made in it.
    """

    def __init__(self, connection: apsw.Connection, busy: LockWait, store: OpenStore) -> None:
        self.connection = connection
        self._execute = connection.cursor().execute
        self._file = connection.filename  # the path may be a link that leads elsewhere later
        self._busy = busy
        self._store = store
        self._disk_reads = disk_reads()
        with translated_errors(store.path):
            large = connection.pragma("page_count") > LARGE_PAGES
        self._only = connection.in_transaction
        self._left = FIRST if large and not self._only else 0  # how many more reads go to threads
        self._pool = ThreadPoolExecutor(THREADS, "petstore-sqlite-reader")
        self._idle: list[apsw.Connection] = []
        self._connections = ExitStack()

    async def read(self, convert: _Convert[_Result], query: str, values: _Values) -> _Result:
        """Return the rows of a query, converted. Raises `UnavailableError`."""
        self._store.check_open()
        if self._left:
            return await self._read_in_thread(partial(self._fetch, convert, query, values))
        begin = perf_counter()
        try:
            result = convert(self._execute(query, values).fetchall())
        except READ_ERRORS as error:
            raise unavailable(self._store.path, error) from error
        seconds = perf_counter() - begin
        if seconds > SUSPECT_SECONDS and (found := disk_reads()) != self._disk_reads:
            self._disk_reads = found
            self._left = 0 if self._only else _warm_reads(seconds)
        return result

    async def call(self, read: Callable[[apsw.Connection], _Result]) -> _Result:
        """Return what a function returns that reads by the connection which it is given."""
        return await self._read_in_thread(read) if self._left else read(self.connection)

    async def close(self) -> None:
        """Wait for the reads in threads, and close their connections. The store must be closed."""
        await asyncio.to_thread(self._close)  # goes on if the caller is cancelled

    def _close(self) -> None:
        self._pool.shutdown()
        self._connections.close()

    async def _read_in_thread(self, read: Callable[[apsw.Connection], _Result]) -> _Result:
        loop = asyncio.get_running_loop()
        try:
            outcome = await loop.run_in_executor(self._pool, self._measure, read)
        except RuntimeError:  # no further thread can be started
            outcome = None
        self._store.check_open()  # the store may have been lost meanwhile
        if outcome is None:
            return read(self.connection)
        result, left = outcome
        self._left = max(self._left - 1, left)
        return result

    def _measure(self, read: Callable[[apsw.Connection], _Result]) -> tuple[_Result, int] | None:
        """Return the result of a read, and how many must follow in threads because it was cold.

        Returns None if no connection can be opened: there may be no file descriptor left.
        """
        self._store.check_open()
        try:
            connection = self._idle.pop()
        except IndexError:
            try:
                connection = self._connect()
            except UnavailableError:
                return None
        try:
            before, begin = disk_reads(), perf_counter()
            result = read(connection)
            cold = disk_reads() != before
            return result, _warm_reads(perf_counter() - begin) if cold else 0
        finally:
            self._idle.append(connection)

    def _connect(self) -> apsw.Connection:
        opening = connect(self._file, self._busy, read_only=True)
        connection = self._connections.enter_context(opening)
        self._store.check_file()
        return connection

    def _fetch(
        self, convert: _Convert[_Result], query: str, values: _Values, connection: apsw.Connection
    ) -> _Result:
        with translated_errors(self._store.path):
            return convert(connection.execute(query, values).fetchall())


def _warm_reads(seconds: float) -> int:
    return 1 + min(int(seconds * WARM_READS), MOST_READS)
