"""The file as an operator may find it: locked, deleted, replaced, or with a log not yet on disk."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final
from urllib.parse import quote

import apsw

from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    SettingsError,
    UnavailableError,
    WrongStoreError,
)

_ONLY_READ: Final = "serve it with PETSTORE_READ_ONLY=true, which needs only to read"


class LockWait:
    """Waits for locks of other processes until a deadline, however many there are in a row.

    A busy handler: SQLite calls it while a lock is held, and gives up once it returns False.

    seconds -- how long a wait may take in total
    deadline -- when the present one ends, on the monotonic clock
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = monotonic() + seconds
        self._ended = Event()

    def __call__(self, attempts: int) -> bool:
        """Pause, a little longer at each attempt. Return whether to try again."""
        left = self.deadline - monotonic()
        return left > 0 and not self._ended.wait(min(left, 0.1, (1 + attempts**2) / 1000))

    def retry(self, step: Callable[[], object]) -> None:
        """Carry out a step that needs a lock for which SQLite itself does not wait.

        Raises the step's `apsw.BusyError` if the lock is still held at the deadline.
        """
        for attempts in count():
            try:
                step()
            except apsw.BusyError:
                if not self(attempts):
                    raise
            else:
                return

    def end(self) -> None:
        """Stop waiting, now and in future."""
        self.seconds = 0
        self._ended.set()


class OpenFile:
    """An open file and its WAL, to notice when their paths no longer name them.

    SQLite holds both open and would keep writing to files that can no longer be found. If the file
    was opened as one that does not change (`name_to_read`), it must not.

    path -- by which it was opened: a link in it may lead elsewhere later
    """

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        names = (connection.filename, connection.filename_wal)
        self._constant = name_to_read(path) != path
        self._files = {name: _identify(name, written=self._constant) for name in names}
        self._files[str(Path(path).absolute())] = self._files[connection.filename]

    def problem(self) -> str:
        """Return what has happened to one of the files, or the empty string."""
        for path, identity in self._files.items():
            if _identify(path, written=self._constant) == identity:
                continue
            if self._constant:
                return (
                    f"another process has begun to write ({path} was written, created or removed),"
                    " but the file had been opened as one that does not change. Restart the service"
                )
            return (
                f"{path} was deleted, moved or replaced while it was open; nothing more is"
                " written to it. Stop the service, put back the files that belong together,"
                " and start it again"
            )
        return ""


