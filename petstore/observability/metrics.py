"""The Prometheus metrics of one process.

Imported only where PETSTORE_METRICS_LISTEN is set, and only after `metrics_server.collected`
was entered: the client library decides on import where it stores its counts.
"""

import asyncio
import os
import time
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing import current_process
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

from petstore.config.errors import ConfigurationError
from petstore.contract import Repository
from petstore.observability.output import standard_error
from petstore.observability.processes import process_file

DURATION_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds."""

_SIZES: Final = {
    "counter": 65536,
    "gauge_mostrecent": 65536,
    "gauge_livesum": 65536,
    "gauge_livemin": 65536,
    "histogram": 131072,
}
"""The files of the client library, and their initial size in bytes: more than they ever need."""

_REPEAT_SECONDS: Final = 1


class _Calls:
    """The calls of one method of the storage that are not stored yet: by bucket, and in total."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(DURATION_BUCKETS) + 1)
        self.seconds = 0.0


class Metrics:
    """The metrics of one process; the label ``operation`` is the operation's id, or ``unknown``.

    The counts of one turn of the event loop are stored together: a killed process loses one turn.
    The files are called after the process's name in `multiprocessing`, not after its id: what
    replaces a dead worker has the same name and continues its files, so that none are left over.

    Raises `ConfigurationError` if there is no space for the files.
    """

    def __init__(self, *, read_only: bool) -> None:
        first = True
        if directory := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            name = current_process().name
            first = not Path(directory, f"counter_{name}.db").exists()
            _reserve(directory, name)
            process_file(directory, name).write_text(str(os.getpid()))
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
        self._storage_seconds = Histogram(
            "petstore_storage_duration_seconds",
            "Seconds that a call of the storage took, by its method; also one that failed.",
            ("method",),
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._looked = Gauge(
            "petstore_storage_look_timestamp_seconds",
            "When the store was last seen to be the same; of several workers, the earliest time.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._looked.set_to_current_time()
        read_only_workers = Gauge(
            "petstore_read_only",
            "Workers that refuse writes, because PETSTORE_READ_ONLY is set.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        read_only_workers.set(read_only)
        self._connections = Gauge(
            "petstore_connections",
            "Connections of clients that are open.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._refused = Counter(
            "petstore_refused_requests",
            "Requests refused by a guard or a limit, by the reason and the client.",
            ("reason", "client"),
            registry=registry,
        )
        self._reload_failures = Counter(
            "petstore_key_reload_failures",
            "Reloads of the key file that failed. Each worker reloads it.",
            registry=registry,
        )
        self._keys_stale = Gauge(
            "petstore_keys_stale",
            "Workers that use older keys, because the key file is unusable.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        dropped = Counter(
            "petstore_log_lines_dropped",
            "Log lines that were dropped because standard error was not read.",
            registry=registry,
        )
        standard_error.on_drop = dropped.inc
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._ended: dict[tuple[str, int], list[float]] = {}
        self._begun = 0
        self._calls: dict[str, _Calls] = {}
        self._refusals: Counts[tuple[str, str]] = Counts()

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

    def refuse(self, reason: str, client: str) -> None:
        """Count a request that a guard or a limit refuses; `client` is empty if it is unknown."""
        self._refusals[reason, client] += 1

    def observe_calls(self, repository: Repository) -> Repository:
        """Return a repository that passes calls on and measures how long each takes.

        Whatever methods the contract has are measured.
        """
        methods = Repository.__abstractmethods__
        calls = {name: self._observe_call(name, getattr(repository, name)) for name in methods}
        return cast("Repository", SimpleNamespace(**calls))

    def _observe_call(
        self, method: str, function: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        calls = self._calls[method] = _Calls()
        buckets = calls.buckets

        async def call(*arguments: Any) -> Any:
            begin = perf_counter()
            try:
                return await function(*arguments)
            finally:
                seconds = perf_counter() - begin
                buckets[bisect_left(DURATION_BUCKETS, seconds)] += 1
                calls.seconds += seconds

        return call

    def tick(self, connections: int) -> None:
        """Show how many connections are open; store the counts of calls and of refusals.

        It is called once a second: a killed process loses a second of these, but no request waits
        for them to be stored.
        """
        self._connections.set(connections)
        for method, calls in self._calls.items():
            if any(calls.buckets):
                histogram = self._storage_seconds.labels(method)
                _add(histogram, calls.seconds, calls.buckets)
                calls.buckets[:] = [0] * len(calls.buckets)
                calls.seconds = 0.0
        for (reason, client), number in self._refusals.items():
            self._refused.labels(reason, client).inc(number)
        self._refusals.clear()

    def keys_reloaded(self, succeeded: bool) -> None:  # noqa: FBT001 - it is all that it is told
        """Show whether the last reload of the key file succeeded."""
        if not succeeded:
            self._reload_failures.inc()
        self._keys_stale.set(not succeeded)

    def storage_looked(self) -> None:
        """Show that the store was looked at, and is the same."""
        self._looked.set_to_current_time()

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
            for seconds in durations:
                histogram.observe(seconds)
            begun -= len(durations)
        if begun:
            self._in_flight.inc(begun)


def _add(histogram: Histogram, total: float, buckets: Sequence[int]) -> None:
    """Add what was observed to a histogram: its sum, and how much of it is in which bucket.

    The library offers only `Histogram.observe`, which stores the sum each time. The two attributes
    are private: a test compares the results.
    """
    histogram._sum.inc(total)  # noqa: SLF001 - see above
    for index, count in enumerate(buckets):
        if count:
            histogram._buckets[index].inc(count)  # noqa: SLF001 - see above


def _reserve(directory: str, name: str) -> None:
    """Allocate the files of this process; without space the kernel would kill it later."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        for kind, size in _SIZES.items():
            with Path(directory, f"{kind}_{name}.db").open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise ConfigurationError(
            f"no space for metrics in {directory}: {error.strerror} (PETSTORE_METRICS_LISTEN)"
        ) from None
