"""The store: which one it is, how it is created or upgraded, and whether it is still the same."""

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b
from multiprocessing import parent_process
from secrets import token_hex
from time import monotonic
from typing import Any, Final, NamedTuple

import hiredis
import msgspec

from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    Notes,
    SettingsError,
    UnavailableError,
    WrongStoreError,
)
from petstore_redis.address import ServerAddress, Topology
from petstore_redis.client import Reply
from petstore_redis.masters import Master, Masters
from petstore_redis.packing import pack
from petstore_redis.scripts import Script, Scripts
from petstore_redis.servers import check_role, check_settings, parse_info, warn_of_losses

STORE_SCHEMA: Final = 2
"""The version of the keys and their contents, written into each store. The script
`lua/upgrade_N.lua` turns schema N into N + 1; see `lua/shared/upgrade.lua`."""

CRASH_LOSS_SECONDS: Final = 10
"""No crash may take from a master what it has had for this long."""

FAILOVER_SECONDS: Final = 10
"""How long a master that came back without its data may take to be replaced by a replica."""

_COUNTERS: Final = ("pets", "orders", "revision")
"""Fields of a partition's meta that only grow."""

_GIVE_UP: Final = 'read "An emptied partition" in the README of petstore-redis'
"""What to do about a server without data while other parts of the store are there."""


class _Row(NamedTuple):
    """Fields of a partition's meta, each None if it is not there."""

    schema: bytes | None
    partitions: bytes | None
    store: bytes | None
    complete: bytes | None
    pets: bytes | None
    orders: bytes | None


_Counters = tuple[int, ...]
_Note = dict[int, tuple[bytes, _Counters]]
"""For each partition a digest of its master's address, and the counters to be reached.

They take at most 42 bytes, whatever the address and the counters: 1,024 partitions fit into
`MAX_NOTE_BYTES`.
"""

_ENCODER: Final = msgspec.msgpack.Encoder()
_NOTE: Final = msgspec.msgpack.Decoder(_Note)


class _Level:
    """How far a partition was on its master.

    What it had for `CRASH_LOSS_SECONDS` must still be there. A replica that has taken over may be
    behind: its level begins anew.

    master -- a digest of its address
    required -- the counters that must be reached
    """

    def __init__(self, master: bytes, required: _Counters) -> None:
        self.master = master
        self.required = self._next = required
        self._next_at = monotonic() + CRASH_LOSS_SECONDS

    def raise_to(self, counters: _Counters) -> None:
        """Remember what was just seen."""
        if monotonic() >= self._next_at:
            self.required, self._next = self._next, counters
            self._next_at = monotonic() + CRASH_LOSS_SECONDS
        self._next = tuple(map(min, self._next, counters))


_Expected = tuple[str, _Level, _Counters]
"""A partition before its check: its meta, its level, and the counters that it must reach."""


