"""The running process: its socket, its start, its drain and its end."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn

from petstore.app import App
from petstore.protocol import Protocol
from petstore.service import Service
from petstore.settings import Settings, cannot_listen, split_address
from petstore.tracing import traced

KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection is kept: longer than proxies do, so that they close theirs first."""

BACKLOG: Final = 2048
"""How many connections the kernel holds until the service accepts them."""

_log = logging.getLogger("petstore")


class Server(uvicorn.Server):
    """uvicorn's server, with a drain before it closes and an exit status of 0 after a signal.

    config -- uvicorn's own settings
    service -- told that it is draining; asked why opening the storage failed
    drain_seconds -- how long requests are still served after a signal
    ready -- called once the port is open
    parent -- the process id of a worker's parent, without which it stops; None for no worker
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        drain_seconds: float,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._service = service
        self._drain_seconds = drain_seconds
        self._ready = ready
        self.parent: int | None = None

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """Begin to stop at the first SIGTERM or SIGINT; stop at once at the second.

        uvicorn would raise the signal again in the end, and so end with a status of failure. A
        worker leaves SIGINT, which a terminal sends to all, to its parent.
        """
        if self.parent is not None and sig == signal.SIGINT:
            return
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the storage, then the port. Raises what opening the storage raised."""
        try:
            await super().startup(sockets)
        except SystemExit:  # which says nothing: uvicorn's own log is off
            if self._service.failure is not None:
                raise self._service.failure from None
            raise
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, and the parent, every second."""
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Protocol):
                    connection.sweep(now)
            if self.parent is not None and os.getppid() != self.parent:
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ask clients to go for as long as the drain takes, then finish what is under way."""
        self._service.draining = True
        _log.info("stopping: draining for %g s", self._drain_seconds)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._drain_seconds
        while loop.time() < end and not self.force_exit:  # noqa: ASYNC110 - a signal ends it too
            await asyncio.sleep(0.05)
        if self.force_exit:  # uvicorn would leave the lifespan, and so the storage, as it is
            for task in self.server_state.tasks:
                task.cancel()
            self.config.timeout_graceful_shutdown = 0
            self.force_exit = False
        await super().shutdown(sockets)
        _log.info("stopped")


def bind(settings: Settings) -> socket.socket:
    """Return a socket that holds the address to listen at, without listening yet.

    Raises `ConfigurationError` if that cannot be.
    """
    host, port = split_address(settings.listen)
    sock = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, UnicodeError) as error:  # the latter: a name that no host can have
        if sock is not None:
            sock.close()
        raise cannot_listen(settings.listen, error, "PETSTORE_LISTEN or --listen") from None
    return sock


def make(app: App, settings: Settings, ready: Callable[[], None]) -> Server:
    """Return a server for the application; `run([sock])` serves until a signal.

    settings -- how long it drains and shuts down; the address is the socket's
    ready -- called once the port is open
    """
    config = uvicorn.Config(
        traced(app.asgi),
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,  # type: ignore[arg-type] # floats work
    )
    return Server(config, app.service, settings.drain_seconds, ready)
