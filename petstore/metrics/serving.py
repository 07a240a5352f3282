"""Where Prometheus scrapes: the sum of what all worker processes of this service count.

The processes write into small shared files, in memory where the system has a place for that, so
that a worker that dies takes no count with it.
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

from petstore.settings import ConfigurationError, cannot_listen, split_address, to_url

_SETTING: Final = "PETSTORE_METRICS_LISTEN"
_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"  # the client library's own name
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private directory is made in it
_PREFIX: Final = "petstore-metrics-"

_log = logging.getLogger("petstore")


@contextmanager
def served(listen: str) -> Iterator[str]:
    """Serve ``/metrics`` on ``HOST:PORT`` until the block is left; yield its URL.

    Processes that are started meanwhile count with this one. Raises `ConfigurationError` if the
    address cannot be listened on, or the files have no place.
    """
    with _directory() as directory:
        os.environ[_DIRECTORY] = directory
        # Only now: as it is imported, the library decides where it counts.
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # it has no types
        host, port = split_address(listen)
        try:
            server, thread = start_http_server(port, host, registry)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(listen, error, _SETTING) from None
        server.handle_error = _ignore  # type: ignore[assignment] # it would print a traceback
        try:
            yield f"{to_url(host, server.server_port)}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            del os.environ[_DIRECTORY]


def forget(process: int) -> None:
    """Take a process that has ended out of the gauges; what it counted stays."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(process)  # type: ignore[no-untyped-call] # it has no types


@contextmanager
def _directory() -> Iterator[str]:
    """Make a directory that is locked for as long as it is used, and remove those that are not."""
    place = _IN_MEMORY
    try:
        if not os.access(place, os.W_OK):
            place = gettempdir()
        for old in Path(place).glob(f"{_PREFIX}*"):
            _remove_unless_used(old)
        directory = TemporaryDirectory(prefix=_PREFIX, dir=place)
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"no place for the files of {_SETTING}: {why}") from None
    with directory as name:
        lock = os.open(name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield name
        finally:
            os.close(lock)


def _remove_unless_used(directory: Path) -> None:
    """Remove the directory of a service that was killed; one just made may not be locked yet."""
    with suppress(OSError):  # another's, or gone by now
        if time.time() - directory.stat().st_mtime < 60:
            return
        lock = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
        finally:
            os.close(lock)


def _ignore(*_: object) -> None:
    """Let a scraper go that has closed its connection."""
    _log.debug("a scrape was broken off")
