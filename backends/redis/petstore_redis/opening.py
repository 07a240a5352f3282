"""What is looked at before a store is used: the servers' settings, and which schema it has."""

import logging
import re
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, UnavailableError
from petstore_redis.masters import Master, Masters, name_of
from petstore_redis.scripts import Scripts

SCHEMA: Final = 1
"""The number of the layout of keys; a store keeps it."""

UPGRADES: Final[dict[int, str]] = {}
"""From a schema to the next one: a script that is given all keys of a partition."""

_log = logging.getLogger("petstore.redis")


async def check_servers(masters: Masters) -> None:
    """Refuse servers that would lose animals by design; warn of settings that may lose some.

    Raises `SettingsError`, and `UnavailableError` if one cannot be reached.
    """
    for master in masters.all():
        name = f"redis at {name_of(master.address)}"
        try:
            facts = _parse(await master.reads.call("INFO"))
        except hiredis.ReplyError as error:
            raise SettingsError(f"{name} lets this user ask for no INFO: {error}") from None
        check_facts(name, facts)
        if facts.get("aof_enabled") != "1":
            _log.warning("%s has no AOF: what was acknowledged may be lost when it stops", name)
        elif await _appendfsync(master) != "always":
            _log.warning(
                "%s does not sync each write (appendfsync is not always): a power cut may take"
                " the last two seconds", name,
            )  # fmt: skip


def check_facts(name: str, facts: dict[str, str]) -> None:
    """Refuse a server by what its INFO says: too old, or one that evicts.

    name -- what messages call the server
    facts -- the fields of INFO

    Raises `SettingsError`.
    """
    version = facts.get("redis_version", "0")
    if [int(part) for part in version.split(".")[:2]] < [6, 2]:
        raise SettingsError(f"{name} is version {version}; 6.2 or newer is needed")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise SettingsError(
            f"{name} evicts animals when its memory is full (maxmemory-policy {policy});"
            " set maxmemory-policy noeviction"
        )


async def begin(masters: Masters, scripts: Scripts, keys: list[dict[str, str]]) -> None:
    """Make the store if it is not there; refuse one of another kind, upgrade an older one.

    Raises `SettingsError` for a store with another number of partitions, for one that a newer
    version wrote, and for a user who may not run the scripts.
    """
    for partition, of_partition in enumerate(keys):
        script = scripts.begin
        command = ("EVAL", script.text, len(script.keys))
        named = [of_partition[name] for name in script.keys]
        master = masters.of(partition)
        try:
            result = await master.writes.call(*command, *named, SCHEMA, len(keys))
            schema, partitions = int(result[1]), int(result[2])
            _check_store(schema, partitions, len(keys))
            await _upgrade(master, schema, list(of_partition.values()))
        except hiredis.ReplyError as error:
            problem = masters.explain(master, error)
            if isinstance(problem, UnavailableError):
                raise problem from None
            raise SettingsError(f"{problem}; the user needs +@all on its keys, +info") from None


def _check_store(schema: int, partitions: int, wanted: int) -> None:
    if schema > SCHEMA:
        raise SettingsError(
            f"the store has schema {schema}, written by a newer petstore-redis; this one knows up"
            f" to {SCHEMA}. Upgrade petstore-redis"
        )
    if partitions != wanted:
        raise SettingsError(
            f"PETSTORE_REDIS_PARTITIONS is {wanted}, but this store was made with {partitions};"
            " it cannot be changed (export, and import into a new one)"
        )


async def _upgrade(master: Master, schema: int, keys: list[str]) -> None:
    for step in range(schema, SCHEMA):  # another process may be at it, too
        text = f"""
            if redis.call('HGET', KEYS[1], 'schema') ~= '{step}' then return end
            redis.call('HSET', KEYS[1], 'schema', {step + 1})
            {UPGRADES[step]}
        """
        await master.writes.call("EVAL", text, len(keys), *keys)


async def _appendfsync(master: Master) -> str:
    try:
        found: Any = await master.reads.call("CONFIG", "GET", "appendfsync")
    except hiredis.ReplyError:  # managed servers let nobody ask
        return "unknown"
    return str(found[1].decode()) if found else "unknown"


def _parse(info: bytes) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))
