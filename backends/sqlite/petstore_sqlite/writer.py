"""The one thread that writes: it commits all waiting writes together, with one fsync."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

import apsw

from petstore.contract import NewPet, Receipt, StorageError
from petstore_sqlite.schema import translated_errors
from petstore_sqlite.writes import insert_pets

MAX_BATCH: Final = 1000
"""How many writes share a transaction at most."""

_Result = TypeVar("_Result")
_Write = Callable[[apsw.Connection], Any]


class Writer:
    """Executes writes in its own thread, on its own connection.

    Writes that wait at the same moment share a transaction. One that raises a `StorageError` must
    not have changed anything; the others of its transaction are not affected. Any other error
    rolls back the transaction, and all of its writes fail with it.

    connection -- no one else may use it while the thread runs
    path -- the path of the file, for error messages
    """

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._waiting = queue.SimpleQueue[tuple[NewPet | _Write, "asyncio.Future[Any]"] | None]()
        self._thread = threading.Thread(target=self._run, name="petstore-sqlite", daemon=True)

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Execute the writes that wait, then end the thread."""
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    async def submit(self, write: Callable[[apsw.Connection], _Result]) -> _Result:
        """Wait until the write is on disk and return its result.

        write -- called in the writer's thread, within a transaction

        Raises the `StorageError` that the write raised, or `UnavailableError` for an error of
        SQLite. A cancelled caller stops waiting, but its write still takes effect.
        """
        future: asyncio.Future[_Result] = self._loop.create_future()
        self._waiting.put((write, future))
        return await future

    async def insert(self, pet: NewPet) -> Receipt:
        """Insert a pet as `submit` would, but by one statement with all pets that wait."""
        future: asyncio.Future[Receipt] = self._loop.create_future()
        self._waiting.put((pet, future))
        return await future

    def _run(self) -> None:
        closing = False
        while not closing:
            taken = [self._waiting.get()]
            while len(taken) < MAX_BATCH and not self._waiting.empty():
                taken.append(self._waiting.get())
            closing = None in taken
            batch = [waiting for waiting in taken if waiting is not None]
            if batch:
                outcomes = self._commit([write for write, _ in batch])
                futures = [future for _, future in batch]
                self._loop.call_soon_threadsafe(_resolve, futures, outcomes)

    def _commit(self, batch: list[NewPet | _Write]) -> list[Any]:
        """Execute writes in one transaction; return a result or an exception for each."""
        try:
            with translated_errors(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    outcomes = self._execute(batch)
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
        except Exception as error:  # noqa: BLE001 - raised in each caller
            return [error] * len(batch)
        return outcomes

    def _execute(self, batch: list[NewPet | _Write]) -> list[Any]:
        # The pets come first: of writes that wait together, any may be the first.
        pets = [write for write in batch if isinstance(write, NewPet)]
        receipts = iter(insert_pets(self._connection, pets))
        return [
            next(receipts) if isinstance(write, NewPet) else self._attempt(write) for write in batch
        ]

    def _attempt(self, write: _Write) -> Any:
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
