"""Checks before a store is used: the servers' settings, and the schema of the store."""

import logging
import re
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, UnavailableError
from petstore_redis.masters import Master, Masters
from petstore_redis.replies import server_name
from petstore_redis.scripts import Script, Scripts

STORE_SCHEMA: Final = 1
"""The version of the keys and their contents, written into each store. The script
`lua/upgrade_N.lua` turns schema N into N + 1; see `lua/shared/upgrade.lua`."""

_log = logging.getLogger("petstore.redis")


async def check_servers(masters: Masters) -> None:
    """Refuse servers that would lose pets by design; warn of settings that may lose some.

    Raises `SettingsError`, and `UnavailableError` if one cannot be reached.
    """
    for master in masters.all():
        name = server_name(master.address)
        try:
            info = _parse(await master.reads.call("INFO"))
        except hiredis.ReplyError as error:
            raise SettingsError(f"{name} does not let this user run INFO: {error}") from None
        check_info(name, info)
        if info.get("aof_enabled") != "1":
            _log.warning("%s has no AOF: acknowledged writes may be lost when it stops", name)
        elif await _appendfsync(master) != "always":
            _log.warning(
                "%s does not sync each write (appendfsync is not always):"
                " a power failure may lose the last two seconds",
                name,
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


async def open_store(masters: Masters, scripts: Scripts, keys: list[dict[str, str]]) -> None:
    """Create the store unless it exists; upgrade one with an older schema.

    keys -- for each partition, its keys by their names

    Raises `SettingsError` for a store with another number of partitions or a newer schema, and if
    the user may not run the scripts.
    """
    for partition, names in enumerate(keys):
        master = masters.owners[partition]
        try:
            result = await _evaluate(master, scripts.open_store, names, STORE_SCHEMA, len(keys))
            schema, partitions = int(result[1]), int(result[2])
            _check_store(schema, partitions, len(keys))
            for older in range(schema, STORE_SCHEMA):
                await _evaluate(master, scripts.upgrade(older), names, older, older + 1)
        except hiredis.ReplyError as error:
            failure = masters.handle_error(master, error)
            if isinstance(failure, UnavailableError):
                raise failure from None
            raise SettingsError(f"{failure}; the user needs +@all on its keys, and +info") from None


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


async def _evaluate(master: Master, script: Script, keys: dict[str, str], *arguments: int) -> Any:
    named = [keys[name] for name in script.keys]
    return await master.writes.call("EVAL", script.text, len(named), *named, *arguments)


async def _appendfsync(master: Master) -> str:
    try:
        found: Any = await master.reads.call("CONFIG", "GET", "appendfsync")
    except hiredis.ReplyError:  # managed servers may not allow CONFIG
        return "unknown"
    return str(found[1].decode()) if found else "unknown"


def _parse(info: bytes) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))
