"""The Prometheus metrics of one process.

Imported only where PETSTORE_METRICS_LISTEN is set, and only after `metrics_port.serve_metrics`
was entered: the client library decides on import where it stores its counts.
"""

import asyncio
import json
import os
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from multiprocessing import current_process
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import IO, Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.mmap_dict import MmapedDict

from petstore.config.errors import ConfigurationError
from petstore.contract import Repository
from petstore.observability.output import standard_error

DURATION_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds."""

MAX_REFUSED: Final = 500
"""How many pairs of reason and client a worker counts apart: a key file may have 65,536 clients."""

OTHER_CLIENTS: Final = "(other)"
"""The client of all further pairs; no name in a key file begins like this."""

_SIZES: Final = {
    "counter": 196608,  # 280 bytes for each of `MAX_REFUSED`, and 30 KB for all else
    "gauge_mostrecent": 65536,
    "gauge_livesum": 65536,
    "gauge_livemin": 65536,
    "histogram": 131072,
}
"""The files of the client library, and their size in bytes: more than they ever need."""

_REFUSED: Final = "petstore_refused_requests"


class _Durations:
    """What is not stored yet of a histogram: how many durations, by bucket, and their sum."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(DURATION_BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Add one."""
        self.buckets[bisect_left(DURATION_BUCKETS, seconds)] += 1
        self.seconds += seconds

    def store(self, histogram: Histogram) -> int:
        """Add all to a histogram, and forget them; return how many they were.

        The library offers only `Histogram.observe`, which stores the sum for each. The two
        attributes are private: a test compares the results.
        """
        histogram._sum.inc(self.seconds)  # noqa: SLF001 - see above
        for index, count in enumerate(self.buckets):
            if count:
                histogram._buckets[index].inc(count)  # noqa: SLF001 - see above
        number = sum(self.buckets)
        self.buckets[:] = [0] * len(self.buckets)
        self.seconds = 0.0
        return number


