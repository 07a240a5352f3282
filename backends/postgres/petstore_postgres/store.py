"""The store that this process has opened, and whether what is there is still that one."""

import logging
from collections.abc import Awaitable, Callable
from operator import lt
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from petstore.contract import Access, Expected, WrongStoreError
from petstore_postgres.schema import empty_store
from petstore_postgres.servers import TO_USE_IT

MAX_LOSS_SECONDS: Final = 10
"""No crash or failover may take from a store what it has had for this long: that is required."""

# Ids count as assigned if the sequence has assigned them, or if a row has them: a logical replica,
# and a restore of data only, have the rows and leave the sequences behind.
_SQL: Final = """SELECT s.identity::text, s.version, s.tableoid::bigint,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_flush_lsn() END - '0/0'::pg_lsn)::bigint,
    p.last_value - 1 + p.is_called::int, (SELECT coalesce(max(id), 0) FROM {schema}.pets),
    o.last_value - 1 + o.is_called::int, (SELECT coalesce(max(id), 0) FROM {schema}.orders)
    FROM {schema}.store s, {schema}.pet_ids p, {schema}.order_ids o"""

_log = logging.getLogger("petstore.postgres")

_Ids = tuple[int, ...]
"""The highest ids of pets and of orders."""


class _State(NamedTuple):
    """The store as one check finds it.

    table -- the id of a table, which a restored dump does not have
    timeline -- of a primary; empty for a standby
    position -- how much of the write-ahead log is on disk: on one timeline it only grows
    pet_ids, pets, order_ids, orders -- how far the sequences are, and the highest ids of rows
    """

    identity: str
    version: int
    table: int
    timeline: str
    position: int
    pet_ids: int
    pets: int
    order_ids: int
    orders: int

    @property
    def assigned(self) -> _Ids:
        """What was ever assigned."""
        return max(self.pet_ids, self.pets), max(self.order_ids, self.orders)


_ENCODER: Final = msgspec.msgpack.Encoder()
_NOTE: Final = msgspec.msgpack.Decoder(tuple[_State, _Ids])


class Store:
    """The store that this process has opened. The first check says which one that is.

    name -- the servers, in messages
    schema -- the schema of the store
    expected -- its identity, and what the processes of the service have noted
    identity -- its identity, once it has been checked
    """

    def __init__(self, name: str, schema: str, expected: Expected) -> None:
        self.schema = schema
        self.identity = expected.store or ""
        self._name = name
        self._notes = expected.notes
        self._writes = expected.access is not Access.READ
        self._last: _State | None = None
        self._required: _Ids = (0, 0)
        self._next_required: _Ids = (0, 0)
        self._next_at = 0.0

    async def check(self, fetch_row: Callable[[str], Awaitable[Any]]) -> None:
        """Compare what is there with what was there; raise sequences that are behind their tables.

        fetch_row -- sends a statement; returns its first row, or None

        Raises `WrongStoreError` for another store, or an older copy of this one.
        """
        before = self._last  # a check that began later may end before
        last = before or self._noted()
        required = self._required
        row = await fetch_row(_SQL.format(schema=f'"{self.schema}"'))
        if row is None:
            raise empty_store(self._name, self.schema)
        state = _State(*row)
        if self.identity not in ("", state.identity):
            raise WrongStoreError(
                f"{self._name} has the store {state.identity} in the schema {self.schema}, and not"
                f" {self.identity}. Restore its data, or {TO_USE_IT}"
            )
        # What only reads may go from one standby to another that is behind it: nothing is lost.
        if last is not None and (self._writes or state.timeline == last.timeline != ""):
            self._compare(state, last, required)
        if before is None:
            self.identity = state.identity
            _log.info(
                "%s has the store %s in the schema %s, schema version %d",
                self._name,
                state.identity,
                self.schema,
                state.version,
            )
        self._remember(state, before)
        for sequence, assigned, highest in (
            ("pet_ids", state.pet_ids, state.pets),
            ("order_ids", state.order_ids, state.orders),
        ):
            if assigned < highest and self._writes:
                _log.warning(
                    "%s: the sequence %s was at %d, behind the ids in its table, and is set to %d",
                    self._name,
                    sequence,
                    assigned,
                    highest,
                )
                raise_ids = """SELECT {0}.raise_ids('{0}.{1}', {2})"""
                await fetch_row(raise_ids.format(f'"{self.schema}"', sequence, highest))

    def _noted(self) -> _State | None:
        """Return what a process of the service has seen last; require the ids that it does."""
        notes = [_NOTE.decode(note) for note in self._notes.read()] if self._notes else []
        if not notes:
            return None
        last, self._required = max(notes, key=lambda note: (note[0].timeline, note[0].position))
        self._next_required = self._required
        return last

    def _compare(self, state: _State, last: _State, required: _Ids) -> None:
        """Raise `WrongStoreError` if this is an older copy of what was seen last.

        A crash loses nothing that was on disk. A failover to an asynchronous standby loses what
        that had not received: its timeline is higher, and its tables are the same. A restored dump
        has other tables, so it has no reason to have fewer ids.
        """
        same_table = state.table == last.table
        older_files = state.timeline == last.timeline and state.position < last.position
        floor = required if same_table else last.assigned
        if older_files or any(map(lt, state.assigned, floor)):
            raise WrongStoreError(
                f"{self._name} has an older copy of the store in the schema {self.schema}:"
                f" {_describe(last)} before, {_describe(state)} now. Restore the newest data, or"
                f" {TO_USE_IT}"
            )
        if any(map(lt, state.assigned, last.assigned)):
            _log.warning(
                "%s has lost the latest writes, as a failover to an asynchronous standby may: %s"
                " before, %s now; ids are assigned again",
                self._name,
                _describe(last),
                _describe(state),
            )

    def _remember(self, state: _State, before: _State | None) -> None:
        if self._last is not before:  # another check has ended meanwhile
            return
        self._last = state
        if monotonic() >= self._next_at:
            self._required, self._next_required = self._next_required, state.assigned
            self._next_at = monotonic() + MAX_LOSS_SECONDS
        self._required = tuple(map(min, self._required, state.assigned))
        self._next_required = tuple(map(min, self._next_required, state.assigned))
        if self._notes is not None:
            self._notes.write(_ENCODER.encode((state, self._required)))


def _describe(state: _State) -> str:
    pets, orders = state.assigned
    return f"ids up to {pets} and {orders} at {state.timeline}/{state.position:X}"
