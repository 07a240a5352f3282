"""The engine: an SQLite file, and the one thread that works in it. Yours takes its place."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from petstore.contract import (
    MAX_ID,
    Access,
    ChangeNeededError,
    Expected,
    SettingsError,
    UnavailableError,
    WrongStoreError,
)

SCHEMA_VERSION: Final = 1  # raise it with each change of the schema, and upgrade older files

_SCHEMA: Final = f"""
CREATE TABLE store (identity TEXT NOT NULL);
INSERT INTO store VALUES (lower(hex(randomblob(16))));
CREATE TABLE pets (
    id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND {MAX_ID}),
    name TEXT NOT NULL,
    category_id INTEGER NOT NULL,
    status TEXT
);
CREATE INDEX pets_by_status ON pets (status, id);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND {MAX_ID}),
    pet_id INTEGER NOT NULL,
    status TEXT NOT NULL,
    placed_at TEXT NOT NULL
);
CREATE INDEX orders_by_status ON orders (status, id);
CREATE UNIQUE INDEX orders_live ON orders (pet_id) WHERE status IN ('placed', 'completed');
CREATE TABLE tokens (
    token BLOB PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    until INTEGER NOT NULL,
    id INTEGER NOT NULL
);
CREATE INDEX tokens_by_until ON tokens (until);
PRAGMA user_version = {SCHEMA_VERSION};
"""

_Result = TypeVar("_Result")


class Engine:
    """An open file, which is locked for this process.

    Its one thread runs a transaction after the other, so that each sees all that were before it.

    seconds -- how long a call may take, with all its waiting
    store -- the identity of the store
    execute -- executes a statement; only for what `run` runs

    Opening blocks. Raises `SettingsError`, `WrongStoreError`, `ChangeNeededError` or
    `UnavailableError`.
    """

    def __init__(self, path: str, seconds: float, expected: Expected) -> None:
        self._path = path
        self._seconds = seconds
        self._open, self._lost = True, False
        self._thread = ThreadPoolExecutor(1, "file_template")
        mode = "rwc" if expected.store is None and expected.access is Access.CREATE else "rw"
        if mode == "rw" and not Path(path).exists():
            if expected.store is not None:
                raise WrongStoreError(f"{path} is missing; the store {expected.store} is expected")
            raise ChangeNeededError(f"{path} is missing; it would be created")
        with self._translated(), ExitStack() as closing:
            uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False
            )
            closing.callback(self._connection.close)
            self.execute = self._connection.execute
            self.store = self._prepare(expected)
            self._file = _identify(path)
            closing.pop_all()  # it stays open

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in the thread, as one transaction; return its result.

        Raises what it raises, which rolls it back; `UnavailableError`, also if it takes too long;
        `WrongStoreError` if the file or the store in it is, or was, another one. A caller that is
        cancelled, or has waited too long, stops waiting: the function is left out if it has not
        begun, and takes effect completely if it has.
        """
        if not self._open:
            raise UnavailableError("the repository is closed")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await loop.run_in_executor(self._thread, self._transact, work)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise UnavailableError(f"no result within {self._seconds:g} s") from error

    async def aclose(self) -> None:
        """Refuse new calls, wait for those in flight, and close the file, which unlocks it."""
        self._open = False
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown(wait=False)
        await asyncio.wait([closing], timeout=self._seconds)  # an engine may hang

    def _transact(self, work: Callable[[], _Result]) -> _Result:
        self._lost = self._lost or _identify(self._path) != self._file
        if not self._lost:
            with self._translated(), self._connection:  # which commits, or rolls back
                self.execute("BEGIN IMMEDIATE")
                self._lost = self._read_store() != self.store
                if not self._lost:
                    return work()
        raise WrongStoreError(f"{self._path} was deleted, moved or replaced while it was open")

    def _prepare(self, expected: Expected) -> str:
        """Lock the file, create the tables in an empty one, and return the store's identity."""
        self.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.execute("PRAGMA synchronous = EXTRA")  # what is acknowledged survives a power cut
        with self._connection:
            self.execute("BEGIN EXCLUSIVE")
            (version,) = self.execute("PRAGMA user_version").fetchone()
            (tables,) = self.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version > SCHEMA_VERSION or (tables and not version):
                raise SettingsError(
                    f"{self._path} has schema version {version}, or is of another application;"
                    f" this version of the backend supports {SCHEMA_VERSION}"
                )
            store = self._read_store()
            if store is None and expected.store is None:
                if expected.access is not Access.CREATE:
                    raise ChangeNeededError(f"{self._path} is empty; tables would be created in it")
                for statement in _SCHEMA.split(";\n"):
                    self.execute(statement)
                store = self._read_store()
            if store is None or expected.store not in (None, store):
                raise WrongStoreError(f"{self._path} holds {store}, not {expected.store}")
        return store

    def _read_store(self) -> str | None:
        """Return the identity of the store, or None if there is none."""
        if self.execute("PRAGMA user_version").fetchone() == (0,):
            return None
        return str(self.execute("SELECT identity FROM store").fetchone()[0])

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
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
