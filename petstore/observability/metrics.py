"""The Prometheus metrics of one process.

Imported only where PETSTORE_METRICS_LISTEN is set, and only after `metrics_server.serve_metrics`
was entered: the client library decides on import where it stores its counts.
"""

import os
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from petstore.config.errors import ConfigurationError

_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds."""

_KINDS: Final = ("counter", "gauge_livesum", "histogram")
_SIZE: Final = 65536
"""The files of the client library, and their initial size in bytes."""


class Metrics:
    """The metrics of one process; the label ``operation`` is the operation's id, or ``unknown``.

    A request costs about 5 microseconds, a third of them for the histogram.

    Raises `ConfigurationError` if there is no space for the files.
    """

    def __init__(self) -> None:
        _reserve()
        registry = CollectorRegistry()
        self._requests = Counter(
            "petstore_http_requests",
            "Requests that got a response, by operation and status code.",
            ("operation", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "petstore_http_request_duration_seconds",
            "Seconds from the head of a request to the end of its response.",
            ("operation",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "petstore_http_requests_in_flight",
            "Requests in flight.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._failures = Counter(
            "petstore_storage_failures",
            "Requests that failed because of the storage.",
            registry=registry,
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def begin(self) -> None:
        """Count a request that has arrived."""
        self._in_flight.inc()

    def end(self, operation: str, status: int, seconds: float) -> None:
        """Count its response and duration."""
        self._in_flight.dec()
        counter = self._counters.get((operation, status))
        if counter is None:  # a lookup in the library takes a microsecond
            counter = self._requests.labels(operation, str(status))
            self._counters[operation, status] = counter
            self._histograms[operation] = self._seconds.labels(operation)
        counter.inc()
        self._histograms[operation].observe(seconds)

    def storage_failed(self) -> None:
        """Count a request that failed because of the storage."""
        self._failures.inc()


def _reserve() -> None:
    """Allocate the files of this process; without space the kernel would kill it later."""
    directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if directory is None or not hasattr(os, "posix_fallocate"):
        return
    try:
        for kind in _KINDS:
            with Path(directory, f"{kind}_{os.getpid()}.db").open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, _SIZE)
    except OSError as error:
        raise ConfigurationError(
            f"no space for metrics in {directory}: {error.strerror} (PETSTORE_METRICS_LISTEN)"
        ) from None
