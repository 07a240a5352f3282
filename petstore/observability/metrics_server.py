"""The address that Prometheus scrapes: the sum of the metrics of all worker processes.

The processes write to small shared files, in memory where the system offers that, so that no
count is lost when a worker dies.
"""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from petstore.config.addresses import cannot_listen, split_address, to_url
from petstore.config.errors import ConfigurationError

_SETTING: Final = "PETSTORE_METRICS_LISTEN"
_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"  # the client library's own name
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private directory is created in it
_PREFIX: Final = "petstore-metrics-"

_log = logging.getLogger("petstore")


@contextmanager
def serve_metrics(listen: str) -> Iterator[str]:
    """Serve ``/metrics`` on ``HOST:PORT`` until the block is left; yield its URL.

    Processes started within the block are included. Raises `ConfigurationError` if listening
    fails or the files cannot be created.
    """
    with _directory() as directory:
        os.environ[_DIRECTORY] = directory
        # Only now: on import the library decides where it stores its counts.
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # it has no types
        host, port = split_address(listen)
        try:
            server, thread = start_http_server(port, host, registry)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(listen, error, _SETTING) from None
        server.handle_error = _ignore  # type: ignore[assignment] # the default prints a traceback
        try:
            yield f"{to_url(host, server.server_port)}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            del os.environ[_DIRECTORY]


def forget(name: str) -> None:
    """Remove an ended process from the gauges; its counters stay.

    name -- that of the process in `multiprocessing`; the process that replaces it has the same one
    """
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(name)  # type: ignore[no-untyped-call] # it has no types


@contextmanager
def _directory() -> Iterator[str]:
    """Create a directory that is locked while in use; remove those that are not in use."""
    place = _IN_MEMORY
    try:
        if not os.access(place, os.W_OK):
            place = gettempdir()
        for old in Path(place).glob(f"{_PREFIX}*"):
            _remove_unless_used(old)
        directory = TemporaryDirectory(prefix=_PREFIX, dir=place)
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"cannot create the files of {_SETTING}: {why}") from None
    with directory as name:
        lock = os.open(name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield name
        finally:
            os.close(lock)


def _remove_unless_used(directory: Path) -> None:
    """Remove the directory of a killed service; a new one may not be locked yet."""
    with suppress(OSError):  # it belongs to another user, or is gone
        if time.time() - directory.stat().st_mtime < 60:
            return
        lock = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
        finally:
            os.close(lock)


def _ignore(*_: object) -> None:
    """Ignore a scraper that has closed its connection."""
    _log.debug("a scraper closed its connection early")
