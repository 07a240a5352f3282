"""Several worker processes on one socket: started, replaced when one dies, stopped together."""

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

from petstore.config.errors import ConfigurationError
from petstore.config.loading import configure
from petstore.config.settings import Settings
from petstore.contract import StorageError
from petstore.http.app import create_app
from petstore.observability import logs
from petstore.server.process import make_server

RESTART_SECONDS: Final = 1
"""The pause before a dead worker is replaced, so that a failing start does not spin."""

_log = logging.getLogger("petstore")
_context = multiprocessing.get_context("spawn")  # a fork would copy threads and the open storage


class Supervisor:
    """The parent of the workers; it does not serve requests itself.

    environ, flags -- what each worker reads its configuration from
    sock -- the bound socket that all of them share
    settings -- for the number of workers, and whether metrics are on
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
        self._signaled: list[BaseProcess] = []
        self._serving = _context.Semaphore(0)
        self._signals = 0

    def run(self, ready: Callable[[], None]) -> None:
        """Keep the workers running until a signal, then wait for their end.

        ready -- called once all workers serve
        """
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_, self._stop)
        self._processes = [self._start(f"worker-{n}") for n in range(self._workers)]
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
        self._sock.close()  # listening ends when the last worker closes it
        for process in self._processes:
            if process not in self._signaled:  # it was being started when the signal came
                process.terminate()
        for process in self._processes:
            process.join()

    def _start(self, name: str) -> BaseProcess:
        arguments = (*self._arguments, self._serving, os.getpid())
        process = _context.Process(target=work, args=arguments, name=name)
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # inherited: the parent passes it on
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return process

    def _replace_the_dead(self) -> None:
        for index, process in enumerate(self._processes):
            if self._signals or process.is_alive():
                continue
            _log.error(
                "worker %s ended with status %s; replacing it", process.pid, process.exitcode
            )
            if self._metrics:
                from petstore.observability.metrics_server import forget  # noqa: PLC0415 - see metrics_server

                forget(process.name)
            self._processes[index] = self._start(process.name)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Pass a signal on: the first begins the drain, the second ends it."""
        self._signals += 1
        for process in self._processes:
            if process.is_alive():
                process.terminate()
                self._signaled.append(process)


def work(
    environ: Mapping[str, str],
    flags: Mapping[str, str | None],
    sock: socket.socket,
    serving: Semaphore,
    parent: int,
) -> None:
    """Serve as one of several workers, until SIGTERM or until the parent has gone.

    environ, flags, sock -- those of the supervisor
    serving -- released once the worker serves
    parent -- the process id of the supervisor

    Exits with status 1 if it cannot start.
    """
    configuration = configure(environ, flags)
    logs.set_up(configuration.settings.log)
    try:
        app = create_app(
            configuration.settings,
            configuration.plugin,
            configuration.storage,
            configuration.keys,
        )
        running = make_server(app, configuration.settings, serving.release)
        running.parent = parent
        running.run([sock])
    except (StorageError, ConfigurationError) as error:  # the parent tries again
        _log.error("a worker cannot start: %s", error)
        sys.exit(1)
