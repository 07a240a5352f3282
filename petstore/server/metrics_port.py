"""The address that Prometheus scrapes: a server of its own, with the service's connections.

It returns the sum of the metrics of all worker processes. They write to small shared files, in
memory where the system offers that, so that no count is lost when a worker dies.
"""

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from typing import Any, Final

from petstore.config.addresses import Address
from petstore.config.errors import ConfigurationError
from petstore.server.connection import HttpConnection
from petstore.server.process import SweepingServer
from petstore.server.request_head import HeaderList
from petstore.server.sockets import bind_port, cannot_listen, to_url

_SETTING: Final = "PETSTORE_METRICS_LISTEN"
_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"  # the client library's own name
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private directory is created in it
_PREFIX: Final = "petstore-metrics-"
_CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

MAX_CONNECTIONS: Final = 32
"""How many connections are open at once; for a further one, an idle one is closed."""


App = Callable[[Any, Any, Any], Awaitable[None]]


@contextmanager
def serve_metrics(
    address: Address, build: Mapping[str, str], workers: Mapping[str, int], count: int = 1
) -> Iterator[str]:
    """Serve ``/metrics`` on a port, in one thread, until the block is left; yield its URL.

    build -- the labels of ``petstore_build_info``
    workers -- the ids of the worker processes by name, as they change
    count -- how many worker processes there will be

    Processes started within the block are included. Raises `ConfigurationError` if listening
    fails or the files cannot be created.
    """
    with ExitStack() as stack:
        app = stack.enter_context(_collected(build, workers, count))
        try:
            sock = stack.enter_context(bind_port(address.host, address.port))
            sock.listen()
        except (OSError, UnicodeError) as error:
            raise cannot_listen(address, error, _SETTING) from None
        http = partial(_Connection, reject=_reject)
        server = SweepingServer(app, http, lifespan="off", timeout_graceful_shutdown=1)
        thread = Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        try:
            yield f"{to_url(address.host, sock.getsockname()[1])}/metrics"
        finally:
            server.should_exit = True
            thread.join()


class _Connection(HttpConnection):
    """A connection to the metrics: one of a few."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room by closing the connection that will soon be closed for being idle."""
        super().connection_made(transport)
        connections = self._server.connections
        if len(connections) > MAX_CONNECTIONS:
            idle = [other for other in connections if other.idle_until is not None]
            closed = min(idle, key=lambda other: (other.idle_until, other is self))
            connections.discard(closed)
            closed.transport.abort()


def _reject(message: str, _: HeaderList, __: dict[str, Any] | None) -> tuple[HeaderList, bytes]:
    return [(b"content-type", b"text/plain; charset=utf-8")], f"{message}\n".encode()


@contextmanager
def _collected(build: Mapping[str, str], workers: Mapping[str, int], count: int) -> Iterator[App]:
    """Collect the metrics of processes started within the block; yield what serves ``/metrics``.

    Raises `ConfigurationError` if the files cannot be created.
    """
    with _directory() as directory:
        os.environ[_DIRECTORY] = directory
        # Only now: on import the library decides where it stores its counts.
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        from petstore.observability.collector import ServiceCollector
        from petstore.observability.metrics import count_dropped_lines, reserve

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # it has no types
        registry.register(ServiceCollector(workers, build))

        async def app(scope: Any, _: Any, send: Any) -> None:
            status, body, headers = 200, b"", [(b"content-type", _CONTENT_TYPE)]
            if scope["path"] != "/metrics":
                status = 404
            elif scope["method"] not in ("GET", "HEAD"):
                status = 405
                headers.append((b"allow", b"GET, HEAD"))
            else:
                body = generate_latest(registry)
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        try:
            if count > 1:  # this process serves nothing itself, and logs what happens to workers
                with Path(directory, f"counter_{os.getpid()}.db").open("ab") as own:
                    reserve(directory, own, 65536)  # as much as the client library would
                count_dropped_lines()
            yield app
        finally:
            del os.environ[_DIRECTORY]


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
