"""The one thread that writes: it commits all changes that wait, together, with one fsync."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import apsw

from petstore.contract import StorageError
from petstore_sqlite.schema import failures

MAX_BATCH: Final = 1000
"""How many changes share a transaction at most."""

Result = TypeVar("Result")
Change = Callable[[apsw.Connection], Any]
Waiting = tuple[Change, "asyncio.Future[Any]"]


class Writer:
    """Carries out changes in a thread of its own, on a connection of its own.

    Changes that wait at the same moment share a transaction. One that raises a `StorageError`
    must not have written anything yet; the others of its transaction go on. Any other error
    undoes the transaction, and all of its changes fail.

    connection -- nobody else uses it as long as the thread runs
    path -- what messages call the file
    """

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._waiting = queue.SimpleQueue[Waiting | None]()
        self._thread = threading.Thread(target=self._run, name="petstore-sqlite", daemon=True)

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Carry out what waits, then end the thread."""
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    async def carry_out(self, change: Callable[[apsw.Connection], Result]) -> Result:
        """Return what the change returned once it is on disk, or raise what went wrong.

        change -- called in the writer's thread, within a transaction

        Raises the `StorageError` of the change, `UnavailableError` for what SQLite refused.
        A caller that is cancelled stops waiting; its change happens all the same.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.put((change, future))
        return await future

    def _run(self) -> None:
        going_on = True
        while going_on:
            batch = [self._waiting.get()]
            while len(batch) < MAX_BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            going_on = None not in batch
            changes = [waiting for waiting in batch if waiting is not None]
            if changes:
                outcomes = self._commit([change for change, _ in changes])
                futures = [future for _, future in changes]
                self._loop.call_soon_threadsafe(_resolve, futures, outcomes)

    def _commit(self, changes: list[Change]) -> list[Any]:
        """Carry out changes in one transaction; return a result or an exception for each."""
        try:
            with failures(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    outcomes = [self._attempt(change) for change in changes]
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        except Exception as error:  # noqa: BLE001 - each caller is told
            return [error] * len(changes)
        return outcomes

    def _attempt(self, change: Change) -> Any:
        try:
            return change(self._connection)
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
