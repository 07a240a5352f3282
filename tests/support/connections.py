"""Connections without sockets: bytes go in and responses come out, in this process."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import uvicorn
from uvicorn.server import ServerState

from petstore.config import discovery
from petstore.config.keys import Keys
from petstore.config.loading import Configuration
from petstore.config.settings import RateLimit, Settings
from petstore.contract import Expected
from petstore.http.app import create_app
from petstore.server.connection import HttpConnection
from tests.support.services import KEY
from tests.support.waiting import HANG_SECONDS

_IDLE_TURNS = 4
"""A connection that has done nothing in so many iterations of the loop waits for its client."""

_SOCKETS: Final = socket.socketpair()
"""Through these nothing passes: servers ask one whether something waits in the kernel."""

Connect = Callable[[], Any]
"""Returns a new connection of a server: an `asyncio.Protocol`."""


class FarEnd(asyncio.Transport):
    """The far end of a connection: what a client has.

    slow -- whether it reads only when the server does nothing more; otherwise it reads at once
    received -- what the server has written
    paused -- whether the server waits until more of that is read
    reading -- whether the server reads what is sent
    closed -- whether the connection is closed
    connection -- the near end, until it is closed
    """

    def __init__(self, connect: Connect, *, slow: bool = False) -> None:
        addresses = {"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 50_000)}
        super().__init__({**addresses, "socket": _SOCKETS[0]})
        self.received = bytearray()
        self.paused = False
        self.reading = True
        self.closed = False
        self._slow = slow
        self._ended = False  # the server writes no more
        self.connection = connect()
        self.connection.connection_made(self)

    async def send(self, data: bytes) -> None:
        """Send data as soon as the server reads. A socket, too, waits an iteration of the loop."""
        await asyncio.sleep(0)
        while not (self.reading or self.closed):
            await self.idle()
        if data and not self.closed:
            self.connection.data_received(data)

    async def finish(self) -> None:
        """Let the server respond, send the end of the stream, and leave after the last response."""
        await self.idle()
        if not self.closed and not self.connection.eof_received():
            self.close()
        async with asyncio.timeout(HANG_SECONDS):
            while not self.closed:  # a response may come from a thread
                await self.idle()
        await self.idle()

    async def idle(self) -> None:
        """Wait until the server does no more."""
        turns, last = 0, None
        while turns < _IDLE_TURNS:
            await asyncio.sleep(0)
            state: Any = len(self.received), self.reading, self.closed
            turns, last = turns + 1 if state == last else 0, state
            if turns == _IDLE_TURNS and self.paused and not self.closed:
                self.paused, turns = False, 0
                self.connection.resume_writing()

    # The connection calls these.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Receive data."""
        if self._ended:
            raise RuntimeError("written after the end")
        if self.closed:
            return
        self.received += data
        if self._slow and not self.paused:
            self.paused = True
            self.connection.pause_writing()

    def can_write_eof(self) -> bool:
        """Return True, as for any socket."""
        return True

    def write_eof(self) -> None:
        """Expect nothing more."""
        self._ended = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: `paused` is what a test sets."""

    def get_write_buffer_size(self) -> int:
        """Return how much was not read yet."""
        return int(self.paused)

    def is_closing(self) -> bool:
        """Return whether the connection is closed."""
        return self.closed

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)
            del self.connection  # it refers to this: a reference cycle

    abort = close

    def pause_reading(self) -> None:
        """Send no more."""
        self.reading = False

    def resume_reading(self) -> None:
        """Send again."""
        self.reading = True


def connects(app: Any, kind: Any) -> Connect:
    """Return what opens connections of this kind to an application."""
    config = uvicorn.Config(app, ws="none", log_config=None, access_log=False, server_header=False)
    config.load()
    server = ServerState()
    return lambda: kind(config, server, {}, asyncio.get_running_loop())


def ours(app: Any) -> Connect:
    """Return what opens connections of the service's own kind, which say what they reject."""
    return connects(app, partial(HttpConnection, reject=lambda message, *_: ([], message.encode())))


@contextmanager
def service() -> Iterator[Callable[..., bytes]]:
    """Run the service, with an empty store, CORS and a rate limit.

    Yield a function that sends pieces of a stream and returns what it receives, as `talk` does.
    """
    settings = Settings(
        cors_origins=("https://shop.example",), rate_limit=RateLimit.parse("1000000/s")
    )
    plugin = discovery.find("memory")
    storage = discovery.configure(plugin, {})
    app = create_app(Configuration(settings, plugin, storage, Keys([KEY])))
    repository = plugin.backend.open(storage, Expected())
    with asyncio.Runner() as runner:
        app.state.repository = runner.run(repository.__aenter__())
        connect = connects(app.asgi, partial(HttpConnection, reject=app.reject))
        run = runner.get_loop().run_until_complete
        yield lambda *pieces: run(talk(connect, pieces))
        run(repository.__aexit__(None, None, None))


async def talk(connect: Connect, pieces: Iterable[bytes], *, slow: bool = False) -> bytes:
    """Send these pieces on a new connection; return all that is received until it is closed.

    slow -- whether the client reads slowly
    """
    client = FarEnd(connect, slow=slow)
    for piece in pieces:
        await client.send(piece)
    await client.finish()
    return bytes(client.received)
