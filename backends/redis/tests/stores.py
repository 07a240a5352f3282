"""Stores on Redis for the tests outside the kit, calls that fail, and servers that misbehave."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from itertools import count
from statistics import median
from time import monotonic
from typing import Any, Final

from petstore_conformance.faults.proxy import Proxy, close_server
from petstore_redis import RedisRepository, RedisSettings, open_redis
from petstore_redis.client import RedisClient, Reply

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of
from petstore.contract import Expected
from tests.support import repositories
from tests.support.waiting import PATIENCE

TIMEOUT: Final = 20 * PATIENCE
"""Seconds. Calls that no fault delays return far sooner, even on a busy machine."""
unavailable: Final = partial(repositories.unavailable, within=TIMEOUT / 2)
unavailable_for: Final = partial(repositories.unavailable_for, within=TIMEOUT / 2)
_numbers = count()


def fresh() -> str:
    """Return a prefix that no test has used."""
    return f"t{os.getpid()}.{next(_numbers)}"


def opened(
    place: Server | Sentinels | Cluster | Proxy | str, **settings: Any
) -> AbstractAsyncContextManager[RedisRepository]:
    """Open a store, with an unused prefix unless one is given."""
    if isinstance(place, Proxy):
        url = f"redis://127.0.0.1:{place.port}"
    else:
        url = place if isinstance(place, str) else url_of(place)
    expected = settings.pop("expected", Expected())
    settings = {"prefix": fresh(), "timeout_seconds": TIMEOUT, **settings}
    return open_redis(RedisSettings(url, **settings), expected)


async def unavailable_at_once(call: Callable[[], Awaitable[object]]) -> set[str]:
    """Check that most of twenty calls fail without waiting for anything; return the messages."""
    taken, messages = [], set()
    for _ in range(20):
        begin = monotonic()
        messages.add(await unavailable(call()))
        taken.append(monotonic() - begin)
    assert median(taken) < 0.5  # the shortest time limit of a call is a second
    return messages


async def accept(_: Callable[..., Reply]) -> None:
    """Accept any server."""


@asynccontextmanager
async def client_of(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    seconds: float,
    handshake: Callable[[Callable[..., Reply]], Awaitable[None]] = accept,
) -> AsyncIterator[RedisClient]:
    """Yield a client of a server.

    serve -- serves a connection, which is closed then
    seconds -- how long a reply may take
    handshake -- what the client does first
    """
    serving: list[Any] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def connect(protocol: Callable[[], asyncio.Protocol]) -> Any:
        port = server.sockets[0].getsockname()[1]
        return asyncio.get_running_loop().create_connection(protocol, "127.0.0.1", port)

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    client = RedisClient(connect, handshake, "it", seconds)
    try:
        yield client
    finally:
        client.close()
        await close_server(server)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
