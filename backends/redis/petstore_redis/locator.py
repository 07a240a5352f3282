"""Which server is the master: Sentinels or cluster nodes are asked, the highest epoch counts."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, StorageError, UnavailableError
from petstore_redis.address import ServerAddress, Target, Topology, server_name
from petstore_redis.client import RedisClient, authenticate
from petstore_redis.replies import DENIED, storage_error

MOST_ASKED: Final = 8
"""How many nodes of a cluster are asked at a time, chosen at random: of many, all would cost too
much, and few are on the old side of a partition for long."""

Claim = tuple[int, ServerAddress]
"""What a Sentinel or node says of a partition: the epoch of its master, and the master."""


class MasterLocator:
    """Asks the Sentinels, or the nodes of a cluster, for the masters; each has a client of its own.

    Each failover has an epoch that a majority has voted for, so the highest that any of them
    reports is the latest. Those on the old side of a partition report a lower one.

    target -- where to find them
    slots -- the hash slot of each partition
    seconds -- how long a reply may take
    """

    def __init__(self, target: Target, slots: Sequence[int], seconds: float) -> None:
        self._target = target
        self._slots = slots
        self._seconds = seconds
        self._clients: dict[ServerAddress, RedisClient] = {}
        self._epochs = [0] * len(slots)
        self._masters: set[ServerAddress] = set()
        sentinel = target.topology is Topology.SENTINEL
        self._login = (
            (target.sentinel_user, target.sentinel_password)
            if sentinel
            else (target.user, target.password)
        )
        one = "for one server, PETSTORE_REDIS_URL is redis://host:port"
        self._refusals = {
            **({"unknown command": f"is not a Sentinel: {one}"} if sentinel else {}),
            "cluster support disabled": f"is not a cluster node: {one}",
            "No such master": f"monitors no master named {target.service!r}: PETSTORE_REDIS_URL"
            " must name one that it does (SENTINEL MASTERS lists them)",
        }

    async def locate(self, known: Iterable[ServerAddress]) -> list[ServerAddress]:
        """Return the master of each partition.

        Replies of more than half are enough, so that a dead one costs no time. An epoch that is
        lower than one believed before is believed only when all have replied: then they were set
        up anew.

        known -- the masters so far

        Raises `UnavailableError` if that many do not know one, `StorageError` if they refuse.
        """
        asked = {*self._target.addresses}
        if self._target.topology is Topology.CLUSTER:
            asked |= {*known, *self._masters}
            self._masters = set()
        for address in self._clients.keys() - asked:
            self._clients.pop(address).close()
        if len(asked) > MOST_ASKED:
            asked = set(random.SystemRandom().sample(sorted(asked), MOST_ASKED))
        found = await self._collect([asyncio.ensure_future(self._ask(one)) for one in asked])
        self._epochs = [epoch for epoch, _ in found]
        return [address for _, address in found]

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()

    async def _collect(
        self, asking: Sequence["asyncio.Task[list[Claim] | StorageError]"]
    ) -> list[Claim]:
        """Return for each partition the claim with the highest epoch; see `locate`."""
        replied: list[list[Claim]] = []
        failures: list[StorageError] = []
        best: list[Claim] = []
        try:
            for first in asyncio.as_completed(asking):
                reply = await first
                if isinstance(reply, StorageError):
                    failures.append(reply)
                    continue
                replied.append(reply)
                best = [max(claims) for claims in zip(*replied, strict=True)]
                if 2 * len(replied) > len(asking) and not self._is_outdated(best):
                    return best
        finally:
            for task in asking:
                task.cancel()
        if not replied:
            for failure in failures:
                if type(failure) is not UnavailableError:
                    raise failure
            reason = "no node knows the masters of all slots"
            if self._target.topology is Topology.SENTINEL:
                reason = "no Sentinel reports a master"
            raise UnavailableError(f"{self._target.name}: {reason} ({failures[0]})")
        if failures and self._is_outdated(best):
            raise UnavailableError(f"{self._target.name}: only those that know an old master reply")
        return best

    def _is_outdated(self, claims: Sequence[Claim]) -> bool:
        """Return whether an epoch is lower than the one that was believed last."""
        return any(epoch < known for (epoch, _), known in zip(claims, self._epochs, strict=True))

    async def _ask(self, address: ServerAddress) -> list[Claim] | StorageError:
        """Return what one of them says of each partition, or why it does not."""
        try:
            if self._target.topology is Topology.SENTINEL:
                return await self._ask_sentinel(address)
            return await self._ask_node(address)
        except StorageError as error:
            return error

    async def _ask_sentinel(self, address: ServerAddress) -> list[Claim]:
        service = self._target.service
        found, fields = await self._call(
            address,
            ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service),
            ("SENTINEL", "MASTER", service),
        )
        state = dict(zip(fields[::2], fields[1::2], strict=True))
        claim = int(state[b"config-epoch"]), (found[0].decode(), int(found[1]))
        return [claim] * len(self._slots)  # it is the master of all partitions

    async def _ask_node(self, address: ServerAddress) -> list[Claim]:
        ranges, nodes = await self._call(address, ("CLUSTER", "SLOTS"), ("CLUSTER", "NODES"))
        epochs = {fields[0]: int(fields[6]) for fields in map(bytes.split, nodes.splitlines())}
        owners = {}
        for low, high, (host, port, identity, *_), *_ in ranges:
            # An empty or absent host means the node that replied.
            owner = (host.decode() if host else address[0]), int(port)
            self._masters.add(owner)
            for slot in self._slots:
                if low <= slot <= high:
                    owners[slot] = epochs.get(identity, 0), owner
        if missing := [slot for slot in self._slots if slot not in owners]:
            name = server_name(address)
            raise UnavailableError(f"{name}: it knows no master of slot {missing[0]}")
        return [owners[slot] for slot in self._slots]

    async def _call(self, address: ServerAddress, *commands: tuple[str, ...]) -> list[Any]:
        """Send commands to one of them, together; return the replies."""
        name = server_name(address)
        if (client := self._clients.get(address)) is None:
            client = self._clients[address] = RedisClient(
                self._target.connect(address),
                lambda call: authenticate(call, *self._login),
                name,
                self._seconds,
            )
        try:
            return await asyncio.gather(*(client.call(*command) for command in commands))
        except hiredis.ReplyError as error:
            for said, means in self._refusals.items():
                if said in str(error):
                    raise SettingsError(f"{name} {means}") from None
            if not DENIED.search(str(error)):
                raise UnavailableError(f"{name}: {error}") from None
            raise storage_error(name, error) from None
