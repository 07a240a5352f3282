"""Several worker processes on one socket: started, replaced when one dies, stopped together."""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.heap import Arena
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Final, NamedTuple

from msgspec import Struct

from petstore import exit_status
from petstore.config import discovery
from petstore.config.errors import ConfigurationError
from petstore.config.keys import WATCH_SECONDS, Keys
from petstore.config.loading import Configuration
from petstore.config.settings import Settings
from petstore.contract import StorageError
from petstore.http.app import Shared, create_app
from petstore.http.limits import SharedCounters, shared_counters_bytes
from petstore.observability import logs
from petstore.observability.output import standard_error
from petstore.server import sockets
from petstore.server.listener import NOT_LISTENING, Turns
from petstore.server.process import STOP_AT_ONCE, Server, exit_at_once, stop_seconds, thread_errors
from petstore.store.shared import SharedStore, shared_store_bytes

RESTART_SECONDS: Final = 1
"""The pause before a dead worker is replaced, so that a failing start does not spin."""

QUEUE_SECONDS: Final = 5
"""How long connections wait for a worker while none serves; after that they are closed."""

GIVE_UP_SECONDS: Final = 60
"""How long the service keeps running while no worker serves."""

KILL_SECONDS: Final = 0.5
"""How long after the time limit of a stop the parent kills a worker that is still running."""

_log = logging.getLogger("petstore")
_context = multiprocessing.get_context("spawn")  # a fork would copy threads and the open storage


class Memory(NamedTuple):
    """What a worker shares with the others; it survives the worker that writes it.

    arena -- two numbers of each worker for its `Turns`, then a `SharedStore`, then `SharedCounters`
    worker, workers -- which of how many workers this one is
    """

    arena: Arena
    worker: int
    workers: int

    @classmethod
    def create(cls, workers: int) -> "Memory":
        """Return new memory, in no directory: /dev/shm may be read-only, or full."""
        size = 16 * workers + shared_store_bytes(workers) + shared_counters_bytes(workers)
        if sys.platform != "linux":
            return cls(Arena(size), 0, workers)
        fd = os.memfd_create("petstore")
        os.ftruncate(fd, size)
        return cls(Arena(size, fd), 0, workers)

    @property
    def turns(self) -> Turns:
        """What workers tell each other about their connections."""
        numbers = memoryview(self.arena.buffer)[: 16 * self.workers].cast("Q")
        return Turns(numbers[: self.workers], numbers[self.workers :], self.worker)

    @property
    def shared(self) -> Shared:
        """What they know of the store, and write down about clients."""
        rest = memoryview(self.arena.buffer)[16 * self.workers :]
        size, own = shared_store_bytes(self.workers), (self.worker, self.workers)
        return SharedStore(rest[:size], *own), SharedCounters(rest[size:], *own)


