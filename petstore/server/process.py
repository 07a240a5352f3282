"""One serving process: its socket, its start, its drain and its end."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Final

import uvicorn

from petstore.config.addresses import cannot_listen, split_address
from petstore.config.settings import Settings
from petstore.http.app import Application
from petstore.http.state import ServiceState
from petstore.server.connection import HttpConnection

BACKLOG: Final = 2048
"""How many connections the kernel queues until the service accepts them."""

_log = logging.getLogger("petstore")


class Server(uvicorn.Server):
    """uvicorn's server, with a drain before it closes, and exit status 0 after a signal.

    config -- uvicorn's own settings
    state -- its `draining` is set here; its `startup_error` is raised
    drain_seconds -- how long requests are still served after a signal
    ready -- called once the port is open
    parent -- the process id of a worker's parent, with which it stops; None outside a worker
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServiceState,
        drain_seconds: float,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._state = state
        self._drain_seconds = drain_seconds
        self._ready = ready
        self.parent: int | None = None

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """Begin to stop at the first SIGTERM or SIGINT; stop at once at the second.

        uvicorn would raise the signal again at the end, and so exit with a failure status. A
        worker ignores SIGINT, which a terminal sends to all processes: its parent handles it.
        """
        if self.parent is not None and sig == signal.SIGINT:
            return
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the storage, then the port. Raises whatever opening the storage raised."""
        try:
            await super().startup(sockets)
        except SystemExit:  # without a message: uvicorn's own log is off
            if self._state.startup_error is not None:
                raise self._state.startup_error from None
            raise
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Check the connections, and the parent, every second."""
        if counter % 10 == 0:
            self._sweep()
            if self.parent is not None and os.getppid() != self.parent:
                self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections gracefully during the drain, then finish the requests in flight."""
        self._state.draining = True
        _log.info("stopping: draining for %g s", self._drain_seconds)
        sweeper = asyncio.create_task(self._keep_sweeping())  # there are no more ticks
        loop = asyncio.get_running_loop()
        end = loop.time() + self._drain_seconds
        while loop.time() < end and not self.force_exit:  # noqa: ASYNC110 - a signal ends it too
            await asyncio.sleep(0.05)
        if self.force_exit:  # uvicorn would skip the end of the lifespan, which closes the storage
            for task in self.server_state.tasks:
                task.cancel()
            self.config.timeout_graceful_shutdown = 0
            self.force_exit = False
        await super().shutdown(sockets)
        if self.force_exit:  # by a signal in the meantime
            await self.lifespan.shutdown()
        sweeper.cancel()
        _log.info("stopped")

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._sweep()

    def _sweep(self) -> None:
        """Disconnect clients that are too slow."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.sweep(now)


def bind(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address in the settings, but does not listen yet.

    Raises `ConfigurationError` if that fails.
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
    except (OSError, UnicodeError) as error:  # the latter: an invalid host name
        if sock is not None:
            sock.close()
        raise cannot_listen(settings.listen, error, "PETSTORE_LISTEN or --listen") from None
    return sock


def make_server(app: Application, settings: Settings, ready: Callable[[], None]) -> Server:
    """Return a server for the application; its `run([sock])` serves until a signal.

    settings -- the durations of drain and shutdown; the address is that of the socket
    ready -- called once the port is open
    """
    config = uvicorn.Config(
        app.asgi,
        http=partial(HttpConnection, reject=app.reject),  # type: ignore[arg-type] # any callable works
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=settings.shutdown_seconds,  # type: ignore[arg-type] # floats work
    )
    return Server(config, app.state, settings.drain_seconds, ready)
