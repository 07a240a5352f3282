"""The records of writes that had an `IdempotencyToken`.

The caller's clock decides whether a record counts, as the contract says. It is deleted only after
its lifetime has also passed on a clock that cannot be set, the `RecordClock`. So a caller whose
clock jumps, or is wrong, deletes no record that another caller still needs, unless the machine has
been restarted twice since.
"""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import apsw

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    Receipt,
    StorageError,
    TokenRecord,
    TokenReusedError,
    UnavailableError,
)
from petstore_sqlite.rows import check_types

_FIND: Final = """SELECT fingerprint, id, until, number FROM tokens
    WHERE substr(token, 1, 4) = substr(?1, 1, 4) AND token = ?1"""
_RECORD: Final = """REPLACE INTO tokens (number, token, fingerprint, id, until, written)
    VALUES (?, ?, ?, ?, ?, ?)"""

# Two are more than the one record that a write may add, so that expired records do not pile up.
# Only those that expired first are considered. Records of a caller whose clock is slow, expired
# but too young to be deleted, hold up the others until they are old enough; no write gets slow.
# What seems to have been written later than now was written before a restart that went unnoticed.
_DROP: Final = """DELETE FROM tokens WHERE (written <= ? OR written > ?) AND number IN
    (SELECT number FROM tokens WHERE until <= ? ORDER BY until LIMIT 2 * ?)"""

_STORED: Final = {
    "pet": "SELECT 1 FROM pets WHERE id = ?",
    "order": "SELECT 1 FROM orders WHERE id = ?",
}

_RESTART: Final = 2**32
"""How far the clock goes ahead when the machine is restarted: more seconds than it ever runs."""

# On Linux, the clock that also counts while the machine sleeps.
_UPTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _find_boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # not on Linux: about when it was started, by a clock that can be set
        return str(round(time.time() - time.clock_gettime(_UPTIME), -3))


BOOT: Final = _find_boot()
"""Identifies this run of the machine."""


class RecordClock:
    """The clock of the store: how often its machine was restarted, and its uptime, as one number.

    All processes of a machine read the same; only the restarts are in the file. So it goes on while
    nothing is written, is never faster than time, and does not depend on the time of day.

    It cannot tell for how long the machine was off. Records from before a restart are old enough
    when the machine has been running for as long as a record lasts, or is restarted again.
    """

    def __init__(self) -> None:
        self._begin = -1  # until the restarts are known

    def read(self, connection: apsw.Connection) -> int:
        """Return the time. Called in a transaction that writes."""
        if self._begin < 0:
            row = connection.execute("SELECT boot, restarts FROM record_clock").fetchone()
            found: Any = row or (None, None)
            boot, restarts = found
            check_types((boot, str), (restarts, int))
            if boot != BOOT:
                restarts += 1
                statement = "UPDATE record_clock SET boot = ?, restarts = ?"
                connection.execute(statement, (BOOT, restarts))
            self._begin = restarts * _RESTART
        return self._begin + int(time.clock_gettime(_UPTIME))


def find(
    connection: apsw.Connection, token: IdempotencyToken, kind: Literal["pet", "order"]
) -> Receipt | StorageError | int | None:
    """Return the receipt of the earlier write with this token, or None if there is none.

    kind -- what the write stored

    If the record of the earlier write has expired, return its number; a `TokenReusedError` if that
    write had another fingerprint, and an `UnavailableError` if what it stored was deleted.
    """
    found: Any = connection.execute(_FIND, (token.value,)).fetchone()
    if found is None:
        return None
    fingerprint, id_, until, number = found
    check_types((fingerprint, bytes), (id_, int), (until, int))
    if until <= token.now:
        return int(number)
    if fingerprint != token.fingerprint:
        return TokenReusedError("the token was used for another write")
    if connection.execute(_STORED[kind], (id_,)).get is None:
        return UnavailableError(
            f"{kind} {id_} is not stored, but is recorded under an idempotency key: it was deleted"
            " by hand. Restore it; or delete the record, so that a retry takes effect again: the"
            f" row of the table tokens whose token is x'{token.value.hex()}'"
        )
    return Receipt(id_, replayed=True)


def record(
    connection: apsw.Connection,
    uses: Sequence[tuple[IdempotencyToken, int, int | None]],
    clock: RecordClock,
) -> None:
    """Record the ids that writes with these tokens have been assigned; delete what is old.

    uses -- for each its token, the id, and the number of an expired record of this token, if any
    """
    if not uses:
        return
    now = clock.read(connection)
    running = now % _RESTART
    lives = Counter((token.now, token.until - token.now) for token, _, _ in uses)
    for (called, seconds), count in lives.items():
        # Whatever was written before the last two restarts is old, however long ago that was.
        old = now - seconds if seconds <= running else now - running - _RESTART - 1
        connection.execute(_DROP, (old, now, called, count))
    # Those with a number first: another record might be given the number of one that was deleted.
    connection.executemany(
        _RECORD,
        [
            (number, token.value, token.fingerprint, id_, token.until, now)
            for token, id_, number in sorted(uses, key=lambda use: use[2] is None)
        ],
    )


def restore(connection: apsw.Connection, item: TokenRecord, clock: RecordClock) -> None:
    """Store the record of another store. Raises `ConflictError` if another one has its token."""
    found: Any = connection.execute(_FIND, (item.value,)).fetchone()
    row = (item.fingerprint, item.id, item.until)
    if found is None:
        connection.execute(_RECORD, (None, item.value, *row, clock.read(connection)))
    elif found[:3] != row:
        raise ConflictError("its token is taken by another record")
