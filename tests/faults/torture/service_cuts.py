"""Recordings of a whole service on SQLite, whose workers are killed and replaced."""

import asyncio
import os
import random
import signal
from contextlib import closing, suppress
from itertools import count, cycle
from pathlib import Path
from unittest.mock import patch

import msgspec
from petstore_conformance.faults.wire import ClientConnection, Endpoint

from petstore.contract import Pet
from tests.faults.torture.promises import Mark, encoded, new_pet
from tests.faults.torture.recording import Log
from tests.faults.torture.sqlite_cuts import FILE
from tests.support.services import Live, process
from tests.support.waiting import until

CLIENTS = 12
DELAY = 5000
"""Microseconds that a sync takes longer, so that kills meet it."""

WRITES = 120
"""How many writes are acknowledged before each kill, and after the last one."""


def record(log: Log, directory: Path, kills: int, chance: random.Random) -> int:
    """Run a service, kill all its workers at once some times; return how many were killed."""
    settings = {"backend": "sqlite", "sqlite_path": str(log.folder / FILE), "log": "off"}
    with (
        patch.dict(os.environ, log.environment(delay=DELAY)),
        process(directory, workers="2", **settings) as live,
    ):
        return asyncio.run(_record(log, live, kills, chance))


async def _record(log: Log, live: Live, kills: int, chance: random.Random) -> int:
    target = Endpoint(live)
    writes = asyncio.Semaphore(0)
    killed = 0
    newest = [0]
    clients = [asyncio.create_task(_create(log, target, n, writes, newest)) for n in range(CLIENTS)]
    clients.append(asyncio.create_task(_look(log, target, newest)))
    for _ in range(kills):
        for _ in range(WRITES):
            await writes.acquire()
        await asyncio.sleep(chance.uniform(0, 2 * DELAY / 1e6))
        for worker in live.workers():
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                killed += 1
        await asyncio.to_thread(until, lambda: len(live.workers()) == 2)
    for _ in range(WRITES):
        await writes.acquire()
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    failed = [client.exception() for client in clients if not client.cancelled()]
    assert failed == []
    return killed


async def _create(
    log: Log, target: Endpoint, client: int, writes: asyncio.Semaphore, newest: list[int]
) -> None:
    """Create pets, each under a key, and repeat a request until there is a response."""
    with closing(ClientConnection(target)) as connection:
        for number in count(1):
            name = f"{client}/{number}"
            body = msgspec.to_builtins(new_pet(name))
            while (response := await connection.exchange("POST", "/pets", body, name)) is None:
                pass
            assert response.status == 201, response
            pet = msgspec.json.decode(response.content, type=Pet)
            log.mark(encoded(Mark([pet], writes=1)))
            newest[0] = max(newest[0], pet.id)
            writes.release()


async def _look(log: Log, target: Endpoint, newest: list[int]) -> None:
    """Look for pets whose creation has not been acknowledged yet."""
    with closing(ClientConnection(target)) as connection:
        for ahead in cycle(range(1, CLIENTS)):
            response = await connection.exchange("GET", f"/pets/{newest[0] + ahead}")
            if response is not None and response.status == 200:
                log.mark(encoded(Mark([msgspec.json.decode(response.content, type=Pet)])))
