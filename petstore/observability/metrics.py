"""The Prometheus metrics of one process.

Imported only where PETSTORE_METRICS_LISTEN is set, and only after `metrics_server.serve_metrics`
was entered: the client library decides on import where it stores its counts.
"""

import asyncio
import os
import time
from bisect import bisect_left
from collections import Counter as Counts
from multiprocessing import current_process
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

from petstore.config.errors import ConfigurationError
from petstore.observability.output import standard_error

DURATION_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds."""

_KINDS: Final = ("counter", "gauge_mostrecent", "gauge_livesum", "histogram")
_SIZE: Final = 65536
"""The files of the client library, and their initial size in bytes."""

_REPEAT_SECONDS: Final = 1


class Metrics:
    """The metrics of one process; the label ``operation`` is the operation's id, or ``unknown``.

    The counts of one turn of the event loop are stored together: a killed process loses one turn.
    The files are called after the process's name in `multiprocessing`, not after its id: what
    replaces a dead worker has the same name and continues its files, so that none are left over.

    Raises `ConfigurationError` if there is no space for the files.
    """

    def __init__(self) -> None:
        first = True
        if directory := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            name = current_process().name
            first = not Path(directory, f"{_KINDS[0]}_{name}.db").exists()
            _reserve(directory, name)
            values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call] # it has no types
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
            buckets=DURATION_BUCKETS,
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
        self._writable = Gauge(
            "petstore_storage_writable",
            "Whether the storage accepts writes: 0 from a failed one until an item is created.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        if first:  # what replaces a worker keeps its last value
            self._writable.set(1)
        self._writable_until = 0.0  # then it is set again, to stay the most recent one
        dropped = Counter(
            "petstore_log_lines_dropped",
            "Log lines that were dropped because standard error was not read.",
            registry=registry,
        )
        standard_error.on_drop = dropped.inc
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._ended: dict[tuple[str, int], list[float]] = {}
        self._begun = 0

    def begin(self) -> None:
        """Count a request that has arrived."""
        if not self._begun and not self._ended:
            asyncio.get_running_loop().call_soon(self._flush)
        self._begun += 1

    def end(self, operation: str, status: int, seconds: float) -> None:
        """Count its response and duration."""
        if not self._begun and not self._ended:
            asyncio.get_running_loop().call_soon(self._flush)
        self._ended.setdefault((operation, status), []).append(seconds)

    def storage_failed(self) -> None:
        """Count a request that failed because of the storage."""
        self._failures.inc()

    def storage_took_write(self) -> None:
        """Show that the storage accepts writes."""
        if (now := time.monotonic()) >= self._writable_until:
            self._writable_until = now + _REPEAT_SECONDS
            self._writable.set(1)

    def storage_refused_write(self) -> None:
        """Show that the storage accepts no writes."""
        self._writable_until = 0.0
        self._writable.set(0)

    def _flush(self) -> None:
        """Store the counts of this turn of the event loop."""
        begun, self._begun = self._begun, 0
        ended, self._ended = self._ended, {}
        for (operation, status), durations in ended.items():
            children = self._children.get((operation, status))
            if children is None:  # a lookup in the library takes a microsecond
                children = (
                    self._requests.labels(operation, str(status)),
                    self._seconds.labels(operation),
                )
                self._children[operation, status] = children
            counter, histogram = children
            counter.inc(len(durations))
            observe_all(histogram, durations)
            begun -= len(durations)
        if begun:
            self._in_flight.inc(begun)


def observe_all(histogram: Histogram, amounts: list[float]) -> None:
    """Observe several amounts at once; the same as `Histogram.observe` of each.

    The library offers only the latter, which stores the sum each time. The three attributes are
    private: a test compares the results.
    """
    buckets = Counts(bisect_left(histogram._upper_bounds, amount) for amount in amounts)  # noqa: SLF001 - see above
    histogram._sum.inc(sum(amounts))  # noqa: SLF001 - see above
    for index, count in buckets.items():
        histogram._buckets[index].inc(count)  # noqa: SLF001 - see above


def _reserve(directory: str, name: str) -> None:
    """Allocate the files of this process; without space the kernel would kill it later."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        for kind in _KINDS:
            with Path(directory, f"{kind}_{name}.db").open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, _SIZE)
    except OSError as error:
        raise ConfigurationError(
            f"no space for metrics in {directory}: {error.strerror} (PETSTORE_METRICS_LISTEN)"
        ) from None
