"""One serving process: its socket, its start, its drain and its end."""

import _thread
import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from errno import EMFILE, ENFILE
from functools import partial
from multiprocessing import parent_process
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Final

import uvicorn

from petstore.config.settings import Settings
from petstore.http.app import Application
from petstore.http.state import ServiceState
from petstore.server.connection import HttpConnection
from petstore.server.sockets import BACKLOG

CLOSING_SECONDS: Final = 1
"""What is reserved of PETSTORE_SHUTDOWN_SECONDS for closing the storage: this, or half of it."""

_log = logging.getLogger("petstore")


def stop_seconds(settings: Settings) -> float:
    """Return how long a process may take from a signal to its end."""
    return settings.drain_seconds + max(settings.shutdown_seconds, CLOSING_SECONDS)


def exit_at_once(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM before anything is served: every storage survives an exit at any moment."""
    os._exit(0)


class Server(uvicorn.Server):
    """uvicorn's server, with a drain before it closes, and exit status 0 after a signal.

    A stop has a time limit. If it is exceeded, whatever is waited for, the process ends with
    status 1.

    config -- uvicorn's own settings
    state -- its `draining` is set here; its `startup_error` is raised
    settings -- how long requests are still served after a signal, and the time limit
    ready -- called once the port is open
    reload -- called at SIGHUP; None if that is a stop, like SIGTERM
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServiceState,
        settings: Settings,
        ready: Callable[[], None],
        reload: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._state = state
        self._settings = settings
        self._ready = ready
        self._reload = reload
        self._signaled = 0.0  # when the first signal came
        self._out_of_files = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop at the first SIGTERM or SIGINT; stop at once at the second.

        uvicorn would raise the signal again at the end, and so exit with a failure status.
        """
        if not self.started:
            exit_at_once(sig, frame)
        self.force_exit = self.should_exit
        self.should_exit = True
        if not self.force_exit:
            self._signaled = time.monotonic()
            # Not `Thread`: it takes a lock that the interrupted code may hold.
            _thread.start_new_thread(self._end_in_time, ())

    def _end_in_time(self) -> None:
        """End the process when the time for its stop is over. A normal end comes before."""
        limit = stop_seconds(self._settings)
        time.sleep(limit)
        message = "still running %g s after the signal: exiting without closing the storage"
        # In a thread, because the log may be what the stop waits for.
        line = Thread(target=_log.error, args=(message, limit), daemon=True)
        line.start()
        line.join(0.2)
        os._exit(1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the storage, then the port. Raises whatever opening the storage raised."""
        self._loop = asyncio.get_running_loop()
        try:
            await super().startup(sockets)
        except SystemExit:  # without a message: uvicorn's own log is off
            if self._state.startup_error is not None:
                raise self._state.startup_error from None
            raise
        if current_thread() is main_thread():  # Python handles signals only there
            signal.signal(signal.SIGHUP, self._hang_up)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked in a worker
        self._ready()

    def _hang_up(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGHUP: reload; or stop, if it means that the terminal of --dev was closed."""
        if self._reload is None:
            self.handle_exit(sig, frame)
        else:
            self._loop.call_soon_threadsafe(self._reload)

    async def on_tick(self, counter: int) -> bool:
        """Check the connections every second."""
        if counter % 10 == 0:
            self._sweep()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections gracefully during the drain, then finish the requests in flight."""
        self._state.draining = True
        parent = parent_process()
        orphaned = parent is not None and not parent.is_alive()  # its successor needs the port
        drain = 0 if orphaned else self._settings.drain_seconds
        _log.info("stopping: draining for %g s", drain)
        sweeper = asyncio.create_task(self._keep_sweeping())  # there are no more ticks
        end = (self._signaled or time.monotonic()) + drain
        while time.monotonic() < end and not self.force_exit:  # noqa: ASYNC110 - a signal ends it too
            await asyncio.sleep(0.05)
        seconds = self._settings.shutdown_seconds
        left = end + max(seconds - CLOSING_SECONDS, seconds / 2) - time.monotonic()
        self.config.timeout_graceful_shutdown = max(0.0, left)  # type: ignore[assignment] # floats work
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
        """Disconnect clients that are too slow. Report when the limit on open files is reached.

        The event loop does not report it: it accepts the connections beyond the limit and closes
        them at once.
        """
        out_of_files = False
        try:
            os.close(os.dup(2))
        except OSError as error:
            out_of_files = error.errno in (EMFILE, ENFILE)
        if out_of_files and not self._out_of_files:
            _log.error("out of file descriptors (ulimit -n): closing new connections")
        elif self._out_of_files and not out_of_files:
            _log.info("file descriptors are available again")
        self._out_of_files = out_of_files
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.sweep(now)


def make_server(
    app: Application,
    settings: Settings,
    ready: Callable[[], None],
    reload: Callable[[], None] | None = None,
) -> Server:
    """Return a server for the application; its `run([sock])` serves until a signal.

    settings -- the durations of drain and shutdown; the address is that of the socket
    ready -- called once the port is open
    reload -- called at SIGHUP; None if that is a stop, like SIGTERM
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
    )
    return Server(config, app.state, settings, ready, reload)
