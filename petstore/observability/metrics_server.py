"""What Prometheus scrapes: the sum of the metrics of all worker processes.

The processes write to small shared files, in memory where the system offers that, so that no
count is lost when a worker dies.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Final

from petstore.config.errors import ConfigurationError

_SETTING: Final = "PETSTORE_METRICS_LISTEN"
_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"  # the client library's own name
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private directory is created in it
_PREFIX: Final = "petstore-metrics-"
_OPENMETRICS: Final = "application/openmetrics-text"

App = Callable[[Any, Any, Any], Awaitable[None]]


@contextmanager
def collected(build: Mapping[str, str]) -> Iterator[App]:
    """Collect the metrics of processes started within the block; yield what serves ``/metrics``.

    build -- the labels of ``petstore_build_info``

    Raises `ConfigurationError` if the files cannot be created.
    """
    with _directory() as directory:
        os.environ[_DIRECTORY] = directory
        # Only now: on import the library decides where it stores its counts.
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder
        from prometheus_client.multiprocess import MultiProcessCollector

        from petstore.observability.processes import ProcessCollector

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # it has no types
        registry.register(ProcessCollector(directory, build))

        async def app(scope: Any, _: Any, send: Any) -> None:
            accepted = b",".join([value for name, value in scope["headers"] if name == b"accept"])
            types = {item.partition(b";")[0].strip() for item in accepted.split(b",")}
            # Without parameters: the library raises TypeError for a version such as 1.x.
            encode, content_type = choose_encoder(
                _OPENMETRICS if _OPENMETRICS.encode() in types else ""
            )
            status, body = (200, encode(registry)) if scope["path"] == "/metrics" else (404, b"")
            headers = [(b"content-type", content_type.encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        try:
            yield app
        finally:
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
    parent = _IN_MEMORY
    try:
        if not os.access(parent, os.W_OK):
            parent = gettempdir()
        for old in Path(parent).glob(f"{_PREFIX}*"):
            _remove_unless_used(old)
        directory = TemporaryDirectory(prefix=_PREFIX, dir=parent)
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
