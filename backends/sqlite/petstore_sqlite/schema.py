"""The file: how it is opened, what is in it, and how an older one is brought up to date."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final

import apsw

from petstore.contract import MAX_ID, SettingsError, UnavailableError

APPLICATION_ID: Final = 0x50455453
"""What tells a store of this service from other SQLite files: "PETS"."""

MIGRATIONS: Final = [
    # Each brings the file from the schema of its index to the next one.
    f"""
    CREATE TABLE pets (
        id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND {MAX_ID}),
        name TEXT NOT NULL,
        category_id INTEGER NOT NULL,
        status TEXT CHECK (status IN ('available', 'pending', 'sold'))
    ) STRICT;
    CREATE INDEX pets_by_status ON pets (status, id) WHERE status IS NOT NULL;
    """,
    # placed_at is in microseconds since 1970, until in seconds. That orders_live is unique is the
    # second line: an order is only placed if its animal was available.
    f"""
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND {MAX_ID}),
        pet_id INTEGER NOT NULL REFERENCES pets (id),
        status TEXT NOT NULL CHECK (status IN ('placed', 'completed', 'cancelled')),
        placed_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX orders_by_status ON orders (status, id);
    CREATE UNIQUE INDEX orders_live ON orders (pet_id) WHERE status IN ('placed', 'completed');
    CREATE TABLE retries (
        token BLOB PRIMARY KEY,
        fingerprint BLOB NOT NULL,
        id INTEGER NOT NULL,
        until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX retries_by_until ON retries (until);
    """,
]


_REASONS: Final[dict[type[Exception], str]] = {
    apsw.BusyError: "another process keeps it locked",
    apsw.LockedError: "another process keeps it locked",
    apsw.CantOpenError: "it cannot be opened; does its folder exist, and is it writable?",
    apsw.ReadOnlyError: "it cannot be written to; check its permissions, and its folder's",
    apsw.FullError: "the disk is full",
    apsw.NotADBError: "it is no SQLite file",
    apsw.CorruptError: "it is damaged; restore a backup",
}


def unavailable(path: str, error: apsw.Error) -> UnavailableError:
    """Return what an error of SQLite means, in one line that says what to do."""
    reason = _REASONS.get(type(error), f"{type(error).__name__}: {error}")
    return UnavailableError(f"sqlite at {path}: {reason}")


@contextmanager
def failures(path: str) -> Iterator[None]:
    """Turn SQLite's errors into `UnavailableError`, but for one: a broken constraint is a bug."""
    try:
        yield
    except apsw.ConstraintError:
        raise
    except apsw.Error as error:
        raise unavailable(path, error) from error


@contextmanager
def connect(path: str, busy_seconds: float) -> Iterator[apsw.Connection]:
    """Open a connection that waits for other processes and syncs each commit to the disk.

    busy_seconds -- how long it waits for a lock

    Raises `UnavailableError` if the file cannot be opened or written to.
    """
    with failures(path):
        connection = apsw.Connection(path)
    try:
        with failures(path):
            connection.set_busy_timeout(round(busy_seconds * 1000))
            if connection.readonly("main"):
                raise apsw.ReadOnlyError
            connection.pragma("synchronous", "FULL")
        yield connection
    finally:
        connection.close()


def upgrade(connection: apsw.Connection, path: str, busy_seconds: float) -> None:
    """Bring the file to the newest schema in one transaction, or leave it as it is.

    busy_seconds -- how long it waits for other processes that open the file

    Raises `SettingsError` for a file of something else and for one that a newer version wrote,
    `UnavailableError` if it cannot be read or written to.
    """
    with failures(path):
        connection.execute("BEGIN IMMEDIATE")  # before looking: another process may upgrade it, too
        try:
            if missing := MIGRATIONS[_version(connection, path) :]:
                for migration in missing:
                    connection.execute(migration)
                connection.pragma("application_id", APPLICATION_ID)
                connection.pragma("user_version", len(MIGRATIONS))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite may have undone it already
                connection.execute("ROLLBACK")
            raise
        _log_ahead(connection, busy_seconds)


def _log_ahead(connection: apsw.Connection, busy_seconds: float) -> None:
    """Turn the write-ahead log on: where that needs a lock, SQLite does not wait for it itself."""
    until = monotonic() + busy_seconds
    while True:
        try:
            connection.pragma("journal_mode", "WAL")
        except apsw.BusyError:
            if monotonic() >= until:
                raise
            sleep(0.005)
        else:
            return


def make_reader(connection: apsw.Connection) -> None:
    """Make a connection one that only reads: the writer's alone moves the WAL into the file."""
    connection.pragma("query_only", value=True)
    connection.wal_autocheckpoint(0)


def _version(connection: apsw.Connection, path: str) -> int:
    """Return the schema of the file: how many migrations it has seen."""
    application = connection.pragma("application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application != APPLICATION_ID and (application or tables):
        raise SettingsError(f"{path} is an SQLite file of something else; choose another path")
    version = connection.pragma("user_version") if application else 0
    if version > len(MIGRATIONS):
        raise SettingsError(
            f"{path} has schema {version}, written by a newer petstore-sqlite; this one knows"
            f" up to {len(MIGRATIONS)}. Upgrade petstore-sqlite"
        )
    return int(version)