def _identify(path: str, *, written: bool = False) -> tuple[int, ...] | None:
    """Return what identifies the file that a path names, or None if it names none.

    written -- whether it must also be as it was when it was last written
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - for each commit: twice as fast as with a Path
    except OSError:
        return None
    return status.st_dev, status.st_ino, *((status.st_mtime_ns,) if written else ())


def is_of_file(path: str) -> bool:
    """Return whether a path can be that of a file on disk: not a URL, a device or a pipe."""
    if not path or path.startswith((":", "file:")) or "://" in path or "\0" in path:
        return False
    try:
        mode = Path(path).stat().st_mode
    except OSError:  # it will be created, or the reason is found when it is opened
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # a folder is explained, too


def check_name(path: str) -> None:
    """Check that SQLite, whose paths are UTF-8, and Python mean the same file by a path.

    Raises `SettingsError` if they do not, or if nobody can tell what a relative path means.
    """
    try:
        full = os.path.realpath(path)
    except FileNotFoundError:
        raise SettingsError(
            f"PETSTORE_SQLITE_PATH is {path!r}, and the working directory was deleted: write the"
            " path in full"
        ) from None
    with suppress(UnicodeEncodeError):
        if os.fsencode(full) == full.encode():
            return
    raise SettingsError(
        f"PETSTORE_SQLITE_PATH is {path!r}: the path must be UTF-8, and so must be the locale, such"
        " as LC_ALL=C.UTF-8"
    )


def check_presence(path: str, expected: Expected) -> None:
    """Check that there is a file, unless a new one may be created, and that it has its WAL.

    Raises `WrongStoreError` if a store is expected and there is none, or if the file or its WAL was
    deleted or moved while it was open; `ChangeNeededError` if none may be created.
    """
    base = os.path.realpath(path)
    # Looked for first: a file that another process creates at this moment is there before its WAL.
    wal = _identify(f"{base}-wal")
    if _identify(path):
        # The last process that closes it writes to the file what is in the WAL. Then it removes the
        # shared memory beside it, too.
        known = expected.notes is not None and expected.notes.read()
        if known and _identify(f"{base}-shm") and not _identify(f"{base}-wal"):
            raise WrongStoreError(
                f"sqlite at {path}: its log {base}-wal was deleted while it is open; it may be"
                " opened again once no process has it open"
            )
        return
    if wal:  # SQLite would create an empty file, and delete the WAL
        raise WrongStoreError(
            f"sqlite at {path}: the file is missing, but its log {base}-wal is there. Put the file"
            " back, or delete the log to start with an empty file"
        )
    if expected.store is not None:
        raise WrongStoreError(
            f"sqlite at {path}: no file is found there; the store {expected.store} is expected in"
            " it. Check that the disk is mounted and that PETSTORE_SQLITE_PATH is right"
        )
    # Without a folder, opening explains it.
    if expected.access is not Access.CREATE and _identify(os.path.dirname(base)):  # noqa: PTH120
        raise ChangeNeededError(f"sqlite at {path}: there is no such file; it would be created")


def name_to_read(path: str) -> str:
    """Return the name by which SQLite opens a file to read it: the path, or a URI.

    SQLite creates a WAL and shared memory even to read. Where it can create neither, and no process
    has, none has the file open to write: it is opened as one that does not change, and `OpenFile`
    notices if that begins.
    """
    base = os.path.realpath(path)
    if os.access(os.path.dirname(base), os.W_OK | os.X_OK, effective_ids=True):  # noqa: PTH120
        return path
    if _identify(f"{base}-wal") and _identify(f"{base}-shm"):
        return path
    return f"file:{quote(base)}?immutable=1"


def refuse_unreadable_wal(path: str) -> None:
    """Raise `UnavailableError` if `name_to_read` would leave out writes that are in the WAL."""
    wal = Path(f"{os.path.realpath(path)}-wal")
    if name_to_read(path) != path and wal.exists() and wal.stat().st_size:
        raise UnavailableError(
            f"sqlite at {path}: its log {wal} has writes that the file lacks, and cannot be read"
            " where SQLite may create no file. Run 'petstore check' where its folder can be"
            " written to; that writes them to the file"
        )


def _mode(file: Path) -> int:
    """Return the mode of a file, or 0 if there is none. `Path.exists` hides more on 3.14."""
    try:
        return file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def why_not_writable(path: str) -> str:
    """Return what prevents writing to a file, and what to do, or the empty string."""
    file = Path(os.path.realpath(path))  # Path.resolve may raise for a loop of links
    folder = file.parent
    user = f"this user (uid {os.geteuid()})"
    try:
        if stat.S_ISDIR(_mode(file)):
            return f"it is a folder; set PETSTORE_SQLITE_PATH to a file in it: {file}/pets.sqlite"
        if not stat.S_ISDIR(folder.stat().st_mode):
            return f"{folder} is a file, not a folder"
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return (
                f"its folder {folder} is on a read-only file system; choose a writable one, or"
                f" {_ONLY_READ}"
            )
        for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            if _mode(name) and not os.access(name, os.R_OK | os.W_OK, effective_ids=True):
                return (
                    f"{user} may not read and write {name}; check its owner and permissions, or"
                    f" {_ONLY_READ}"
                )
    except FileNotFoundError:
        return f"its folder {folder} does not exist; create it"
    except OSError as error:
        return f"{error.filename}: {os.strerror(error.errno or 0).lower()}"
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        return (
            f"{user} may not create files in its folder {folder}, as SQLite must; check its owner"
            f" and permissions, or {_ONLY_READ}"
        )
    return ""


def sync_recovered(connection: apsw.Connection) -> None:
    """Sync what opening has found in the WAL: its writer may have been killed before its fsync.

    A passive checkpoint syncs the WAL before it copies the first page. Raises `apsw.BusyError`
    if another process is at a checkpoint, for that one may not have come to its fsync.
    """
    with suppress(apsw.FullError):  # there is no room for a page: the WAL has been synced
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
