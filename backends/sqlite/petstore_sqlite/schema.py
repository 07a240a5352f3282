"""The file: its connections, its schema, and the upgrade of an older schema."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Final

import apsw

from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    SettingsError,
    UnavailableError,
    WrongStoreError,
)
from petstore_sqlite.file import LockWait, name_to_read, sync_recovered, why_not_writable

_log = logging.getLogger("petstore.sqlite")

APPLICATION_ID: Final = 0x50455453
"""Identifies the files of this backend among other SQLite files: "PETS" in ASCII."""

WAL_LIMIT: Final = 16 * 2**20
"""The size to which a longer WAL is truncated when it is restarted: four times the usual one."""

_SQL: Final = resources.files("petstore_sqlite") / "sql"
"""The folder of the SQL. N.sql turns a file of schema version N - 1 into one of N; 0 is empty."""

MIGRATIONS: Final = [(_SQL / f"{number}.sql").read_text("utf-8") for number in range(1, 7)]

_CORRUPT: Final = "it is corrupt; stop the service and restore a backup"
_UNREADABLE: Final = (
    "it is corrupt, or the disk could not be read. If 'petstore check' says so, too, stop the"
    " service and restore a backup"
)
_CHANGED: Final = "its tables were changed by hand; stop the service and restore a backup"
_REASONS: Final[dict[type[Exception], str]] = {
    apsw.BusyError: "another process has it locked",
    apsw.CantOpenError: "it cannot be opened",
    apsw.ReadOnlyError: "it cannot be written to",
    apsw.FullError: "the disk is full",
    apsw.NotADBError: "it is corrupt, or not an SQLite database; restore a backup, or correct the"
    " path",
}
_CONTRADICTIONS: Final = (
    # Errors that the statements of this package cannot cause in an intact file.
    apsw.ConstraintError,
    apsw.CorruptError,
    apsw.MismatchError,
    apsw.TooBigError,
    UnicodeDecodeError,
)
READ_ERRORS: Final = (apsw.Error, UnicodeDecodeError)
"""What reading may raise if the file is corrupt or cannot be read."""


def unavailable(path: str, error: Exception) -> UnavailableError:
    """Translate one of `READ_ERRORS` into one line that says what to do."""
    detail = " ".join(f"{type(error).__name__}: {error}".split())
    reason = _REASONS.get(type(error), detail)
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_CORRUPT:  # so it is called at EIO, too
        reason = _UNREADABLE
    elif isinstance(error, _CONTRADICTIONS):
        reason = f"{_CORRUPT} ({detail:.200})"
    elif isinstance(error, apsw.SQLError):
        reason = f"{_CHANGED} ({detail:.200})"
    elif isinstance(error, (apsw.CantOpenError, apsw.ReadOnlyError)):
        why = why_not_writable(path) or "check its permissions and those of its folder"
        reason = f"{reason}: {why}"
    elif getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        reason = "the disk is full: even reading needs 32 KiB beside the file"
    return UnavailableError(f"sqlite at {path}: {reason}")


@contextmanager
def translated_errors(path: str) -> Iterator[None]:
    """Turn errors of SQLite into `UnavailableError`."""
    try:
        yield
    except READ_ERRORS as error:
        raise unavailable(path, error) from error


@contextmanager
def connect(
    path: str, busy: LockWait, *, create: bool = False, read_only: bool = False
) -> Iterator[apsw.Connection]:
    """Open a connection that waits for locks and syncs each commit to disk.

    busy -- the wait for locks of other processes, until its deadline; reads wait its seconds
    create -- whether it creates the file if there is none
    read_only -- restricts it to reads, by one thread, and leaves checkpoints to other connections;
        the file may be one that cannot be written to

    Raises `UnavailableError` if the file cannot be opened or, unless `read_only`, written to.
    """
    flags = apsw.SQLITE_OPEN_READWRITE
    if create:
        flags |= apsw.SQLITE_OPEN_CREATE
    if read_only:
        flags |= apsw.SQLITE_OPEN_NOMUTEX  # one thread: each column of a row would lock a mutex
        flags |= apsw.SQLITE_OPEN_URI
    with translated_errors(path):
        connection = apsw.Connection(name_to_read(path) if read_only else path, flags)
    try:
        with translated_errors(path):
            connection.set_busy_handler(busy)
            if not read_only and connection.readonly("main"):
                raise apsw.ReadOnlyError
            connection.pragma("synchronous", "FULL")
            connection.pragma("fullfsync", value=True)  # macOS: its fsync does not flush the drive
            # Otherwise a statement that compares an index with a range is compiled at every call.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            if read_only:
                connection.set_busy_timeout(round(busy.seconds * 1000))
                connection.pragma("query_only", value=True)
                connection.wal_autocheckpoint(0)
            else:
                connection.pragma("journal_size_limit", WAL_LIMIT)
        yield connection
    finally:
        connection.close()


def migrate(connection: apsw.Connection, path: str, busy: LockWait, expected: Expected) -> None:
    """Upgrade the file to the newest schema in one transaction, or leave it unchanged.

    By a connection that is restricted to reads, only check that it has the newest schema.

    busy -- how long it waits, in total, for other processes that open the file
    expected -- which store it must hold, and whether it may be changed

    After an error the connection must be closed, which rolls back what was done.

    Raises `SettingsError` if the file belongs to another application or was written by a newer
    version, `WrongStoreError` or `ChangeNeededError` if it is not as expected, `UnavailableError`
    if it cannot be read or written to.
    """
    with translated_errors(path):
        if connection.pragma("query_only"):
            _check_expected(connection, path, _version(connection, path), expected)
            return
        # The lock comes before the version is read: another process may be migrating, too.
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection, path)
        _check_expected(connection, path, version, expected)
        if missing := MIGRATIONS[version:]:
            if version:
                _log.warning(
                    "upgrading sqlite at %s from schema version %d to %d: writes wait meanwhile;"
                    " with millions of records of idempotency keys, it may take minutes",
                    *(path, version, len(MIGRATIONS)),
                )
            for migration in missing:
                connection.execute(migration)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", len(MIGRATIONS))
        connection.execute("COMMIT")
        # SQLite itself does not wait for the lock of either.
        busy.retry(lambda: connection.pragma("journal_mode", "WAL"))
        busy.retry(lambda: sync_recovered(connection))


def begin_snapshot(connection: apsw.Connection, path: str) -> None:
    """Begin a read transaction, in which all later reads see the store as it is now.

    The WAL grows until the connection is closed: no later write can leave it.
    """
    with translated_errors(path):
        connection.execute("BEGIN")
        connection.execute("SELECT identity FROM store").fetchall()  # it begins with a read


def check(connection: apsw.Connection, path: str) -> None:
    """Read the whole file. Raises `UnavailableError` with the first thing that is wrong with it."""
    with translated_errors(path):
        found = connection.pragma("quick_check", 1)
        if found != "ok":
            raise apsw.CorruptError(found)


def _check_expected(
    connection: apsw.Connection, path: str, version: int, expected: Expected
) -> None:
    if expected.store is not None:
        identified = version >= 4  # the first schema version with an identity
        found = connection.execute("SELECT identity FROM store").get if identified else None
        if found != expected.store:
            raise WrongStoreError(
                f"sqlite at {path}: it holds {f'the store {found}' if found else 'no store'};"
                f" {expected.store} is expected. Check PETSTORE_SQLITE_PATH, or put that one back"
            )
    if not version and expected.access is not Access.CREATE:
        raise ChangeNeededError(f"sqlite at {path}: it is empty; a store would be created in it")
    if 0 < version < len(MIGRATIONS) and expected.access is not Access.CREATE:
        raise ChangeNeededError(
            f"sqlite at {path}: its schema would be upgraded from version {version} to"
            f" {len(MIGRATIONS)}"
        )


def _version(connection: apsw.Connection, path: str) -> int:
    """Return the schema version of the file: the number of migrations that were applied."""
    application = connection.pragma("application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application != APPLICATION_ID and (application or tables):
        raise SettingsError(
            f"{path} is an SQLite database of another application; choose another path"
        )
    version = connection.pragma("user_version") if application else 0
    if version > len(MIGRATIONS):
        raise SettingsError(
            f"{path} has schema version {version}, written by a newer petstore-sqlite; this one"
            f" supports up to {len(MIGRATIONS)}. Upgrade petstore-sqlite"
        )
    return int(version)
