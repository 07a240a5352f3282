"""The current master of each partition: one server, the Sentinels' master, or cluster nodes."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, StorageError, UnavailableError
from petstore_redis.address import Address, Target, Topology
from petstore_redis.client import RedisClient, Reply

TOPOLOGY_REFRESH_SECONDS: Final = 1.0
"""How often Sentinels or cluster nodes are asked for the masters, to notice a failover soon."""

TOPOLOGY_RECHECK_SECONDS: Final = 0.1
"""How often they are asked while a master is down."""

_DENIED: Final = re.compile("^(NOAUTH|WRONGPASS|NOPERM)|AUTH")
_TRANSIENT: Final = re.compile(
    r"(?:ERR Error running script .*?: -)?"  # before version 7, errors in scripts are wrapped
    r"(READONLY|NOREPLICAS|MISCONF|OOM|BUSY|LOADING|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK"
    r"|ERR max number of clients)\b"
)
"""Errors that pass, by themselves or once the server is repaired. The command was not executed."""

_log = logging.getLogger("petstore.redis")


class Master:
    """The clients of one master.

    seconds -- how long a reply may take
    replicas -- how many must confirm a write
    reads -- a separate client if there are replicas, so that no read waits for replication
    """

    def __init__(self, target: Target, address: Address, seconds: float, replicas: int) -> None:
        connect, name = target.connect(address), _display_name(target, address)

        async def handshake(call: Callable[..., Reply]) -> None:
            try:  # no PING: a server that cannot save refuses it, although it can be read
                await _authenticate(call, target.user, target.password)
                if target.db:
                    await call("SELECT", target.db)
                role: list[Any] = await call("ROLE")
            except hiredis.ReplyError as error:
                raise storage_error(name, error) from None
            if role[:1] != [b"master"]:
                raise UnavailableError(f"{name}: it is not a master")

        self.address = address
        self.reads = self.writes = RedisClient(connect, handshake, name, seconds)
        if replicas:
            self.writes = RedisClient(connect, handshake, name, seconds, replicas)

    @property
    def down(self) -> bool:
        """Whether calls fail at the moment."""
        return self.reads.down or self.writes.down

    @property
    def busy(self) -> bool:
        """Whether calls wait for a reply."""
        return self.reads.busy or self.writes.busy

    def disconnect(self, reason: str) -> None:
        """Close the connections; the handshake of the next ones checks the role."""
        self.reads.disconnect(reason)
        self.writes.disconnect(reason)

    async def close(self) -> None:
        """Close the connections for good."""
        for client in (self.reads, self.writes):
            await client.close()


class Masters:
    """The masters of all partitions. Call `start` before use and `close` after it.

    owners -- the master of each partition, as far as is known
    target -- where to find them
    slots -- the hash slot of each partition
    seconds, replicas -- as for `Master`
    """

    def __init__(self, target: Target, slots: Sequence[int], seconds: float, replicas: int) -> None:
        self.owners: list[Master] = []
        self._target = target
        self._slots = slots
        self._seconds = seconds
        self._replicas = replicas
        self._known: dict[Address, Master] = {}
        self._informants: dict[Address, RedisClient] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._suspicion = asyncio.Event()

    async def start(self) -> None:
        """Find the masters. Raises `UnavailableError` or `SettingsError`."""
        await self._locate()
        if self._target.topology is not Topology.SINGLE:
            self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Close all connections."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        for master in self._known.values():
            await master.close()
        for informant in self._informants.values():
            await informant.close()

    def all(self) -> list[Master]:
        """Return each master once."""
        return list(dict.fromkeys(self.owners))

    async def follow_redirect(
        self,
        partition: int,
        master: Master,
        error: hiredis.ReplyError,
        packed: bytes,
        *,
        write: bool,
    ) -> Any:
        """Send a command to the node that MOVED or ASK names; raise what any other error means.

        A server that redirects has not executed the command.

        master -- the master that replied to the command with this error
        write -- whether the reply must wait for replicas

        Raises `StorageError` as `handle_error` returns it, `UnavailableError` if that node cannot
        be reached.
        """
        kind, _, rest = str(error).partition(" ")
        if kind not in ("MOVED", "ASK"):
            raise self.handle_error(master, error)
        host, _, port = rest.rpartition(" ")[2].rpartition(":")
        address = (host or master.address[0], int(port))
        named = self._master(address)
        client = named.writes if write else named.reads
        try:
            if kind == "ASK":  # both are sent together: nothing comes between them
                client.call("ASKING").add_done_callback(lambda asking: asking.exception())
            else:
                self.owners[partition] = named
                self._suspicion.set()
            return await client.send(packed)
        except hiredis.ReplyError as second:
            raise self.handle_error(named, second) from None

    def handle_error(self, master: Master, error: hiredis.ReplyError) -> StorageError:
        """Return what an error reply means; disconnect from a server that is no longer the master.

        A transient error makes the watcher look for the masters at once.
        """
        if found := _TRANSIENT.match(str(error)):
            if found[1] == "READONLY":
                master.disconnect("it is no longer the master")
            self._suspicion.set()
        return storage_error(_display_name(self._target, master.address), error)

    async def _watch(self) -> None:
        """Follow the masters until cancelled."""
        while True:
            down = any(master.down for master in self.owners)
            seconds = TOPOLOGY_RECHECK_SECONDS if down else TOPOLOGY_REFRESH_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._suspicion.wait()
            if self._suspicion.is_set():
                self._suspicion.clear()
                await asyncio.sleep(TOPOLOGY_RECHECK_SECONDS)
            try:
                await self._locate()
            except StorageError as error:
                if not down:
                    _log.warning("%s", error)
            except Exception:  # noqa: BLE001 - no reply may end the watch: it would miss failovers
                _log.exception("the masters could not be determined")

    async def _locate(self) -> None:
        """Find the masters, and close the connections to former ones."""
        if self._target.topology is Topology.SINGLE:
            owners = [self._target.addresses[0]] * len(self._slots)
        elif self._target.topology is Topology.SENTINEL:
            owners = [await self._ask_sentinels()] * len(self._slots)
        else:
            owners = await self._ask_cluster()
        self.owners = [self._master(address) for address in owners]
        for address in self._known.keys() - set(owners):
            if not self._known[address].busy:  # calls in flight may still get their replies
                await self._known.pop(address).close()
        for address in self._informants.keys() - {*self._known, *self._target.addresses}:
            await self._informants.pop(address).close()

    def _master(self, address: Address) -> Master:
        if (found := self._known.get(address)) is None:
            found = Master(self._target, address, self._seconds, self._replicas)
            self._known[address] = found
        return found

    async def _ask_sentinels(self) -> Address:
        """Return the master according to the first Sentinel that replies."""
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._target.service)
        login = self._target.sentinel_user, self._target.sentinel_password
        for address in self._target.addresses:
            with suppress(UnavailableError):
                if found := await self._ask(address, login, *command):
                    return found[0].decode(), int(found[1])
        raise UnavailableError(f"{self._target.name}: no Sentinel reports a master")

    async def _ask_cluster(self) -> list[Address]:
        """Return the masters of the partitions according to the first node that knows them all."""
        login = self._target.user, self._target.password
        for seed in [*self._known, *self._target.addresses]:
            with suppress(UnavailableError):
                ranges = await self._ask(seed, login, "CLUSTER", "SLOTS")
                found = [_slot_owner(ranges, slot, seed) for slot in self._slots]
                if None not in found:
                    return [address for address in found if address]
        raise UnavailableError(f"{self._target.name}: no node knows the masters of all slots")

    async def _ask(self, address: Address, login: tuple[str, str], *command: str) -> Any:
        """Send a command to a Sentinel or a node through a separate client; return the reply."""
        name = server_name(address)
        if (informant := self._informants.get(address)) is None:

            async def handshake(call: Callable[..., Reply]) -> None:
                try:
                    await _authenticate(call, *login)
                except hiredis.ReplyError as error:
                    raise storage_error(name, error) from None

            connect = self._target.connect(address)
            informant = RedisClient(connect, handshake, name, self._seconds)
            self._informants[address] = informant
        try:
            return await informant.call(*command)
        except hiredis.ReplyError as error:
            if "cluster support disabled" in str(error):
                raise SettingsError(f"{name} is not a cluster node") from None
            if not _DENIED.search(str(error)):
                raise UnavailableError(f"{name}: {error}") from None
            raise storage_error(name, error) from None


def _slot_owner(ranges: list[Any], slot: int, node: Address) -> Address | None:
    for low, high, (host, port, *_), *_ in ranges:
        if low <= slot <= high:  # an empty or absent host means the node that replied
            return (host.decode() if host else node[0]), int(port)
    return None


async def _authenticate(call: Callable[..., Reply], user: str, password: str) -> None:
    if password:
        await call("AUTH", *((user, password) if user else (password,)))


def storage_error(name: str, error: hiredis.ReplyError) -> StorageError:
    """Return what an error reply means: `UnavailableError` if it passes, else `StorageError`.

    name -- the server's name in messages
    """
    if _TRANSIENT.match(str(error)):
        return UnavailableError(f"{name}: {error}")
    if _DENIED.search(str(error)):
        return StorageError(f"{name}: the user or the password is refused: {error}")
    return StorageError(f"{name}: {error}")


def server_name(address: Address) -> str:
    """Return the name of a server in messages."""
    host, port = address
    return f"redis at {host}:{port}" if port else f"redis at {host}"


def _display_name(target: Target, address: Address) -> str:
    return target.name if target.topology is Topology.SINGLE else server_name(address)
