"""The rate limit: how many requests a client may send.

Clients see their rate limit in the headers of draft-ietf-httpapi-ratelimit-headers-11.
"""

from collections.abc import Callable
from hashlib import blake2b
from itertools import chain
from math import ceil, floor
from time import monotonic
from typing import Final, NamedTuple

from petstore.config.keys import MAX_CLIENTS
from petstore.config.settings import RateLimit
from petstore.http.headers import Header

_SLACK: Final = 1e-3  # of a request: differences of large numbers are not exact


class Row(NamedTuple):
    """What is written down about a client: two numbers of each worker, which nobody else writes.

    position, digest -- where the row is, and what identifies its client
    admitted -- how many requests each worker has admitted
    lowest -- the lowest debt that each worker has seen; see `RateLimiter`
    """

    position: int
    digest: int
    admitted: "memoryview[float]"
    lowest: "memoryview[float]"


class SharedCounters:
    """What the workers of a service write down about clients: a hash table in shared memory.

    Rows are never freed, so each name that a key file has had since the start takes one.

    memory -- zeros, as many bytes as `shared_counters_bytes` says
    worker, workers -- which of how many workers this one is
    """

    def __init__(
        self, memory: "bytearray | memoryview[int]", worker: int = 0, workers: int = 1
    ) -> None:
        self.worker = worker
        self._workers = workers
        self._rows = len(memory) // _row_bytes(workers)
        view = memoryview(memory).cast("B")
        self._digests = view[: self._rows * 8].cast("Q")
        self._numbers = view[self._rows * 8 :].cast("d")

    def find(self, client: str) -> Row:
        """Return the row of a client, by its name.

        If all rows are taken, it shares one, and so the quota, with another.
        """
        digests = self._digests
        digest = int.from_bytes(blake2b(client.encode(), digest_size=8).digest()) or 1
        home = digest % self._rows
        for position in chain(range(home, self._rows), range(home)):
            if digests[position] in (0, digest):
                digests[position] = digest
                break
        else:
            position, digest = home, digests[home]
        begin = position * self._workers * 2
        middle, end = begin + self._workers, begin + self._workers * 2
        return Row(position, digest, self._numbers[begin:middle], self._numbers[middle:end])

    def has(self, row: Row) -> bool:
        """Return False if another worker took the row for another client at the same instant."""
        return self._digests[row.position] == row.digest


def shared_counters_bytes(workers: int = 1) -> int:
    """Return the size that has room for twice as many clients as there can be at once.

    It is fixed, because a key file grows while the service runs. Memory that nobody has written to
    costs nothing.
    """
    return 2 * MAX_CLIENTS * _row_bytes(workers)


def _row_bytes(workers: int) -> int:
    return 8 + 16 * workers


class RateLimiter:
    """What each client has left of its quota, counted by all workers together, without a lock.

    It is a token bucket per client, which holds up to `quota` tokens and refills evenly. What the
    workers have admitted, less what was refilled since the clock began, is the client's debt: it
    rises by one with each request, and falls steadily. The bucket was last full when the debt was
    at its lowest; it has lost what the debt has risen since. So each worker writes down how many
    requests it has admitted, and the lowest debt that it has seen.

    Workers that read it at the same instant may admit one request too many each. It is in the debt
    then, so the next ones wait for it.

    counters -- where all workers write that down
    clock -- returns seconds that never go back, the same for all workers
    """

    def __init__(
        self, limit: RateLimit, counters: SharedCounters, clock: Callable[[], float] = monotonic
    ) -> None:
        self._counters = counters
        self._limit = limit
        self._clock = clock
        self._rate = limit.quota / limit.window
        self._rows: dict[str, Row] = {}
        policy = f'"client";q={limit.quota};w={limit.window}'
        self._policy: Header = (b"ratelimit-policy", policy.encode())

    def take(self, client: str) -> tuple[int, tuple[Header, ...]]:
        """Count a request of a client, by its name.

        Return how many seconds to wait, 0 if the request is admitted, and the response headers.
        """
        row = self._rows.get(client)
        if row is None or not self._counters.has(row):
            row = self._rows[client] = self._counters.find(client)
        _, _, admitted, lowest = row
        worker = self._counters.worker
        refilled = self._clock() * self._rate  # before the sum, so that the debt is not too low
        debt = sum(admitted) - refilled
        lowest[worker] = min(lowest[worker], debt)
        tokens = self._limit.quota - (debt - min(lowest)) + _SLACK
        wait = 0
        if tokens >= 1:
            admitted[worker] += 1
            tokens -= 1
        else:
            wait = self._seconds_to_next(tokens)
        reset = self._seconds_to_next(tokens)
        left = (b"ratelimit", b'"client";r=%d;t=%d' % (max(0, int(tokens)), reset))
        return wait, (self._policy, left)

    def _seconds_to_next(self, tokens: float) -> int:
        """Return in how many whole seconds, at least 1, there is one more token than now."""
        return max(1, ceil((floor(tokens) + 1 - tokens) / self._rate))