class RedisStore:
    """The store on these masters. Call `open` first.

    identity -- its identity, the same in each partition; empty until it is open
    """

    def __init__(self, masters: Masters) -> None:
        self.identity = ""
        self.masters = masters
        self.scripts = Scripts()
        self.keys = masters.keys
        self._levels: dict[int, _Level] = {}
        self._notes: Notes | None = None
        self._noted: list[_Note] = []
        self._wrong_since: float | None = None

    async def open(self, expected: Expected) -> None:
        """Find the store; create or upgrade it if that is allowed and necessary.

        Raises `WrongStoreError`, `ChangeNeededError`, and `SettingsError` for a store with another
        number of partitions or a newer schema, for one of which some partitions are gone, and if
        the user may not run the scripts.
        """
        rows = await self._read()
        if _is_damaged(rows):  # or another process has created the rest between two replies
            rows = await self._read()
        for row in rows:
            if row.schema and row.partitions:
                _check_version(int(row.schema), int(row.partitions), len(rows))
        missing = [number for number, row in enumerate(rows) if row.schema is None]
        if _is_damaged(rows):
            error = SettingsError if expected.store is None else WrongStoreError
            raise error(
                f"{self.masters.owners[missing[0]].name} has nothing of partition {missing[0]}"
                f" ({self.keys[missing[0]]['meta']}), but other partitions of the store exist: it"
                f" was emptied, or has lost its data. Restore its data, or {_GIVE_UP}"
            )
        identity = next((row.store.decode() for row in rows if row.store), "")
        if expected.store is not None and (missing or identity != expected.store):
            raise WrongStoreError(
                f"{self.masters.target.name} has {f'the store {identity}' if identity else 'none'}"
                f" ({self.keys[0]['meta']}), not the store {expected.store} that is expected"
            )
        if not all(row.store for row in rows) and expected.access is not Access.CREATE:
            raise ChangeNeededError(
                f"there is no store yet ({self.keys[0]['meta']}): the first start creates it"
            )
        oldest = min(int(row.schema or STORE_SCHEMA) for row in rows)
        if oldest < STORE_SCHEMA and expected.access is not Access.CREATE:
            raise ChangeNeededError(
                f"the store has schema {oldest}: the next start upgrades it to {STORE_SCHEMA}"
            )
        self._notes = expected.notes
        self._noted = [_NOTE.decode(note) for note in self._notes.read()] if self._notes else []
        self.identity = await self._complete(rows, identity or token_hex(16))
        if expected.access is not Access.READ:  # the server asks for all rights before it runs this
            probe = Script("return 1", "", tuple(self.keys[0]))
            probes = (self._evaluate(number, probe, write=False) for number in range(len(rows)))
            await asyncio.gather(*probes)
        for master in dict.fromkeys(self.masters.owners):
            await self._recognize(master, master.reads.call)
        self._write_note()

    async def check(self) -> None:
        """Ask each master, in one round trip, whether it may be used and still has the store.

        Raises `UnavailableError` if it may not, `WrongStoreError` if the store is another one, an
        older copy, or none. Every later call raises that, too. With Sentinels or a cluster it is
        an `UnavailableError` at first: a replica may be about to take over.
        """
        checks = (self._check(master) for master in dict.fromkeys(self.masters.owners))
        failures = [failure for failure in await asyncio.gather(*checks) if failure is not None]
        wrong = next((one for one in failures if isinstance(one, WrongStoreError)), None)
        if wrong is None:
            self._wrong_since = None
            if failures:
                raise failures[0]
            self._write_note()
            return
        if self._wrong_since is None:
            self._wrong_since = monotonic()
        single = self.masters.target.topology is Topology.SINGLE
        if not single and monotonic() < self._wrong_since + FAILOVER_SECONDS:
            raise UnavailableError(*wrong.args)
        await self.masters.aclose(wrong)
        raise wrong

    async def check_replicas(self) -> None:
        """Raise `UnavailableError` if too few replicas confirm a write to each master."""
        one_of_each = {master: number for number, master in enumerate(self.masters.owners)}
        for number in one_of_each.values():
            await self._call(number, "HINCRBY", self.keys[number]["meta"], "revision", 1)

    async def _read(self) -> list[_Row]:
        reading = (
            self._call(number, "HMGET", names["meta"], *_Row._fields, write=False)
            for number, names in enumerate(self.keys)
        )
        return [_Row(*found) for found in await asyncio.gather(*reading)]

    async def _complete(self, rows: Sequence[_Row], identity: str) -> str:
        """Create the missing partitions, upgrade older ones; return the identity of the store.

        A partition is marked as complete only once all exist, and only then does it count pets. So
        if one is marked or counts, all existed; after a first start that was interrupted, none is.
        """
        size = len(rows)
        for number, row in enumerate(rows):
            if row.store is None:  # of processes that create a store, the first names it
                arguments = STORE_SCHEMA, size, identity
                result = await self._evaluate(number, self.scripts.create_store, *arguments)
                _check_version(int(result[1]), int(result[2]), size)
                identity = result[3].decode()
            for older in range(int(row.schema or STORE_SCHEMA), STORE_SCHEMA):
                upgrade = self.scripts.upgrade(older)
                await self._evaluate(number, upgrade, older, older + 1, identity)
        if size > 1:
            marking = (
                self._call(number, "HSET", self.keys[number]["meta"], "complete", 1)
                for number, row in enumerate(rows)
                if row.complete is None
            )
            await asyncio.gather(*marking)
        return identity

    async def _evaluate(
        self, number: int, script: Script, *arguments: int | str, write: bool = True
    ) -> Any:
        named = [self.keys[number][name] for name in script.keys]
        command = "EVAL", script.text, len(named), *named, *arguments
        return await self._call(number, *command, write=write)

    async def _call(self, number: int, *command: int | str, write: bool = True) -> Any:
        return await self.masters.send(number, pack(*command), write=write)

    async def _check(self, master: Master) -> UnavailableError | None:
        """Return why a master must not be used; the handshake of its next connection tells, too."""
        call = master.reads.call
        expected = self._expected(master)
        metas = (call("HMGET", meta, "store", *_COUNTERS) for meta, _, _ in expected)
        info, *rows = await asyncio.gather(call("INFO"), *metas, return_exceptions=True)
        try:
            if isinstance(info, BaseException):
                raise info
            fields = parse_info(info)
            check_role(self.masters.target, master.name, fields)
            check_settings(master.name, fields)
            self._compare(master, expected, rows)
        except (hiredis.ReplyError, ValueError) as error:  # or counters that are not numbers
            meaning = self.masters.handle_error(master, error)
            failure = UnavailableError(*meaning.args)
            if type(meaning) is not UnavailableError:  # it does not pass by itself
                master.disconnect(failure)
            return failure
        except UnavailableError as error:
            master.disconnect(error)
            return error
        return None

    async def check_connection(
        self, master: Master, call: Callable[..., Reply], info: dict[str, str]
    ) -> None:
        """Check a new connection to a master, which may be another one than before."""
        check_settings(master.name, info)
        # A worker is started by a process that has opened the store, and warned.
        log = bool(self.identity) or parent_process() is None
        await warn_of_losses(master.name, info, call, self.masters.replicas, log=log)
        if self.identity:
            await self._recognize(master, call)

    async def _recognize(self, master: Master, call: Callable[..., Reply]) -> None:
        """Compare what a new connection shows with what was there, and write to the same store.

        A server that was killed between write and fsync finds in its AOF what is not on disk. With
        `appendfsync always` a write syncs it all before a read can return it.
        """
        expected = self._expected(master)
        metas = (call("HMGET", meta, "store", *_COUNTERS) for meta, _, _ in expected)
        self._compare(master, expected, await asyncio.gather(*metas, return_exceptions=True))
        syncing = (call("HINCRBY", meta, "revision", 1) for meta, _, _ in expected)
        await asyncio.gather(*syncing, return_exceptions=True)  # a full server can still be read

    def _expected(self, master: Master) -> list[_Expected]:
        """Return what the partitions of a master must have; call it before they are asked."""
        expected = []
        for number, owner in enumerate(self.masters.owners):
            if owner.address == master.address:
                level = self._level(number, master.address)
                expected.append((self.keys[number]["meta"], level, level.required))
        return expected

    def _compare(self, master: Master, expected: Sequence[_Expected], rows: Sequence[Any]) -> None:
        """Raise `WrongStoreError` if partitions are of another store or an older copy."""
        for (meta, level, floor), row in zip(expected, rows, strict=True):
            if isinstance(row, BaseException):
                if not str(row).startswith(("MOVED", "ASK")):  # it is no longer the owner
                    raise row
                continue
            store, *counted = row
            counters: _Counters = tuple(int(counter or 0) for counter in counted)
            if store != self.identity.encode():
                what = "has another store than" if store else "was emptied: it has nothing of"
                raise self._wrong(master, f"{what} the store that was opened", meta)
            if any(now < before for now, before in zip(counters, floor, strict=True)):
                what = f"has an older copy of the store: {floor} before, {counters} now"
                raise self._wrong(master, what, meta)
            level.raise_to(counters)

    def _level(self, number: int, address: ServerAddress) -> _Level:
        """Return the level of a partition on this master: at first the highest that is noted."""
        master = blake2b(repr(address).encode(), digest_size=8).digest()
        level = self._levels.get(number)
        if level is None or level.master != master:
            noted = [note[number] for note in self._noted if number in note]
            counters = [(0,) * len(_COUNTERS)]
            counters += [required for noted_master, required in noted if noted_master == master]
            level = _Level(master, tuple(map(max, zip(*counters, strict=True))))
            self._levels[number] = level
        return level

    def _write_note(self) -> None:
        if self._notes is not None:
            levels = self._levels.items()
            note = {number: (level.master, level.required) for number, level in levels}
            self._notes.write(_ENCODER.encode(note))

    def _wrong(self, master: Master, what: str, meta: str) -> WrongStoreError:
        use = "restart the service without PETSTORE_STORE to use what is there now"
        return WrongStoreError(
            f"{master.name} {what} ({meta}). Restore its data, or"
            f" {use if len(self.keys) == 1 else _GIVE_UP}"
        )


def _is_damaged(rows: Sequence[_Row]) -> bool:
    """Return whether some partitions are gone: all existed once."""
    complete = any(row.complete or row.pets or row.orders for row in rows)
    return complete and any(row.schema is None for row in rows)


def _check_version(schema: int, partitions: int, configured: int) -> None:
    if schema > STORE_SCHEMA:
        raise SettingsError(
            f"the store has schema {schema}, written by a newer petstore-redis; this version"
            f" supports up to {STORE_SCHEMA}. Upgrade petstore-redis"
        )
    if partitions != configured:
        raise SettingsError(
            f"PETSTORE_REDIS_PARTITIONS is {configured}, but this store was created with"
            f" {partitions}; it cannot be changed (export, and import into a new store)"
        )
