"""The records of writes that had an `IdempotencyToken`.

The caller's clock decides whether a record counts, as the contract says. It is deleted only after
its lifetime has also passed on a clock that cannot be set, the `RecordClock`. So a caller whose
clock jumps, or is wrong, deletes no record that another caller still needs.
"""

from time import monotonic
from typing import Any, Final, Literal

import apsw

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    Receipt,
    TokenRecord,
    TokenReusedError,
    UnavailableError,
)
from petstore_sqlite.rows import check_types

_FIND: Final = "SELECT fingerprint, id FROM tokens WHERE token = ? AND until > ?"
_RECORD: Final = "REPLACE INTO tokens (token, fingerprint, id, until, minute) VALUES (?,?,?,?,?)"

# Two are more than the one record that a write may add, so that expired records do not pile up.
# Only the two that expired first are looked at. Records of a caller whose clock is slow, expired
# but too young to be deleted, hold up the others until they are old enough; no write gets slow.
_DROP: Final = """DELETE FROM tokens WHERE minute <= ? AND token IN
    (SELECT token FROM tokens WHERE until <= ? ORDER BY until LIMIT 2)"""

_RESTORE: Final = """INSERT INTO tokens (token, fingerprint, id, until, minute)
    VALUES (?, ?, ?, ?, ?) ON CONFLICT (token) DO NOTHING"""
_STORED_RECORD: Final = "SELECT fingerprint, id, until FROM tokens WHERE token = ?"

_STORED: Final = {
    "pet": "SELECT 1 FROM pets WHERE id = ?",
    "order": "SELECT 1 FROM orders WHERE id = ?",
}

_SLACK: Final = 3
"""Minutes by which the clock of the store may be ahead of the minute in a record."""


class RecordClock:
    """The clock of the store: it counts the minutes in which records were written.

    The file holds it. A process that writes a record a minute or more after it last looked moves
    it on by one minute, unless another process has. So it is never faster than time, it does not
    depend on the time of day, and while nothing is written it stands still, as the table does.
    """

    def __init__(self) -> None:
        self._minute = -1
        self._looked = 0.0

    def read(self, connection: apsw.Connection) -> int:
        """Return the minute. Called in a transaction that writes."""
        now = monotonic()
        if self._minute < 0 or now - self._looked >= 60:
            found: Any = connection.execute("SELECT minute FROM record_clock").get
            check_types((found, int))
            if self._minute >= 0 and found <= self._minute:
                found = self._minute + 1
                connection.execute("UPDATE record_clock SET minute = ?", (found,))
            self._minute, self._looked = found, now
        return self._minute


def find(
    connection: apsw.Connection, token: IdempotencyToken, kind: Literal["pet", "order"]
) -> Receipt | None:
    """Return the receipt of the earlier write with this token, or None if there is none.

    kind -- what the write stored

    Raises `TokenReusedError` if that write had another fingerprint, `UnavailableError` if what it
    stored was deleted.
    """
    found: Any = connection.execute(_FIND, (token.value, token.now)).fetchone()
    if found is None:
        return None
    fingerprint, id_ = found
    check_types((fingerprint, bytes), (id_, int))
    if fingerprint != token.fingerprint:
        raise TokenReusedError("the token was used for another write")
    if connection.execute(_STORED[kind], (id_,)).get is None:
        raise UnavailableError(
            f"{kind} {id_} is not stored, but is recorded under an idempotency key: it was deleted"
            " by hand. Restore it; or delete the record, so that a retry takes effect again: the"
            f" row of the table tokens whose token is x'{token.value.hex()}'"
        )
    return Receipt(id_, replayed=True)


def record(
    connection: apsw.Connection, token: IdempotencyToken, id_: int, clock: RecordClock
) -> None:
    """Record the id that a write with this token has been assigned; delete what is old."""
    minute = clock.read(connection)
    old = minute - (token.until - token.now) // 60 - _SLACK
    connection.execute(_DROP, (old, token.now))
    connection.execute(_RECORD, (token.value, token.fingerprint, id_, token.until, minute))


def restore(connection: apsw.Connection, item: TokenRecord, clock: RecordClock) -> None:
    """Store the record of another store. Raises `ConflictError` if another one has its token."""
    row = (item.fingerprint, item.id, item.until)
    connection.execute(_RESTORE, (item.value, *row, clock.read(connection)))
    if connection.changes():
        return
    if connection.execute(_STORED_RECORD, (item.value,)).fetchone() != row:
        raise ConflictError("its token is taken by another record")
