"""Recordings of a Redis or Valkey server with its append-only file, written to by the backend."""

import asyncio
import random
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec
import redis
from petstore_redis import RedisSettings, backend

from backends.redis.tests.servers import QUICK, Port, Server
from petstore.contract import Expected, Repository, UnavailableError
from tests.faults.torture.disk import seeded
from tests.faults.torture.promises import Promises
from tests.faults.torture.recording import Log
from tests.faults.torture.workload import Clients

DELAY = 2000
"""Microseconds that a sync of a recorded server takes longer, so that kills meet it."""

READ_SECONDS = 60
"""How long a service may take to find a server that is back."""


class Plan(msgspec.Struct, frozen=True):
    """What is recorded: clients of a server that is killed and started again.

    appendfsync -- always, or another mode as a control
    kept -- whether a service that outlives the server reads from it as soon as it is back
    """

    binary: Path
    appendfsync: str = "always"
    kept: bool = False
    generations: int = 3
    writes: int = 400
    clients: int = 12


@contextmanager
def recorded(plan: Plan, directory: Path) -> Iterator[tuple[Server, Log]]:
    """Yield a server whose directory is recorded, and the log."""
    with closing(Port()) as port:
        wrapper = directory / "recorded-server"
        server = Server(directory, wrapper, port.number, *_lines(plan.appendfsync))
        with closing(Log(directory / "log", server.directory)) as log:
            variables = log.environment(delay=DELAY if plan.appendfsync == "always" else 0)
            settings = " ".join(f"{name}='{value}'" for name, value in variables.items())
            wrapper.write_text(f"#!/bin/sh\nexec env {settings} '{plan.binary}' \"$@\"\n")
            wrapper.chmod(stat.S_IRWXU)
            try:
                yield server, log
            finally:
                server.kill()


def _lines(appendfsync: str) -> tuple[str, ...]:
    return (*QUICK, "appendonly yes", f"appendfsync {appendfsync}", "auto-aof-rewrite-percentage 0")


def record(plan: Plan, server: Server, log: Log, chance: random.Random) -> int:
    """Run clients, and kill and restart the server; return how often it was killed."""
    asyncio.run(_record(plan, server, log, chance))
    return plan.generations


async def _record(plan: Plan, server: Server, log: Log, chance: random.Random) -> None:
    server.start()
    async with backend.open(_settings(server), Expected()) as kept:  # it connects when it is used
        for generation in range(plan.generations):
            if plan.kept:
                await _read_everything(kept, log)
            await _run(plan, server, log, generation, chance)
            server.kill()
            server.start()


async def _read_everything(repository: Repository, log: Log) -> None:
    """Read everything, by a service that has outlived the server, as soon as it can."""
    async with asyncio.timeout(READ_SECONDS):
        while True:
            try:
                await Clients(repository, log.mark, "", seeded(0)).read_everything()
            except UnavailableError:  # it is connecting again
                await asyncio.sleep(0.01)
            else:
                return


async def _run(
    plan: Plan, server: Server, log: Log, generation: int, chance: random.Random
) -> None:
    """Write until the server is killed, just after enough writes."""
    loop = asyncio.get_running_loop()
    left = chance.randrange(plan.writes // 2, plan.writes)
    kills: list[asyncio.TimerHandle] = []

    def mark(data: bytes) -> None:
        nonlocal left
        log.mark(data)
        left -= 1
        if left == 0:
            kills.append(loop.call_later(chance.uniform(0, 2 * DELAY / 1e6), server.kill))

    def rewrite() -> None:
        with suppress(redis.RedisError):  # one is in progress, or the server was killed
            server.call("BGREWRITEAOF")

    async with backend.open(_settings(server), Expected()) as repository:
        clients = Clients(repository, mark, f"{generation}.0", chance, rewrite)
        if generation:
            await clients.repeat(f"{generation - 1}.0")
        await clients.read_everything()
        if generation == 1:
            await clients.restore()
        await clients.run(plan.clients, plan.writes)
    for kill in kills:  # its time may not have come: it must not meet the next generation
        kill.cancel()


def _settings(server: Server) -> RedisSettings:
    return RedisSettings(url=f"redis://127.0.0.1:{server.port}", timeout_seconds=10)


class Restarts:
    """Restarts of a server on what is left of its directory."""

    def __init__(self, binary: Path, port: int) -> None:
        self._binary = binary
        self._port = port

    async def check(self, directory: Path, promises: Promises, chance: random.Random) -> list[str]:
        """Start a server, and compare its store with what was promised."""
        with suppress(FileNotFoundError):  # the log of the server is not recorded
            (directory / "server.log").unlink()
        place = directory.with_name("restarted")
        place.mkdir()
        server = Server(place, self._binary, self._port, *_lines("always"))
        shutil.copytree(directory, server.directory, dirs_exist_ok=True)
        try:
            try:
                server.start()
            except AssertionError:
                server.kill()
                self._repair(server.directory)
                server.start()
            async with backend.open(_settings(server), Expected()) as repository:
                return await promises.violations(repository, chance)
        except AssertionError:
            return [f"it does not start: {server.log()[-500:]}"]
        except Exception as error:  # noqa: BLE001 - whatever a damaged file may cause
            return [f"it cannot be used: {error!r}"]
        finally:
            server.kill()
            shutil.rmtree(place)
            shutil.rmtree(directory)

    def _repair(self, directory: Path) -> None:
        """Cut off the tail that the server cannot read, as its message says."""
        tool = directory / "valkey-check-aof"  # the server is this tool under this name
        if "valkey" not in self._binary.name:
            tool = directory / "redis-check-aof"
        tool.symlink_to(self._binary)
        # Not of the manifest: valkey-check-aof 9.1 refuses bases that its own server has written.
        newest = max(
            (directory / "appendonlydir").glob("*.incr.aof"),
            key=lambda path: int(path.name.split(".")[2]),
        )
        subprocess.run([tool, "--fix", newest], input=b"y\n", check=False, capture_output=True)
