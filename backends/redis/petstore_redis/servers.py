"""What a server says of itself (INFO): whether it may be used, and what it may lose."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import hiredis

from petstore.contract import UnavailableError
from petstore_redis.address import Target, Topology
from petstore_redis.client import Reply
from petstore_redis.replies import UnusableError

_log = logging.getLogger("petstore.redis")

_warned: Final[set[tuple[str, str]]] = set()
"""What this process has warned of, so that a new connection does not repeat it: the run id of a
server, and how it syncs."""


def parse_info(info: bytes) -> dict[str, str]:
    """Return the fields of an INFO reply."""
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))


def check_role(target: Target, name: str, info: dict[str, str]) -> None:
    """Refuse a server that is not a master, by the fields of its INFO.

    Raises `UnusableError` if the URL names the wrong server, otherwise `UnavailableError`.
    """
    if "sentinel_masters" in info:
        raise UnusableError(
            f"{name} is a Sentinel: PETSTORE_REDIS_URL must be redis+sentinel://host:port/service"
        )
    if info.get("role", "master") != "master":
        if target.topology is Topology.SINGLE:
            raise UnusableError(
                f"{name} is a replica, not a master: PETSTORE_REDIS_URL must name the master,"
                f" {info.get('master_host')}:{info.get('master_port')}, or the Sentinels"
            )
        raise UnavailableError(f"{name}: it is not a master")


def check_settings(name: str, info: dict[str, str]) -> None:
    """Refuse a server that is too old or evicts keys, with `UnusableError`, or that still loads.

    It need not say either: some managed servers show few fields.
    """
    if info.get("loading", "0") != "0":  # until then, it says that it has no AOF
        raise UnavailableError(f"{name}: LOADING its data")
    version = info.get("redis_version")
    if version and [int(part) for part in version.split(".")[:2]] < [6, 2]:
        raise UnusableError(f"{name} is version {version}; 6.2 or newer is required")
    if "master_replid" not in info:
        raise UnusableError(
            f"{name} shows no master_replid in INFO, without which ids could be assigned twice;"
            " use another server"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnusableError(
            f"{name} evicts keys when its memory is full (maxmemory-policy {policy});"
            " set maxmemory-policy noeviction"
        )


async def warn_of_losses(
    name: str, info: dict[str, str], call: Callable[..., Reply], replicas: int, *, log: bool
) -> None:
    """Log once if a server may lose acknowledged writes, or does not say whether it may.

    replicas -- how many must confirm a write
    log -- False to take it as logged: by the process that has started this one
    """
    aof, sync = info.get("aof_enabled"), ""
    if aof == "1":
        with suppress(hiredis.ReplyError):  # managed servers may not allow CONFIG
            setting: Any = await call("CONFIG", "GET", "appendfsync")
            sync = setting[1].decode() if setting else ""
    found = info.get("run_id", name), sync
    if found in _warned:
        return
    _warned.add(found)
    if not log:
        return
    replicated = replicas > 0 or info.get("connected_slaves", "0") != "0"
    too = "; if it restarts before a failover, its replicas lose them too" * replicated
    power = "a power failure may lose the last two seconds"
    if aof is None:
        loss = (
            "does not say whether it has an AOF (INFO): without one, acknowledged writes may be"
            " lost when it stops"
        )
    elif aof != "1":
        loss = "has no AOF: acknowledged writes may be lost when it stops"
    elif not sync:
        unknown = "it allows no CONFIG GET appendfsync: unless that is always"
        loss = f"does not say whether it syncs each write; {unknown}, {power}"
    else:
        loss = f"does not sync each write (appendfsync is not always): {power}"
    if sync != "always":
        _log.warning("%s %s%s", name, loss, too)
    if "maxmemory_policy" not in info:
        _log.warning(
            "%s does not say whether it evicts keys (INFO): pets and orders may vanish unless its"
            " maxmemory-policy is noeviction",
            name,
        )
