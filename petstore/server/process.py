"""One serving process: its socket, its start, its drain and its end."""

import _thread
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EMFILE, ENFILE
from functools import partial
from multiprocessing import parent_process
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Final

import uvicorn

from petstore.config.errors import ConfigurationError
from petstore.config.settings import Settings
from petstore.http.app import Application
from petstore.server import sockets as listening
from petstore.server.connection import HttpConnection
from petstore.server.listener import Listener, Turns
from petstore.server.sockets import BACKLOG

HANDSHAKE_SECONDS: Final = 0.1
"""How long a client that is connecting when the port is about to close may still take."""

ACCEPT_SECONDS: Final = 1
"""How long the end of the drain may take: refusing connections, and accepting those that wait."""

CLOSING_SECONDS: Final = 1
"""What is reserved of PETSTORE_SHUTDOWN_SECONDS for closing the storage: this, or half of it."""

STOP_AT_ONCE: Final = signal.SIGUSR1
"""What a parent sends to a worker to end its drain: a group's SIGTERM reaches workers as well."""

_log = logging.getLogger("petstore")


def stop_seconds(settings: Settings) -> float:
    """Return how long a process may take from a signal to its end."""
    return settings.drain_seconds + settings.shutdown_seconds


@contextmanager
def thread_errors() -> Iterator[None]:
    """Raise `ConfigurationError` where no further thread can be started."""
    try:
        yield
    except RuntimeError as error:
        if "new thread" not in str(error):
            raise
        raise ConfigurationError(f"{error}: raise the limit on processes (ulimit -u)") from None


