"""The current master of each partition: one server, the Sentinels' master, or cluster nodes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import hiredis
from redis.crc import key_slot

from petstore.contract import StorageError, UnavailableError
from petstore_redis.address import ServerAddress, Target, Topology, server_name
from petstore_redis.client import ASKING, RedisClient, Reply, authenticate
from petstore_redis.locator import MasterLocator
from petstore_redis.replies import TRANSIENT, storage_error
from petstore_redis.servers import check_role, parse_info

TOPOLOGY_REFRESH_SECONDS: Final = 1.0
"""How often Sentinels or cluster nodes are asked for the masters, to notice a failover soon."""

TOPOLOGY_RECHECK_SECONDS: Final = 0.1
"""How often they are asked while a master is down."""

TRYAGAIN_SECONDS: Final = 0.05
"""How long a command waits that must be sent again because its slot is moving."""

Check = Callable[["Master", Callable[..., Reply], dict[str, str]], Awaitable[None]]

_log = logging.getLogger("petstore.redis")


class Master:
    """The clients of one master, which are made as `masters` says.

    name -- the server's name in messages
    reads -- a separate client if there are replicas, so that no read waits for replication
    pages -- a separate client, so that nothing else waits while a large page is arriving; it is
        down whenever `reads` is
    """

    def __init__(self, masters: "Masters", address: ServerAddress) -> None:
        target, seconds = masters.target, masters.seconds
        connect = target.connect(address)
        name = target.name if target.topology is Topology.SINGLE else server_name(address)

        async def handshake(call: Callable[..., Reply]) -> None:
            # No PING: a server that cannot save refuses it, although it can be read.
            await authenticate(call, target.user, target.password)
            info = parse_info(await call("INFO"))
            check_role(target, name, info)  # first: a Sentinel knows no SELECT
            if target.db:
                await call("SELECT", target.db)
            if masters.check is not None:
                await masters.check(self, call, info)

        self.address = address
        self.name = name
        self.pages = RedisClient(connect, handshake, name, seconds)
        self.reads = self.writes = RedisClient(connect, handshake, name, seconds)
        self.reads.follower = self.pages
        if masters.replicas:
            self.writes = RedisClient(connect, handshake, name, seconds, masters.replicas)
        self.clients = self.pages, self.reads, self.writes

    def disconnect(self, reason: str | UnavailableError) -> None:
        """Close the connections; the handshake of the next ones checks the server again."""
        for client in self.clients:
            client.disconnect(reason)

    def close(self, reason: str | UnavailableError) -> None:
        """Close the connections for good: every later call fails."""
        for client in self.clients:
            client.close(reason)


class Masters:
    """The masters of all partitions. Call `start` before use and `aclose` after it.

    owners -- the master of each partition, as far as is known
    target -- where to find them
    keys -- for each partition, its keys by their names
    seconds -- how long a reply may take
    replicas -- how many must confirm a write
    check -- checks each new connection, see `start`
    """

    def __init__(
        self, target: Target, keys: Sequence[dict[str, str]], seconds: float, replicas: int
    ) -> None:
        self.owners: list[Master] = []
        self.target = target
        self.seconds = seconds
        self.replicas = replicas
        self.check: Check | None = None
        self.keys = keys
        self._known: dict[ServerAddress, Master] = {}
        slots = [key_slot(names["meta"].encode()) for names in keys]
        self._locator = MasterLocator(target, slots, seconds)
        self._watcher: asyncio.Task[None] | None = None
        self._suspicion = asyncio.Event()

    async def start(self, check: Check | None = None) -> None:
        """Find the masters. Raises `UnavailableError` or `SettingsError`.

        check -- called with the master, `call` and the INFO of each new connection; raises what a
            handshake does
        """
        self.check = check
        await self._locate()
        if self.target.topology is not Topology.SINGLE:
            self._watcher = asyncio.create_task(self._watch())

    async def aclose(self, reason: str | UnavailableError = "the repository is closed") -> None:
        """Close all connections for good, also if cancelled: later calls fail for this reason."""
        for master in self._known.values():
            master.close(reason)
        try:
            if self._watcher is not None:
                self._watcher.cancel()
                await asyncio.wait([self._watcher])
        finally:
            self._locator.close()

    async def send(self, partition: int, packed: bytes, *, write: bool, page: bool = False) -> Any:
        """Send a command to the master of a partition, and again if an error asks for that.

        write -- whether the reply must wait for replicas
        page -- whether it may be large

        Raises `StorageError` as `handle_error` returns it, `UnavailableError` if the server cannot
        be reached.
        """
        master = self.owners[partition]
        client = master.writes if write else master.pages if page else master.reads
        try:
            return await client.send(packed)
        except hiredis.ReplyError as error:
            return await self.send_again(partition, master, error, packed, write=write)

    async def send_again(
        self,
        partition: int,
        master: Master,
        error: hiredis.ReplyError,
        packed: bytes,
        *,
        write: bool,
    ) -> Any:
        """Send a command again as an error asks: to the node that MOVED or ASK names, or later.

        TRYAGAIN means that some keys of a slot have moved and others not yet: the command is sent
        until the time of a call is over. NOSCRIPT is the error of an EVALSHA, whose EVAL this is.
        A server that asks for this has not executed it.

        master -- the master that replied to the command with this error

        The rest is as for `send`.
        """
        end, redirected = monotonic() + self.seconds, False
        while True:
            kind, _, rest = str(error).partition(" ")
            if kind == "TRYAGAIN" and monotonic() < end:
                await asyncio.sleep(TRYAGAIN_SECONDS)
                master, redirected = self.owners[partition], False
            elif kind in ("MOVED", "ASK") and not redirected:
                host, _, port = rest.rpartition(" ")[2].rpartition(":")
                master, redirected = self._master((host or master.address[0], int(port))), True
            elif kind != "NOSCRIPT" or monotonic() > end:
                raise self.handle_error(master, error)
            client = master.writes if write else master.reads
            if kind == "ASK":  # both are sent together: nothing comes between them
                client.send(ASKING).add_done_callback(lambda asking: asking.exception())
            elif kind == "MOVED":
                self.owners[partition] = master
                self._suspicion.set()
            try:
                return await client.send(packed)
            except hiredis.ReplyError as found:
                error = found

    def handle_error(self, master: Master, error: Exception) -> StorageError:
        """Return what an error reply means; disconnect from a server that is no longer the master.

        A transient error makes the watcher locate the masters at once.
        """
        if found := TRANSIENT.match(str(error)):
            if found[1] == "READONLY":
                master.disconnect("it is no longer the master")
            self._suspicion.set()
        elif str(error).startswith("NOAUTH"):  # a new connection logs in again
            master.disconnect("the login is no longer valid")
        return storage_error(master.name, error)

    async def _watch(self) -> None:
        """Follow the masters until cancelled."""
        while True:
            down = any(client.down for master in self.owners for client in master.clients)
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
        if self.target.topology is Topology.SINGLE:
            owners = [self.target.addresses[0]] * len(self.keys)
        else:
            owners = await self._locator.locate(self._known)
        self.owners = [self._master(address) for address in owners]
        for address in self._known.keys() - set(owners):
            former = self._known[address]
            if not any(client.busy for client in former.clients):  # calls may still get replies
                self._known.pop(address).close("it is no longer the master")

    def _master(self, address: ServerAddress) -> Master:
        if address not in self._known:
            self._known[address] = Master(self, address)
        return self._known[address]
