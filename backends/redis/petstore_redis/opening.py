"""Checks before a store is used: the servers' settings, and the schema of the store."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, UnavailableError
from petstore_redis.address import Address
from petstore_redis.client import Reply
from petstore_redis.masters import Master, Masters
from petstore_redis.replies import server_name
from petstore_redis.scripts import Script, Scripts

STORE_SCHEMA: Final = 1
"""The version of the keys and their contents, written into each store. The script
`lua/upgrade_N.lua` turns schema N into N + 1; see `lua/shared/upgrade.lua`."""

_log = logging.getLogger("petstore.redis")


async def check_servers(masters: Masters, replicas: int) -> None:
    """Refuse servers that would lose pets by design; warn of settings that may lose some.

    replicas -- how many must confirm a write

    Raises `SettingsError`, and `UnavailableError` if one cannot be reached.
    """
    for master in masters.all():
        try:
            await _check_server(master.address, master.reads.call, replicas)
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
    replicated = replicas > 0 or info.get("connected_slaves", "0") != "0"
    if info.get("aof_enabled") != "1":
        _log.warning(
            "%s has no AOF: acknowledged writes may be lost when it stops%s",
            name,
            "; if it restarts before a failover, its replicas lose them too" * replicated,
        )
    elif await _appendfsync(call) != "always":
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
                raise SettingsError(
                    f"{server_name(address)} does not have the store that was opened ({meta}): it"
                    " was emptied, or has another one. Restore its data, or restart the service to"
                    " use what is there now"
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

    Raises `SettingsError` for a store with another number of partitions or a newer schema, and if
    the user may not run the scripts.
    """
    stores = []
    for partition, names in enumerate(keys):
        master = masters.owners[partition]
        try:
            arguments = STORE_SCHEMA, len(keys), token_hex(16)
            result = await _evaluate(master, scripts.open_store, names, *arguments)
            stores.append(result[3].decode())
            schema, partitions = int(result[1]), int(result[2])
            _check_store(schema, partitions, len(keys))
            for older in range(schema, STORE_SCHEMA):
                await _evaluate(master, scripts.upgrade(older), names, older, older + 1)
        except hiredis.ReplyError as error:
            failure = masters.handle_error(master, error)
            if isinstance(failure, UnavailableError):
                raise failure from None
            raise SettingsError(f"{failure}; the user needs +@all on its keys, and +info") from None
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
    master: Master, script: Script, keys: dict[str, str], *arguments: int | str
) -> Any:
    named = [keys[name] for name in script.keys]
    return await master.writes.call("EVAL", script.text, len(named), *named, *arguments)


async def _appendfsync(call: Callable[..., Reply]) -> str:
    try:
        found: Any = await call("CONFIG", "GET", "appendfsync")
    except hiredis.ReplyError:  # managed servers may not allow CONFIG
        return "unknown"
    return str(found[1].decode()) if found else "unknown"


def _parse(info: bytes) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))
