"""The engine: an open SQLite file. Everything here blocks, and is for your engine to replace."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    SettingsError,
    UnavailableError,
    WrongStoreError,
)
from petstore_conformance.templates.file import steps


class Engine:
    """An open file, locked for this process.

    seconds -- how long opening waits for another process that has it open
    store -- the identity of the store

    Raises `SettingsError`, `WrongStoreError`, `ChangeNeededError` or `UnavailableError`.
    """

    def __init__(self, path: str, seconds: float, expected: Expected) -> None:
        self._path = path
        self._lost = False
        mode = "rwc" if expected.store is None and expected.access is Access.CREATE else "rw"
        if mode == "rw" and not Path(path).exists():
            if expected.store is not None:
                raise WrongStoreError(f"{path} is missing; the store {expected.store} is expected")
            raise ChangeNeededError(f"{path} is missing; it would be created")
        with self._translated():
            self._connection = sqlite3.connect(
                f"{Path(path).absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=seconds,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._translated():
                self.store = self._prepare(expected)
            self._file = _identify(path)
        except BaseException:
            self._connection.close()
            raise

    def commit(self, work: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        """Run steps in one transaction; return a result or an exception for each.

        A step that raises an error changes nothing, and the others are not affected. Raises
        `UnavailableError`, or `WrongStoreError` if the file or the store in it is, or was, another.
        """
        self._lost = self._lost or _identify(self._path) != self._file
        if not self._lost:
            with self._translated(), self._transaction("BEGIN IMMEDIATE"):
                self._lost = steps.read_store(self._connection) != self.store
                if not self._lost:
                    return [self._attempt(step) for step in work]
        raise WrongStoreError(f"{self._path} was deleted, moved or replaced while it was open")

    def close(self) -> None:
        """Close the file, which unlocks it."""
        self._connection.close()

    def _attempt(self, step: Callable[[sqlite3.Connection], Any]) -> Any:
        self._connection.execute("SAVEPOINT step")
        try:
            with self._translated():
                return step(self._connection)
        except Exception as error:  # noqa: BLE001 - raised in its caller
            self._connection.execute("ROLLBACK TO step")
            return error
        finally:
            self._connection.execute("RELEASE step")

    def _prepare(self, expected: Expected) -> str:
        """Lock the file, create the tables in an empty one, and return the store's identity."""
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA synchronous = EXTRA")  # what is acknowledged survives a power cut
        with self._transaction("BEGIN EXCLUSIVE"):
            (version,) = execute("PRAGMA user_version").fetchone()
            (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version > steps.SCHEMA_VERSION or (tables and not version):
                raise SettingsError(
                    f"{self._path} has schema version {version}, or is of another application;"
                    f" this version of the backend supports {steps.SCHEMA_VERSION}"
                )
            store = steps.read_store(self._connection)
            if store is None and expected.store is None:
                if expected.access is not Access.CREATE:
                    raise ChangeNeededError(f"{self._path} is empty; tables would be created in it")
                store = steps.create_store(self._connection)
            if store is None or expected.store not in (None, store):
                raise WrongStoreError(f"{self._path} holds {store}, not {expected.store}")
        return store

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the errors of the engine that may pass into `UnavailableError`: at one point."""
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, the disk is full, cannot be opened
            raise UnavailableError(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_NOTADB:
                raise
            raise SettingsError(f"{self._path} is not a file of this backend: {error}") from error


def _identify(path: str) -> tuple[int, int] | None:
    """Return what identifies the file that a path names, or None if it names none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - for each commit: twice as fast as with a Path
    except OSError:
        return None
    return status.st_dev, status.st_ino
