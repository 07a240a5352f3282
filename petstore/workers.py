"""Several worker processes behind one socket: started, replaced when one dies, stopped together."""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from types import FrameType
from typing import Final

from petstore import log, server
from petstore.app import create_app
from petstore.configuration import configure
from petstore.contract import StorageError
from petstore.settings import ConfigurationError, Settings

RESTART_SECONDS: Final = 1
"""How long a worker that died stays without a successor, so that a failing start does not spin."""

_log = logging.getLogger("petstore")
_context = multiprocessing.get_context("spawn")  # a fork would copy threads and open storage


class Supervisor:
    """The parent of the workers. It serves nothing itself.

    environ, flags -- what each worker makes its configuration of
    sock -- the bound socket that all of them share
    settings -- how many there are, and whether they count for metrics
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        flags: Mapping[str, str | None],
        sock: socket.socket,
        settings: Settings,
    ) -> None:
        self._arguments = (dict(environ), dict(flags), sock)
        self._sock = sock
        self._workers = settings.workers
        self._metrics = bool(settings.metrics_listen)
        self._processes: list[BaseProcess] = []
        self._told: list[BaseProcess] = []
        self._serving = _context.Semaphore(0)
        self._signals = 0

    def run(self, ready: Callable[[], None]) -> None:
        """Keep the workers running until a signal, then until they have ended.

        ready -- called once as many workers as there should be have come to serve
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._processes = [self._start() for _ in range(self._workers)]
        missing = self._workers
        while not self._signals:
            wait(
                [process.sentinel for process in self._processes], timeout=0.05 if missing else 0.5
            )
            while missing and self._serving.acquire(block=False):
                missing -= 1
                if not missing:
                    ready()
            if not self._signals and any(not process.is_alive() for process in self._processes):
                time.sleep(RESTART_SECONDS)
                self._replace_the_dead()
        self._sock.close()  # the last worker to close it ends the listening
        for process in self._processes:
            if process not in self._told:  # the signal came while it was being started
                process.terminate()
        for process in self._processes:
            process.join()

    def _start(self) -> BaseProcess:
        arguments = (*self._arguments, self._serving, os.getpid())
        process = _context.Process(target=work, args=arguments)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: the parent passes on
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return process

    def _replace_the_dead(self) -> None:
        for place, process in enumerate(self._processes):
            if self._signals or process.is_alive():
                continue
            _log.error(
                "worker %s ended with status %s; replacing it", process.pid, process.exitcode
            )
            if self._metrics and process.pid is not None:
                from petstore.metrics.serving import forget  # noqa: PLC0415 - see petstore.metrics

                forget(process.pid)
            self._processes[place] = self._start()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Pass a signal on: the first begins the drain, the second ends it."""
        self._signals += 1
        for process in self._processes:
            if process.is_alive():
                process.terminate()
                self._told.append(process)


def work(
    environ: Mapping[str, str],
    flags: Mapping[str, str | None],
    sock: socket.socket,
    serving: Semaphore,
    parent: int,
) -> None:
    """Serve as one of several workers, until SIGTERM or until the parent has gone.

    environ, flags, sock -- as the supervisor has them
    serving -- released once the worker serves
    parent -- the process id of the supervisor

    Exits with status 1 if it cannot start.
    """
    chosen = configure(environ, flags)
    log.set_up(chosen.settings.log)
    try:
        app = create_app(chosen.settings, chosen.plugin, chosen.storage, chosen.keys)
        running = server.make(app, chosen.settings, serving.release)
        running.parent = parent
        running.run([sock])
    except (StorageError, ConfigurationError) as error:  # the parent tries again
        _log.error("a worker cannot start: %s", error)
        sys.exit(1)
