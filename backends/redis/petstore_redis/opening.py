"""Checks before a store is used: the servers' settings, and the schema of the store."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from multiprocessing import parent_process
from secrets import token_hex
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, UnavailableError
from petstore_redis.address import Address
from petstore_redis.client import Reply
from petstore_redis.masters import Masters
from petstore_redis.replies import server_name
from petstore_redis.scripts import Outcome, Script, Scripts

STORE_SCHEMA: Final = 1
"""The version of the keys and their contents, written into each store. The script
`lua/upgrade_N.lua` turns schema N into N + 1; see `lua/shared/upgrade.lua`."""

GIVE_UP: Final = 'read "An emptied partition" in the README of petstore-redis'
"""What else to do if a server was emptied but not all of the store is gone, for messages."""

_log = logging.getLogger("petstore.redis")

_warned: Final[set[tuple[str, str]]] = set()
"""What this process has warned of, so that opening a store again does not repeat it: the run id of
a server, and how it syncs."""


async def check_servers(masters: Masters, replicas: int) -> None:
    """Refuse servers that would lose pets by design; warn of settings that may lose some.

    replicas -- how many must confirm a write

    Raises `SettingsError`, and `UnavailableError` if one cannot be reached.
    """
    for master in masters.all():
        try:
            # A worker is started by a process that has opened the store, and warned.
            warn = parent_process() is None
            await _check_server(master.address, master.reads.call, replicas, warn=warn)
        except hiredis.ReplyError as error:
            name = server_name(master.address)
            raise SettingsError(f"{name} does not let this user run INFO: {error}") from None


async def _check_server(
    address: Address, call: Callable[..., Reply], replicas: int, *, warn: bool = True
) -> None:
    name = server_name(address)
    info = _parse(await call("INFO"))
    check_info(name, info)
    if not warn:
        return
    sync = await _appendfsync(call) if info.get("aof_enabled") == "1" else ""
    found = info.get("run_id", ""), sync
    if found in _warned:
        return
    _warned.add(found)
    replicated = replicas > 0 or info.get("connected_slaves", "0") != "0"
    if not sync:
        _log.warning(
            "%s has no AOF: acknowledged writes may be lost when it stops%s",
            name,
            "; if it restarts before a failover, its replicas lose them too" * replicated,
        )
    elif sync != "always":
        _log.warning(
            "%s does not sync each write (appendfsync is not always):"
            " a power failure may lose the last two seconds%s",
            name,
            ", on its replicas too if it restarts before a failover" * replicated,
        )


def check_info(name: str, info: dict[str, str]) -> None:
    """Refuse a server that is too old or evicts keys.

    name -- the server's name in messages
    info -- the fields of its INFO

    Raises `SettingsError`.
    """
    version = info.get("redis_version", "0")
    if [int(part) for part in version.split(".")[:2]] < [6, 2]:
        raise SettingsError(f"{name} is version {version}; 6.2 or newer is required")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise SettingsError(
            f"{name} evicts keys when its memory is full (maxmemory-policy {policy});"
            " set maxmemory-policy noeviction"
        )


class Recheck:
    """Checks each new connection to a master of an open store, which may be a new master.

    The server must not evict keys and must have the store that was opened: it may have been emptied
    or have lost its data, and ids would begin at 1 again. If not, that is logged once, and calls
    fail until the cause is removed. The warnings of the start are logged for each new master.

    keys -- for each partition, its keys by their names
    stores -- for each partition, the id that was found when it was opened
    replicas -- how many must confirm a write
    """

    def __init__(
        self,
        masters: Masters,
        keys: Sequence[dict[str, str]],
        stores: Sequence[str],
        replicas: int,
    ) -> None:
        self._masters = masters
        self._keys = keys
        self._stores = stores
        self._replicas = replicas
        self._warned = {master.address for master in masters.all()}
        self._refused: set[Address] = set()

    async def __call__(self, address: Address, call: Callable[..., Reply]) -> None:
        """Check a connection. Raises `UnavailableError`, `ReplyError` if a command fails."""
        try:
            warn = address not in self._warned
            await _check_server(address, call, self._replicas, warn=warn)
            self._warned.add(address)
            await self._check_stores(address, call)
        except SettingsError as error:
            if address not in self._refused:
                _log.error("%s", error)
            self._refused.add(address)
            raise UnavailableError(*error.args) from None
        self._refused.discard(address)

    async def _check_stores(self, address: Address, call: Callable[..., Reply]) -> None:
        owners = enumerate(self._masters.owners)
        partitions = [number for number, master in owners if master.address == address]
        metas = [self._keys[number]["meta"] for number in partitions]
        replies = [call("HGET", meta, "store") for meta in metas]
        found = await asyncio.gather(*replies, return_exceptions=True)
        syncing = []
        for number, meta, store in zip(partitions, metas, found, strict=True):
            if isinstance(store, BaseException):
                if not str(store).startswith(("MOVED", "ASK")):  # it is no longer the owner
                    raise store
            elif store != self._stores[number].encode():
                use = "restart the service to use what is there now"
                raise SettingsError(
                    f"{server_name(address)} does not have the store that was opened ({meta}): it"
                    " was emptied, or has another one. Restore its data, or"
                    f" {use if len(self._keys) == 1 else GIVE_UP}"
                )
            else:
                # A server that was killed between write and fsync finds in its AOF what is not on
                # disk. With `appendfsync always` a write syncs it all before a read can return it.
                syncing.append(call("HINCRBY", meta, "connections", 1))
        await asyncio.gather(*syncing, return_exceptions=True)  # a full server may still be read


async def open_store(masters: Masters, scripts: Scripts, keys: list[dict[str, str]]) -> list[str]:
    """Create the store unless it exists; upgrade one with an older schema.

    keys -- for each partition, its keys by their names

    Returns for each partition the id of the store in it.

    Raises `SettingsError` for a store with another number of partitions or a newer schema, for one
    of which some partitions are gone, and if the user may not run the scripts.
    """
    # A partition is marked as complete only once all exist, and only then does it count pets. So if
    # one is marked or counts, all existed; after a first start that was interrupted, none is. This
    # is read before each partition is looked at, because another process may be creating them.
    reading = (
        _call(masters, partition, "HMGET", names["meta"], "complete", "pets", "orders")
        for partition, names in enumerate(keys)
    )
    found = await asyncio.gather(*reading) if len(keys) > 1 else []
    complete = any(field is not None for fields in found for field in fields)
    stores = []
    for partition, names in enumerate(keys):
        arguments = STORE_SCHEMA, len(keys), token_hex(16), int(complete)
        try:
            result = await _evaluate(masters, partition, scripts.open_store, names, *arguments)
        except UnavailableError:  # a server that takes no writes may still be read
            fields = "schema", "partitions", "store"
            stored = await _call(masters, partition, "HMGET", names["meta"], *fields)
            if None in stored:
                raise
            result = [Outcome.DONE, *stored]
        if result[0] == Outcome.NOT_FOUND:
            raise SettingsError(
                f"{server_name(masters.owners[partition].address)} has nothing of partition"
                f" {partition} ({names['meta']}), but other partitions of the store exist: it"
                f" was emptied, or has lost its data. Restore its data, or {GIVE_UP}"
            )
        stores.append(result[3].decode())
        schema, partitions = int(result[1]), int(result[2])
        _check_store(schema, partitions, len(keys))
        for older in range(schema, STORE_SCHEMA):
            await _evaluate(masters, partition, scripts.upgrade(older), names, older, older + 1)
    marking = (
        _call(masters, partition, "HSET", keys[partition]["meta"], "complete", 1)
        for partition, (mark, *_) in enumerate(found)
        if mark is None
    )
    await asyncio.gather(*marking)
    return stores


def _check_store(schema: int, partitions: int, configured: int) -> None:
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


async def _evaluate(
    masters: Masters, partition: int, script: Script, keys: dict[str, str], *arguments: int | str
) -> Any:
    named = [keys[name] for name in script.keys]
    return await _call(masters, partition, "EVAL", script.text, len(named), *named, *arguments)


async def _call(masters: Masters, partition: int, *command: int | str) -> Any:
    """Return a reply to the command. Raises `UnavailableError` or, if it lasts, `SettingsError`."""
    master = masters.owners[partition]
    try:
        return await master.writes.call(*command)
    except hiredis.ReplyError as error:
        failure = masters.handle_error(master, error)
        if type(failure) is UnavailableError:
            raise failure from None
        raise SettingsError(f"{failure}; the user needs +@all on its keys, and +info") from None


async def _appendfsync(call: Callable[..., Reply]) -> str:
    try:
        found: Any = await call("CONFIG", "GET", "appendfsync")
    except hiredis.ReplyError:  # managed servers may not allow CONFIG
        return "unknown"
    return str(found[1].decode()) if found else "unknown"


def _parse(info: bytes) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))