class Metrics:
    """The metrics of one process; the label ``operation`` is the operation's id, or ``unknown``.

    The counts of one iteration of the event loop are stored together: a killed process loses one.
    The files are called after the process's name in `multiprocessing`, not after its id: what
    replaces a dead worker has the same name and continues its files, so that none are left over.

    Raises `ConfigurationError` if there is no space for the files.
    """

    def __init__(self, *, read_only: bool) -> None:
        first = True
        self._refused_apart: set[tuple[str, str]] = set()
        if directory := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            name = current_process().name
            counters = Path(directory, f"counter_{name}.db")
            first = not counters.exists()
            for kind, size in _SIZES.items():
                with Path(directory, f"{kind}_{name}.db").open("ab") as file:
                    reserve(directory, file, size)
            self._refused_apart = _find_refused(counters)
            values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call] # it has no types
        registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=DURATION_BUCKETS, registry=registry)
        gauge = partial(Gauge, registry=registry)
        sum_of_workers = partial(gauge, multiprocess_mode="livesum")
        self._requests = counter(
            "petstore_http_requests",
            "Requests with a response, also if the client had left, by operation and status code.",
            ("operation", "status"),
        )
        self._seconds = histogram(
            "petstore_http_request_duration_seconds",
            "Seconds from the head of a request until its response is sent, though not yet read.",
            ("operation",),
        )
        self._in_flight = sum_of_workers("petstore_http_requests_in_flight", "Requests in flight.")
        self._failures = counter(
            "petstore_storage_failures", "Requests that failed because of the storage."
        )
        self._writable = gauge(
            "petstore_storage_writable",
            "Whether the storage accepts writes: 0 from one that failed until one succeeds.",
            multiprocess_mode="mostrecent",
        )
        if first:  # what replaces a worker keeps its last value
            self._writable.set(1)
        self._storage_seconds = histogram(
            "petstore_storage_duration_seconds",
            "Seconds that a call of the storage took, by its method; also one that failed.",
            ("method",),
        )
        self._make_checked = partial(
            gauge,
            "petstore_storage_check_timestamp_seconds",
            "When the store was last seen to be the same; of several workers, the earliest time.",
            multiprocess_mode="livemin",
        )
        read_only_workers = sum_of_workers(
            "petstore_read_only", "Workers that refuse writes, because PETSTORE_READ_ONLY is set."
        )
        read_only_workers.set(read_only)
        self._connections = sum_of_workers(
            "petstore_connections", "Connections of clients that are open."
        )
        self._refused = counter(
            _REFUSED,
            "Requests without a valid key, over the rate limit or refused because of overload.",
            ("reason", "client"),
        )
        self._reload_failures = counter(
            "petstore_key_reload_failures",
            "Reloads of the key file that failed. Each worker reloads it.",
        )
        self._keys_stale = sum_of_workers(
            "petstore_keys_stale", "Workers that use older keys, because the key file is unusable."
        )
        count_dropped_lines()
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._ended: dict[tuple[str, int], _Durations] = {}
        self._begun = 0
        self._calls: dict[str, _Durations] = {}
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
        durations = self._ended.get((operation, status))
        if durations is None:
            durations = self._ended[operation, status] = _Durations()
        durations.add(seconds)

    def reject(self) -> None:
        """Count a malformed request; it has no duration, because its head is unknown."""
        self._requests.labels("unknown", "400").inc()

    def refuse(self, reason: str, client: str) -> None:
        """Count a request that is refused; `client` is empty if it is unknown."""
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
        durations = self._calls[method] = _Durations()

        async def call(*arguments: Any) -> Any:
            begin = perf_counter()
            try:
                return await function(*arguments)
            finally:
                durations.add(perf_counter() - begin)

        return call

    def tick(self, connections: int) -> None:
        """Show how many connections are open; store the counts of calls and of refusals.

        It is called once a second: a killed process loses a second of these, but no request waits
        for them to be stored.
        """
        self._connections.set(connections)
        for method, durations in self._calls.items():
            if any(durations.buckets):
                durations.store(self._storage_seconds.labels(method))
        for refusal, number in self._refusals.items():
            if len(self._refused_apart) < MAX_REFUSED:
                self._refused_apart.add(refusal)
            apart = refusal in self._refused_apart
            reason, client = refusal
            self._refused.labels(reason, client if apart else OTHER_CLIENTS).inc(number)
        self._refusals.clear()

    def keys_reloaded(self, succeeded: bool) -> None:  # noqa: FBT001 - it is all that it is told
        """Show whether the last reload of the key file succeeded."""
        if not succeeded:
            self._reload_failures.inc()
        self._keys_stale.set(not succeeded)

    @cached_property
    def _checked(self) -> Gauge:
        """It does not exist before the store was seen: a worker that cannot start has not."""
        return self._make_checked()

    def storage_checked(self) -> None:
        """Show that the store was checked, and is the same."""
        self._checked.set_to_current_time()

    def storage_failed(self) -> None:
        """Count a request that failed because of the storage."""
        self._failures.inc()

    def storage_writable(self, *, accepts: bool) -> None:
        """Show whether the storage accepts writes."""
        self._writable.set(accepts)  # each time: another worker's may just have been different

    def _flush(self) -> None:
        """Store the counts of this iteration of the event loop."""
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
            number = durations.store(histogram)
            counter.inc(number)
            begun -= number
        if begun:
            self._in_flight.inc(begun)


def count_dropped_lines() -> None:
    """Count the log lines that this process drops."""
    dropped = Counter(
        "petstore_log_lines_dropped",
        "Log lines that were dropped because standard error could not be written.",
        registry=None,
    )
    standard_error.on_drop = dropped.inc


def _find_refused(counters: Path) -> set[tuple[str, str]]:
    """Return the pairs of reason and client in the file of a worker, which this one replaces."""
    found = MmapedDict.read_all_values_from_file(counters)  # type: ignore[no-untyped-call] # it has no types
    series = [json.loads(key) for key, *_ in found]
    return {(of["reason"], of["client"]) for metric, _, of, _ in series if metric == _REFUSED}


def reserve(directory: str, file: IO[bytes], size: int) -> None:
    """Allocate a file of metrics; without space the kernel would kill a process that writes to it.

    Raises `ConfigurationError` if there is no space in the directory.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise ConfigurationError(
            f"no space for metrics in {directory}: {error.strerror} (PETSTORE_METRICS_LISTEN)"
        ) from None
