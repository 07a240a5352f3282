"""Masters that fail: which one is next, and when the others have taken over."""

import time
from collections.abc import Callable

from petstore_redis.scripts import keys
from redis.crc import key_slot

from backends.redis.tests.servers import Server, until
from backends.redis.tests.topologies import DOWN_AFTER, SERVICE, Cluster, Sentinels
from tests.support.redis_servers import Group

APART_SECONDS = 8 * DOWN_AFTER / 1000 + 0.5
"""How long Sentinels wait at least before the next failover."""

TAKEN_OVER_SECONDS = 60  # how long that, and being in sync again, may take; it only stops a hang


def master_of(group: Group, prefix: str, partition: int) -> tuple[Server, Callable[[], bool]]:
    """Return the master of a partition, and a function that returns whether it is replaced.

    A single server is replaced when it replies again.
    """
    if isinstance(group, Server):
        return group, group.ready
    if isinstance(group, Cluster):
        slot = key_slot(keys(prefix, partition)["meta"].encode())
        owner = group.owner(slot)
        return owner, lambda: group.failed_over(slot, owner)
    master = group.master()
    return master, lambda: group.failed_over(master)


def settled(group: Group) -> bool:
    """Return whether all servers are in sync again, so that the next master may fail."""
    if isinstance(group, Sentinels):
        replicas = [server.call("ROLE")[0] for server in group.nodes].count("slave")
        seen = [server.call("SENTINEL MASTER", SERVICE)["flags"] for server in group.sentinels]
        return replicas == len(group.nodes) - 1 and set(seen) == {"master"}
    return group.ready()


class Failovers:
    """Kills a master and waits until a replica has taken over; starts it again as a replica.

    count -- how many masters were killed: those of the partitions take turns
    """

    def __init__(self, group: Group) -> None:
        self.count = 0
        self._group = group
        self._killed = 0.0

    def kill(self) -> None:
        """Kill a master, once Sentinels are ready to replace it."""
        if isinstance(self._group, Sentinels):
            time.sleep(max(0, self._killed + APART_SECONDS - time.monotonic()))
        self._master, is_replaced = master_of(self._group, "any", self.count)
        self._killed = time.monotonic()
        self._master.kill()
        until(is_replaced, TAKEN_OVER_SECONDS)
        self.count += 1

    def start(self) -> None:
        """Start it again; wait until all servers are in sync."""
        self._master.start()
        until(lambda: settled(self._group), TAKEN_OVER_SECONDS)