def exit_at_once(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM before anything is served: every storage survives an exit at any moment."""
    os._exit(0)


class SweepingServer(uvicorn.Server):
    """uvicorn's server, which checks its connections once a second.

    app, http -- what to serve, and what returns the protocol of a new connection
    more -- further settings of uvicorn

    An error of a check is logged, and the next one is made nevertheless.
    """

    def __init__(self, app: Any, http: Callable[..., asyncio.Protocol], **more: Any) -> None:
        config = uvicorn.Config(
            app,
            http=http,  # type: ignore[arg-type] # any callable works
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            **more,
        )
        super().__init__(config)
        self._failing = False

    async def on_tick(self, counter: int) -> bool:
        """Disconnect clients that are too slow."""
        if counter % 10 == 0:
            self._sweep_again()
        return await super().on_tick(counter)

    def _sweep_again(self) -> None:
        """Call `sweep`. Of errors that follow each other, log the first."""
        try:
            self.sweep()
        except Exception:  # noqa: BLE001 - without checks, slow clients would hold all there is
            if not self._failing:
                _log.exception("connections cannot be checked")
            self._failing = True
        else:
            self._failing = False

    def sweep(self) -> None:
        """Disconnect clients that are too slow."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpConnection):
                connection.sweep(now)


class Server(SweepingServer):
    """uvicorn's server, with a drain before it closes, and exit status 0 after a signal.

    Its `run([sock])` serves until a signal. A stop has a time limit. If it is exceeded, whatever is
    waited for, the process ends with status 1.

    app -- what to serve; `draining` is set in its state, and the `startup_error` there is raised
    settings -- how long requests are still served after a signal, and the time limit; the address
        is that of the socket
    ready -- called once the port is open
    reload -- called at SIGHUP; None if that is a stop, like SIGTERM
    turns -- what several workers tell each other; None if there is one
    """

    def __init__(
        self,
        app: Application,
        settings: Settings,
        ready: Callable[[], None],
        reload: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        http = partial(
            HttpConnection,
            reject=app.reject,
            keep_alive=settings.keep_alive_seconds,
            unread=app.state.shares.unread,
        )
        super().__init__(app.asgi, http, lifespan="on", backlog=BACKLOG)
        self._state = app.state
        self._tick = app.tick
        self._settings = settings
        self._ready = ready
        self._reload = reload
        # `Listener` needs epoll. The event loop's own accepts one connection per iteration, so that
        # new clients wait for seconds while many busy ones are served.
        self._turns = (turns or Turns([0], [0], 0)) if sys.platform == "linux" else None
        self._listener: Listener | None = None
        self._signaled = 0.0  # when the first signal came
        self._unsignaled = _thread.allocate_lock()  # held until then
        self._out_of_files = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop at the first SIGTERM or SIGINT; stop at once at the second.

        A worker gets SIGTERM from its parent, and may get it from what stops all processes. So it
        counts these as one: its parent knows which signal is the second, and says so.

        uvicorn would raise the signal again at the end, and so exit with a failure status.
        """
        if not self.started:
            exit_at_once(sig, frame)
        first = not self.should_exit
        self.should_exit = True
        if sig == STOP_AT_ONCE or not (first or parent_process()):
            self.force_exit = True
        if first:
            self._signaled = time.monotonic()
            self._unsignaled.release()

    def _end_in_time(self) -> None:
        """End the process when the time for its stop is over. A normal end comes before."""
        self._unsignaled.acquire()
        limit = stop_seconds(self._settings)
        time.sleep(limit)
        # In a thread, because the log may be what the stop waits for.
        line = Thread(
            target=_log.error,
            args=(
                "still running %g s after the signal: exiting without closing the storage",
                limit,
            ),
            daemon=True,
        )
        try:
            line.start()
            line.join(0.2)
        finally:
            os._exit(1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the storage, then the port. Raises whatever opening the storage raised."""
        self._loop = asyncio.get_running_loop()
        if current_thread() is main_thread():  # Python handles signals only there
            self._unsignaled.acquire()
            _thread.start_new_thread(self._end_in_time, ())  # at the signal there may be none left
        try:
            await super().startup(sockets if self._turns is None else [])
        except SystemExit:  # without a message: uvicorn's own log is off
            if self._state.startup_error is not None:
                raise self._state.startup_error from None
            raise
        if self._turns is not None and sockets:
            self._listener = self._take_turns(sockets[0], self._turns)
        if current_thread() is main_thread():
            # What there is now stays: full collections need not traverse it, which takes 28 ms.
            gc.freeze()
            if self._reload or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # by nohup
                signal.signal(signal.SIGHUP, self._hang_up)
            if parent_process() is not None:
                signal.signal(STOP_AT_ONCE, self.handle_exit)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP, STOP_AT_ONCE})
        self._ready()

    def _take_turns(self, sock: socket.socket, turns: Turns) -> Listener:
        def make_connection() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg] # see `SweepingServer`
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                closed=listener.closed,
            )

        listener = Listener(sock, turns, make_connection)
        try:
            listener.start()
        except OSError as error:  # another program has begun to listen since the port was bound
            setting = "PETSTORE_LISTEN or --listen"
            raise listening.cannot_listen(self._settings.listen, error, setting) from None
        self.servers = [listener]  # type: ignore[list-item] # uvicorn closes it
        return listener

    def _hang_up(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGHUP: reload; or stop, if it means that the terminal of --dev was closed."""
        if self._reload is None:
            self.handle_exit(sig, frame)
        else:
            self._loop.call_soon_threadsafe(self._reload)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections gracefully during the drain, then finish the requests in flight."""
        self._state.draining = True
        if self._listener is not None:
            self._listener.leave()
        drain = 0 if _is_orphan() else self._settings.drain_seconds  # a successor needs the port
        _log.info("stopping: draining for %g s", drain)
        sweeper = asyncio.create_task(self._keep_sweeping())  # there are no more ticks
        end = (self._signaled or time.monotonic()) + drain
        while time.monotonic() < end and not (self.force_exit or _is_orphan()):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.05)
        if not self.force_exit:
            for sock in sockets or ():
                await self._accept_rest(sock, refuse=parent_process() is None or _is_orphan())
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

    async def _accept_rest(self, sock: socket.socket, *, refuse: bool) -> None:
        """Accept all that have connected: when the socket closes, the kernel resets the others.

        refuse -- whether this process has to refuse new connections; otherwise its parent does
        """
        if self._settings.listen.descriptor is not None:
            return  # it stays open: the process that has it next accepts them
        end = time.monotonic() + ACCEPT_SECONDS
        if refuse:
            listening.refuse(sock)
        elif self._settings.listen.path is None:
            await _until(lambda: listening.refuses(sock), end)
        await asyncio.sleep(HANDSHAKE_SECONDS)
        listener = self._listener
        await _until(
            lambda: not (listener.is_waited_for if listener else listening.has_connection(sock)),
            end,
        )

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._sweep_again()

    def sweep(self) -> None:
        """Disconnect clients that are too slow. Report when the limit on open files is reached.

        Neither `Listener` nor the event loop reports it: they accept the connections beyond the
        limit and close them at once.
        """
        out_of_files = False
        try:
            os.close(os.dup(2))
        except OSError as error:
            out_of_files = error.errno in (EMFILE, ENFILE)
        else:
            if self._listener is not None:
                self._listener.check()
                out_of_files = self._listener.full
        if out_of_files and not self._out_of_files:
            _log.error("out of file descriptors (ulimit -n): cannot serve new connections")
        elif self._out_of_files and not out_of_files:
            _log.info("file descriptors are available again")
        self._out_of_files = out_of_files
        try:
            super().sweep()
        finally:  # the counts of all else are stored nevertheless
            self._tick(len(self.server_state.connections))


def _is_orphan() -> bool:
    """Return whether this is a worker whose parent has gone."""
    parent = parent_process()
    return parent is not None and not parent.is_alive()


async def _until(holds: Callable[[], bool], end: float) -> None:
    """Wait until a condition of the kernel holds, or until a time of the monotonic clock."""
    while not holds() and time.monotonic() < end:  # noqa: ASYNC110 - the kernel sets no event
        await asyncio.sleep(0.01)
