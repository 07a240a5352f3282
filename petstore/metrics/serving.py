"""Where Prometheus scrapes: the sum of what all worker processes of this service count.

The processes write into small shared files, in memory where the system has a place for that, so
that a worker that dies takes no count with it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from petstore.settings import cannot_listen, split_address, to_url

_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"  # the client library's own name
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private directory is made in it


@contextmanager
def served(listen: str) -> Iterator[str]:
    """Serve ``/metrics`` on ``HOST:PORT`` until the block is left; yield its URL.

    Processes that are started meanwhile count with this one. Raises `ConfigurationError` if the
    address cannot be listened on.
    """
    place = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="petstore-metrics-", dir=place) as directory:
        os.environ[_DIRECTORY] = directory
        # Only now: as it is imported the library decides where it counts.
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415
        from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        host, port = split_address(listen)
        try:
            server, thread = start_http_server(port, host, registry)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(listen, error, "PETSTORE_METRICS_LISTEN") from None
        try:
            yield f"{to_url(host, server.server_port)}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            del os.environ[_DIRECTORY]


def forget(process: int) -> None:
    """Take a process that has ended out of the gauges; what it counted stays."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

    mark_process_dead(process)  # type: ignore[no-untyped-call]
