"""The one thread that writes: it commits all waiting writes together, with one fsync."""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, Self

import apsw

from petstore.contract import StorageError
from petstore_sqlite.file import LockWait
from petstore_sqlite.schema import translated_errors
from petstore_sqlite.store import OpenStore
from petstore_sqlite.writes import Creation, Placement, execute

MAX_BATCH: Final = 1000
"""How many writes share a transaction at most."""

LONG_WAIT_SECONDS: Final = 1
"""A wait for the lock that takes longer is logged."""

LINE_SECONDS: Final = 60
"""The least time between two such lines."""

_log = logging.getLogger("petstore.sqlite")

_Write = Creation | Placement | Callable[[apsw.Connection], Any]


class _Entry(NamedTuple):
    write: _Write
    future: "asyncio.Future[Any]"
    since: float


class Writer:
    """Executes writes in its own thread, on its own connection.

    Writes that wait at the same moment share a transaction. One that raises a `StorageError` fails
    alone, and what it has changed before that is kept. Any other error rolls back the transaction,
    and all of its writes fail with it.

    connection -- no one else may use it while the thread runs
    busy -- the busy handler of the connection: how long a write waits for locks after `submit`
    store -- checked before each commit: nothing is written to one that is lost
    """

    def __init__(self, connection: apsw.Connection, busy: LockWait, store: OpenStore) -> None:
        self._connection = connection
        self._busy = busy
        self._store = store
        self._reported = float("-inf")
        self._waiting = queue.SimpleQueue[_Entry | None]()
        self._thread = threading.Thread(target=self._run, name="petstore-sqlite", daemon=True)

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Execute the waiting writes, unless the file is locked by others, and end the thread."""
        self._busy.end()
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    async def submit(self, write: _Write) -> Any:
        """Wait until the write is on disk and return its result.

        write -- a call, executed by the same statements as others of its kind that wait, or what
            is called in the writer's thread, within a transaction

        Raises the `StorageError` that the write raised, or `UnavailableError` for an error of
        SQLite. A cancelled caller stops waiting, but its write still takes effect.
        """
        self._store.check_open()
        future = self._loop.create_future()
        self._waiting.put(_Entry(write, future, monotonic()))
        return await future

    def _run(self) -> None:
        batch: list[_Entry] = []
        closing = False
        while batch or not closing:
            try:
                for taken in self._take(MAX_BATCH - len(batch), wait=not batch):
                    if taken is None:
                        closing = True
                    else:
                        batch.append(taken)
                outcomes = self._commit(batch) if batch else []
            except Exception as error:  # noqa: BLE001 - without this thread all writes would wait
                outcomes = [error] * len(batch)
            futures = [entry.future for entry in batch[: len(outcomes)]]
            del batch[: len(outcomes)]
            self._loop.call_soon_threadsafe(_resolve, futures, outcomes)

    def _take(self, most: int, *, wait: bool) -> list[_Entry | None]:
        """Return the writes that wait, at most so many; None means that no more will come."""
        taken = [self._waiting.get()] if wait else []
        while len(taken) < most and not self._waiting.empty():
            taken.append(self._waiting.get())
        return taken

    def _commit(self, batch: Sequence[_Entry]) -> list[Any]:
        """Execute writes in one transaction; return a result or an exception for each.

        If the file stays locked, return the exceptions of those only that have waited long enough:
        the first ones of the batch.
        """
        try:
            self._store.check_file()
            with translated_errors(self._store.path):
                self._busy.deadline = batch[0].since + self._busy.seconds
                begin = monotonic()
                try:
                    self._connection.execute("BEGIN IMMEDIATE")
                except apsw.BusyError:
                    begin = monotonic() - self._busy.seconds
                    batch = [entry for entry in batch if entry.since <= begin] or batch[:1]
                    raise
                self._report_wait(monotonic() - begin)
                try:
                    self._store.check_content(self._connection)
                    outcomes = self._execute([entry.write for entry in batch])
                    generation = self._store.generation(self._connection)
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            self._store.advance_to(generation)
        except Exception as error:  # noqa: BLE001 - raised in each caller
            return [error] * len(batch)
        return outcomes

    def _report_wait(self, seconds: float) -> None:
        """Log that other processes have held the lock for long, unless that was logged lately."""
        if seconds > LONG_WAIT_SECONDS and monotonic() - self._reported >= LINE_SECONDS:
            self._reported = monotonic()
            text = "sqlite at %s: another process has held its lock for %.1f s"
            _log.warning(text, self._store.path, seconds)

    def _execute(self, batch: list[_Write]) -> list[Any]:
        # Pets come first, then orders: of writes that wait together, any may be the first.
        creations = [write for write in batch if isinstance(write, Creation)]
        placements = [write for write in batch if isinstance(write, Placement)]
        pets = iter(execute(self._connection, creations, self._store.clock, "pet"))
        orders = iter(execute(self._connection, placements, self._store.clock, "order"))
        return [
            next(pets)
            if isinstance(write, Creation)
            else next(orders)
            if isinstance(write, Placement)
            else self._attempt(write)
            for write in batch
        ]

    def _attempt(self, write: Callable[[apsw.Connection], Any]) -> Any:
        try:
            return write(self._connection)
        except StorageError as refusal:
            return refusal


def _resolve(futures: "list[asyncio.Future[Any]]", outcomes: list[Any]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():  # its caller was cancelled
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
