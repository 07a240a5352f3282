"""Who is the master of each partition, now: one server, what the Sentinels say, or a cluster."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import hiredis

from petstore.contract import SettingsError, StorageError, UnavailableError
from petstore_redis.address import Address, Kind, Target
from petstore_redis.line import Answer, Line

_REFUSED: Final = re.compile("^(NOAUTH|WRONGPASS|NOPERM)|AUTH")

WATCH_SECONDS: Final = 1.0
"""How often Sentinels and clusters are asked who is master, so that a former one is left soon."""

TROUBLE_SECONDS: Final = 0.1
"""How often they are asked while a master does not answer."""

_PASSES: Final = re.compile(
    r"(?:ERR Error running script .*?: -)?"  # before version 7, errors in scripts are wrapped
    r"(READONLY|NOREPLICAS|MISCONF|OOM|BUSY|LOADING|CLUSTERDOWN|MASTERDOWN|TRYAGAIN|MOVED|ASK"
    r"|ERR max number of clients)\b"
)
"""Errors that pass by themselves, or when somebody has cured the server. Nothing was done."""

_log = logging.getLogger("petstore.redis")


class Master:
    """The lines to one master.

    seconds -- how long an answer may take
    replicas -- how many must have a write before it is answered
    reads -- of its own, so that no read waits for a write's replication
    """

    def __init__(self, target: Target, address: Address, seconds: float, replicas: int) -> None:
        connect, name = target.connect(address), _name(target, address)

        async def hello(ask: Callable[..., Answer]) -> None:
            try:  # no PING: a server that cannot save refuses it, and can be read
                await _log_in(ask, target.user, target.password)
                if target.db:
                    await ask("SELECT", target.db)
                role: list[Any] = await ask("ROLE")
            except hiredis.ReplyError as error:
                raise meaning(name, error) from None
            if role[:1] != [b"master"]:
                raise UnavailableError(f"{name}: it is no master")

        self.address = address
        self.reads = Line(connect, hello, name, seconds)
        self.writes = Line(connect, hello, name, seconds, replicas) if replicas else self.reads

    @property
    def down(self) -> bool:
        """Whether calls fail at present."""
        return self.reads.down or self.writes.down

    @property
    def busy(self) -> bool:
        """Whether calls wait for an answer."""
        return self.reads.busy or self.writes.busy

    def drop(self, reason: str) -> None:
        """Close the connections: it may not be the master any more."""
        self.reads.drop(reason)
        self.writes.drop(reason)

    async def close(self) -> None:
        """Close the connections for good."""
        for line in (self.reads, self.writes):
            await line.close()


class Masters:
    """The masters of all partitions. `start` before use; `close` in the end.

    target -- where to look for them
    slots -- the hash slot of each partition
    seconds, replicas -- as each `Master` has them
    """

    def __init__(self, target: Target, slots: Sequence[int], seconds: float, replicas: int) -> None:
        self._target = target
        self._slots = slots
        self._seconds = seconds
        self._replicas = replicas
        self._known: dict[Address, Master] = {}
        self._asked: dict[Address, Line] = {}
        self._owners: list[Master] = []
        self._watcher: asyncio.Task[None] | None = None
        self._trouble = asyncio.Event()

    async def start(self) -> None:
        """Find the masters. Raises `UnavailableError` or `SettingsError`."""
        await self._locate()
        if self._target.kind is not Kind.SINGLE:
            self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Close all connections."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        for master in self._known.values():
            await master.close()
        for line in self._asked.values():
            await line.close()

    def all(self) -> list[Master]:
        """Return each master once."""
        return list(dict.fromkeys(self._owners))

    def of(self, partition: int) -> Master:
        """Return the master of a partition, as far as is known."""
        return self._owners[partition]

    def read(self, partition: int, *command: bytes | str | int) -> Answer:
        """Ask the master of a partition."""
        return self._owners[partition].reads.call(*command)

    def write(self, partition: int, *command: bytes | str | int) -> Answer:
        """Let the master of a partition write; the answer comes when replicas have it."""
        return self._owners[partition].writes.call(*command)

    async def put_right(
        self,
        partition: int,
        asked: Master,
        error: hiredis.ReplyError,
        *command: bytes | str | int,
        write: bool,
    ) -> Any:
        """Go where a server has pointed to, which has done nothing itself; or raise the error.

        asked -- the master that answered the command with this error
        write -- whether the answer must wait for replicas

        Raises `StorageError` as `explain` makes it, `UnavailableError` if nobody answers there.
        """
        kind, _, rest = str(error).partition(" ")
        if kind not in ("MOVED", "ASK"):
            raise self.explain(asked, error)
        host, _, port = rest.rpartition(" ")[2].rpartition(":")
        address = (host or asked.address[0], int(port))
        master = self._master(address)
        line = master.writes if write else master.reads
        try:
            if kind == "ASK":  # both are sent together: nothing comes between them
                line.call("ASKING").add_done_callback(lambda asking: asking.exception())
            else:
                self._owners[partition] = master
                self._trouble.set()
            return await line.call(*command)
        except hiredis.ReplyError as again:
            raise self.explain(master, again) from None

    def explain(self, asked: Master, error: hiredis.ReplyError) -> StorageError:
        """Return what an error answer of a master means; leave it if it is none any more.

        What passes by itself makes the watcher look at once who is master.
        """
        if found := _PASSES.match(str(error)):
            if found[1] == "READONLY":
                asked.drop("it is no master any more")
            self._trouble.set()
        return meaning(_name(self._target, asked.address), error)

    async def _watch(self) -> None:
        """Follow the masters until cancelled."""
        while True:
            down = any(master.down for master in self._owners)
            with suppress(TimeoutError):
                async with asyncio.timeout(TROUBLE_SECONDS if down else WATCH_SECONDS):
                    await self._trouble.wait()
            if self._trouble.is_set():
                self._trouble.clear()
                await asyncio.sleep(TROUBLE_SECONDS)
            try:
                await self._locate()
            except StorageError as error:
                if not down:
                    _log.warning("%s", error)
            except Exception:  # noqa: BLE001 - after whatever answer, no failover may go unseen
                _log.exception("cannot make out who is master")

    async def _locate(self) -> None:
        """Learn who the masters are, and leave those that are none any more."""
        if self._target.kind is Kind.SINGLE:
            owners = [self._target.addresses[0]] * len(self._slots)
        elif self._target.kind is Kind.SENTINEL:
            owners = [await self._ask_sentinels()] * len(self._slots)
        else:
            owners = await self._ask_cluster()
        self._owners = [self._master(address) for address in owners]
        for address in self._known.keys() - set(owners):
            if not self._known[address].busy:  # what is under way may still be answered
                await self._known.pop(address).close()
        for address in self._asked.keys() - {*self._known, *self._target.addresses}:
            await self._asked.pop(address).close()

    def _master(self, address: Address) -> Master:
        if (found := self._known.get(address)) is None:
            found = Master(self._target, address, self._seconds, self._replicas)
            self._known[address] = found
        return found

    async def _ask_sentinels(self) -> Address:
        """Return the master that the first Sentinel names that answers."""
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._target.service)
        login = self._target.sentinel_user, self._target.sentinel_password
        for address in self._target.addresses:
            with suppress(UnavailableError):
                if found := await self._ask(address, login, *command):
                    return found[0].decode(), int(found[1])
        raise UnavailableError(f"{self._target.name}: no Sentinel names a master")

    async def _ask_cluster(self) -> list[Address]:
        """Return the masters of the partitions as the first node sees it that answers."""
        login = self._target.user, self._target.password
        for seed in [*self._known, *self._target.addresses]:
            with suppress(UnavailableError):
                ranges = await self._ask(seed, login, "CLUSTER", "SLOTS")
                found = [_owner(ranges, slot, seed) for slot in self._slots]
                if None not in found:
                    return [address for address in found if address]
        raise UnavailableError(f"{self._target.name}: no node knows the masters of all slots")

    async def _ask(self, address: Address, login: tuple[str, str], *command: str) -> Any:
        """Ask a Sentinel or a node about the others, over a line of its own."""
        name = f"redis at {name_of(address)}"
        if (line := self._asked.get(address)) is None:

            async def hello(ask: Callable[..., Answer]) -> None:
                try:
                    await _log_in(ask, *login)
                except hiredis.ReplyError as error:
                    raise meaning(name, error) from None

            line = Line(self._target.connect(address), hello, name, self._seconds)
            self._asked[address] = line
        try:
            return await line.call(*command)
        except hiredis.ReplyError as error:
            if "cluster support disabled" in str(error):
                raise SettingsError(f"{name} is no node of a cluster") from None
            if not _REFUSED.search(str(error)):
                raise UnavailableError(f"{name}: {error}") from None
            raise meaning(name, error) from None


def _owner(ranges: list[Any], slot: int, asked: Address) -> Address | None:
    for low, high, (host, port, *_), *_ in ranges:
        if low <= slot <= high:  # an empty or absent host means the one that was asked
            return (host.decode() if host else asked[0]), int(port)
    return None


async def _log_in(ask: Callable[..., Answer], user: str, password: str) -> None:
    if password:
        await ask("AUTH", *((user, password) if user else (password,)))


def meaning(name: str, error: hiredis.ReplyError) -> StorageError:
    """Return what an error answer means: whether it passes by itself, or needs somebody.

    name -- what messages call the server
    """
    if _PASSES.match(str(error)):
        return UnavailableError(f"{name}: {error}")
    if _REFUSED.search(str(error)):
        return StorageError(f"{name}: the user or the password is refused: {error}")
    return StorageError(f"{name}: {error}")


def name_of(address: Address) -> str:
    """Return what messages call a server."""
    host, port = address
    return f"{host}:{port}" if port else host


def _name(target: Target, address: Address) -> str:
    if target.kind is Kind.SINGLE:
        return target.name
    return f"redis at {name_of(address)}"
