"""The store that is open: whether its file is still in its place, and still holds what it held."""

from threading import Lock
from typing import Any, Final

import apsw

from petstore.contract import Expected, UnavailableError, WrongStoreError
from petstore_sqlite.file import OpenFile
from petstore_sqlite.rows import check_types
from petstore_sqlite.schema import READ_ERRORS, unavailable
from petstore_sqlite.tokens import RecordClock

# The generation: each write raises it, by an id that it assigns or by `ADD_CHANGE`.
_STATE: Final = """SELECT identity, changes + (SELECT ifnull(sum(seq), 0) FROM sqlite_sequence)
    FROM store"""

_REPAIR: Final = "Stop the service and restore a backup"

ADD_CHANGE: Final = "UPDATE store SET changes = changes + 1"
"""Executed by each write that assigns no id."""


class OpenStore:
    """The store that a repository has open, or the reason why it no longer serves it.

    path -- the path of the file, for error messages
    identity -- the identity of the store
    clock -- dates its records of tokens

    Once the store is found to be lost, it stays refused, whatever is put back: another process may
    have used the file in the meantime. The event loop and the writer's thread share this object.
    """

    def __init__(self, connection: apsw.Connection, path: str, expected: Expected) -> None:
        self.path = path
        self.clock = RecordClock()
        self._notes = expected.notes
        self._file = OpenFile(connection, path)
        self._refusal: UnavailableError | None = None
        self._lock = Lock()
        self._generation = -1
        self.identity, _ = self._read(connection)
        self.check_content(connection)

    def check_open(self) -> None:
        """Raise `WrongStoreError` if the store was lost, `UnavailableError` if it was closed."""
        if self._refusal is not None:
            raise type(self._refusal)(*self._refusal.args)

    def close(self) -> None:
        """Make `check_open` raise an error from now on."""
        closed = UnavailableError(f"sqlite at {self.path}: the repository is closed")
        self._refusal = self._refusal or closed

    def check_file(self) -> None:
        """Raise `WrongStoreError` if the path leads, or has led, to another file or to none."""
        if isinstance(self._refusal, WrongStoreError):  # writes that waited may end after `close`
            self.check_open()
        if problem := self._file.problem():
            raise self._lost(problem)

    def check_content(self, connection: apsw.Connection) -> None:
        """Raise `WrongStoreError` if the file holds another store, or an older copy of this one."""
        # Before it is read: others may write meanwhile.
        notes = () if self._notes is None else self._notes.read()
        highest = max(self._generation, *map(int, notes), 0)
        identity, generation = self._read(connection)
        if identity != self.identity:
            raise self._lost(
                f"it holds the store {identity} now; {self.identity} was opened. Put that one back"
                " and restart the service"
            )
        if generation < highest:
            raise self._lost(
                f"it is an older copy of the store that was open ({highest} changes before,"
                f" {generation} now). Restart the service to serve it, or stop the service and"
                " restore a newer one"
            )
        self.advance_to(generation)

    def generation(self, connection: apsw.Connection) -> int:
        """Return the generation of the store as this connection sees it; each write raises it."""
        return self._read(connection)[1]

    def advance_to(self, generation: int) -> None:
        """Note a generation that is committed: no process must find the store at a lower one."""
        with self._lock:
            if generation > self._generation:
                self._generation = generation
                if self._notes is not None:
                    self._notes.write(b"%d" % generation)

    def _read(self, connection: apsw.Connection) -> tuple[str, int]:
        try:
            rows: Any = connection.execute(_STATE).fetchall()
            if len(rows) != 1:
                raise self._lost(f"its table store has {len(rows)} rows instead of one. {_REPAIR}")
            [(identity, generation)] = rows
            check_types((identity, str), (generation, int))
        except apsw.SQLError as error:
            raise self._lost(
                f"its tables are not those that were opened ({error}). {_REPAIR}"
            ) from None
        except READ_ERRORS as error:
            raise unavailable(self.path, error) from error
        return identity, generation

    def _lost(self, problem: str) -> WrongStoreError:
        error = WrongStoreError(f"sqlite at {self.path}: {problem}")
        self._refusal = self._refusal or error
        return error