class Supervisor:
    """The parent of the workers; it does not serve requests itself.

    configuration -- what to serve; also what replaces a worker years later is sent all of it, with
        the keys that the other workers have by then
    sock -- the bound socket that all of them share
    pids -- is given the process ids of the workers by their names
    """

    def __init__(
        self, configuration: Configuration, sock: socket.socket, pids: dict[str, int]
    ) -> None:
        self._settings = configuration.settings
        self._keys = configuration.keys
        self._arguments = self._settings, configuration.storage, self._keys, sock
        self._sock = sock
        self._pids = pids
        self._memory = Memory.create(self._settings.workers)
        self._processes: list[BaseProcess] = []
        self._reports, self._report = _context.Pipe(duplex=False)
        self._serving: set[int] = set()  # the process ids of the workers that serve
        self._served = time.monotonic()  # when a worker was last seen to serve
        self._announced = False  # whether all have served
        self._reloads = not configuration.dev_key  # otherwise SIGHUP is a stop
        self._signals = 0
        self._stopped = 0.0  # when the first signal came

    def run(self, ready: Callable[[], None]) -> None:
        """Keep the workers running until a signal, then wait for their end.

        ready -- called once all workers serve

        Exits with status 1 if no worker serves for a minute, and if one does not stop properly;
        with that of a configuration error if a worker says so before all of them have served.
        Raises `ConfigurationError` if no process can be started.
        """
        resource_tracker.ensure_running()  # its own start unblocks what `_start` blocks
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_, self._stop)
        if self._reloads or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # by nohup
            signal.signal(signal.SIGHUP, self._pass_on if self._reloads else self._stop)
        try:
            Thread(target=self._keep_keys, daemon=True).start()
            self._processes = [self._start(index) for index in range(self._settings.workers)]
        except (OSError, RuntimeError) as error:  # of these, the one says: can't start new thread
            raise ConfigurationError(
                f"cannot start a worker: {_reason(error)}; check the limits on processes and open"
                " files (ulimit -u, ulimit -n)"
            ) from None
        while not self._signals:
            wait([self._reports, *(process.sentinel for process in self._processes)], timeout=0.5)
            self._update_serving()
            if not self._announced and len(self._serving) == self._settings.workers:
                self._announced = True
                ready()
            dead = [i for i, process in enumerate(self._processes) if not process.is_alive()]
            for index in dead:
                self._memory.turns.connections[index] = NOT_LISTENING  # before the pause
            statuses = {self._processes[index].exitcode for index in dead}
            # Each of them would say the same.
            if not self._announced and exit_status.CONFIGURATION in statuses:
                self._give_up(exit_status.CONFIGURATION)
            if dead and not self._signals:
                time.sleep(RESTART_SECONDS)
                self._replace_dead_workers()
        self._end()

    def _update_serving(self) -> None:
        """Update which workers serve. While none does, let no client wait for long."""
        while self._reports.poll():
            self._serving.add(self._reports.recv())
        self._serving &= {process.pid for process in self._processes if process.is_alive()}
        now = time.monotonic()
        if self._serving:
            self._served = now
        elif now - self._served > GIVE_UP_SECONDS:
            _log.error("no worker could start for %g s: giving up", GIVE_UP_SECONDS)
            self._give_up(1)
        elif now - self._served > QUEUE_SECONDS and self._announced:  # at a start, all wait
            self._sock.setblocking(False)
            with suppress(OSError):  # no connection waits, or no worker has ever listened
                while not self._signals:
                    self._sock.accept()[0].close()

    def _give_up(self, status: int) -> None:
        self._stop(signal.SIGTERM, None)
        self._end()
        sys.exit(status)

    def _keep_keys(self) -> None:
        """Keep the keys that workers have, for one that replaces another."""
        while True:
            with suppress(Exception):  # the workers report it
                self._keys.reload()
            time.sleep(WATCH_SECONDS)

    def _start(self, index: int) -> BaseProcess:
        try:
            Path.cwd()
        except OSError:  # it was deleted; `multiprocessing` cannot do without one
            os.chdir("/")
        self._memory.turns.connections[index] = NOT_LISTENING
        arguments = (*self._arguments, self._memory._replace(worker=index), self._report)
        process = _context.Process(target=work, args=arguments, name=f"worker-{index}")
        # A worker inherits these as blocked. It unblocks SIGTERM as soon as it can handle it, and
        # two of them once it serves: SIGHUP, so that the key file that it has read by then is
        # reloaded, and STOP_AT_ONCE. It never unblocks SIGINT, which a terminal sends to all
        # processes: the parent sends it SIGTERM.
        blocked = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, STOP_AT_ONCE}
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        self._pids[process.name] = process.pid or 0
        return process

    def _replace_dead_workers(self) -> None:
        for index, process in enumerate(self._processes):
            if self._signals or process.is_alive():
                continue
            ended = process.pid, process.exitcode
            try:
                if self._settings.metrics_listen is not None:
                    # Only now: see `metrics_port`. It leaves the gauges; its counters stay.
                    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

                    mark_process_dead(process.name)  # type: ignore[no-untyped-call] # it has no types
                self._processes[index] = self._start(index)
            except Exception as error:  # noqa: BLE001 - such as no more processes: again a second later
                reason = _reason(error)
                _log.error(
                    "worker %s ended with status %s, and cannot be replaced: %s", *ended, reason
                )
            else:
                _log.error("worker %s ended with status %s; replacing it", *ended)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Let the workers stop: the first signal begins the drain, the second ends it."""
        self._stopped = self._stopped or time.monotonic()
        self._signals += 1
        self._report.send(0)  # so that `run` notices at once
        self._stop_workers()

    def _stop_workers(self) -> None:
        self._pass_on(signal.SIGTERM, None)
        if self._signals > 1:
            self._pass_on(STOP_AT_ONCE, None)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        """Pass a signal on to the workers; one that is being started handles it once it serves."""
        for process in self._processes:
            if process.is_alive() and process.pid is not None:
                with suppress(ProcessLookupError):  # `is_alive` was interrupted as it noticed
                    os.kill(process.pid, number)

    def _end(self) -> None:
        """Wait until the workers have ended, but no longer than a stop may take."""
        self._stop_workers()  # one may have been started when the signal came
        while (
            time.monotonic() < self._stopped + self._settings.drain_seconds
            and self._signals < 2
            and any(process.is_alive() for process in self._processes)
        ):
            time.sleep(0.02)
        if self._settings.listen.descriptor is None:
            sockets.refuse(self._sock)  # each worker waits for that, then accepts the rest
        self._sock.close()  # listening ends when the last worker closes it
        end = self._stopped + stop_seconds(self._settings) + KILL_SECONDS
        late = False
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                _log.error("worker %s has not stopped in time; killing it", process.pid)
                process.kill()
                process.join()
                late = True
            elif process.exitcode:
                _log.error("worker %s ended with status %s", process.pid, process.exitcode)
                late |= process.exitcode == 1  # it says that it was late; others were killed
        if late:
            sys.exit(1)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def work(  # noqa: PLR0913, PLR0917 - what a process is given
    settings: Settings,
    storage: Struct,
    keys: Keys,
    sock: socket.socket,
    memory: Memory,
    report: "Connection[int, int]",
) -> None:
    """Serve as one of several workers, until SIGTERM or until the parent has gone.

    settings, storage, keys -- as in `Configuration`
    sock -- that of the supervisor
    memory -- what it shares with the other workers
    report -- is sent the process id once the worker serves

    Exits with `exit_status.UNAVAILABLE` or `CONFIGURATION` if it cannot start.
    """
    signal.signal(signal.SIGTERM, exit_at_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    standard_error.own_terminal()
    logs.set_up(settings.log, settings.log_level)

    def ready() -> None:
        with suppress(OSError):  # the parent has just gone
            report.send(os.getpid())

    try:
        with thread_errors():
            Thread(target=_stop_with_parent, daemon=True).start()
            plugin = discovery.find(settings.backend or "")
            app = create_app(Configuration(settings, plugin, storage, keys), memory.shared)
            Server(app, settings, ready, keys.reload_soon, memory.turns).run([sock])
    except (StorageError, ConfigurationError) as error:  # the parent may try again
        _log.error("a worker cannot start: %s", error)
        wrong = isinstance(error, ConfigurationError)
        sys.exit(exit_status.CONFIGURATION if wrong else exit_status.UNAVAILABLE)


def _stop_with_parent() -> None:
    """Stop when the parent ends, however it does: `Server.shutdown` does not drain then."""
    if (parent := multiprocessing.parent_process()) is not None:
        try:
            parent.join()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
