"""What is counted of requests, in this process."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds in seconds: from an answer out of memory to one that a client waited long for."""


class Metrics:
    """The metrics of one process; the label ``operation`` is the operation's id, or ``unknown``.

    A request costs about 4 microseconds, most of it the histogram.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._requests = Counter(
            "petstore_http_requests",
            "Requests answered.",
            ("operation", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "petstore_http_request_duration_seconds",
            "Seconds from a request's head to the end of its answer.",
            ("operation",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "petstore_http_requests_in_flight",
            "Requests under way.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._failures = Counter(
            "petstore_storage_failures",
            "Requests that the storage failed.",
            registry=registry,
        )
        self._counters: dict[tuple[str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def begin(self) -> None:
        """Count a request that has come."""
        self._in_flight.inc()

    def end(self, operation: str, status: int, seconds: float) -> None:
        """Count its answer; status 0 is none, for the client had gone."""
        self._in_flight.dec()
        counter = self._counters.get((operation, status))
        if counter is None:  # the library takes a microsecond to find it
            counter = self._requests.labels(operation, str(status))
            self._counters[operation, status] = counter
            self._histograms[operation] = self._seconds.labels(operation)
        counter.inc()
        self._histograms[operation].observe(seconds)

    def storage_failed(self) -> None:
        """Count a request that the storage failed."""
        self._failures.inc()
