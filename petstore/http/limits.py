"""Limits on requests: how many a client may send, and how many may be in flight at once.

Clients see their rate limit in the headers of draft-ietf-httpapi-ratelimit-headers-11.
"""

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Any, Final

from msgspec import Struct

from petstore.http.errors import ApiError, ErrorCode, unavailable
from petstore.http.guards import ScopeGuard
from petstore.http.headers import Header

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_ONE_REQUEST: Final = 1 - 1e-9  # sums of fractions are not exact


class RateLimit(Struct, frozen=True):
    """A number of requests (quota) within a number of seconds (window)."""

    quota: int
    window: int

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        """Return the limit of a setting: a number of requests per s, m or h, such as ``100/s``."""
        quota, unit = text.split("/")
        return cls(int(quota), _SECONDS[unit])


class _Bucket(Struct):
    tokens: float
    updated: float


class RateLimiter:
    """What each client of this process has left of its quota.

    It is a token bucket per client, which holds up to `quota` tokens and refills evenly. Buckets
    are kept until the process ends; there are as many as there are names of clients.

    clock -- returns seconds that never go back
    """

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._rate = limit.quota / limit.window
        self._buckets: dict[str, _Bucket] = {}
        policy = f'"client";q={limit.quota};w={limit.window}'
        self._policy: Header = (b"ratelimit-policy", policy.encode())

    def take(self, client: str) -> tuple[int, list[Header]]:
        """Count a request of a client, by its name.

        Return how many seconds to wait, 0 if the request is admitted, and the response headers.
        """
        now = self._clock()
        quota = self._limit.quota
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = _Bucket(quota, now)
        bucket.tokens = min(quota, bucket.tokens + (now - bucket.updated) * self._rate)
        bucket.updated = now
        wait = 0
        if bucket.tokens >= _ONE_REQUEST:
            bucket.tokens = max(0.0, bucket.tokens - 1)
        else:
            wait = self._seconds_to_next(bucket.tokens)
        reset = self._seconds_to_next(bucket.tokens)
        return wait, [
            self._policy,
            (b"ratelimit", b'"client";r=%d;t=%d' % (int(bucket.tokens), reset)),
        ]

    def _seconds_to_next(self, tokens: float) -> int:
        """Return in how many whole seconds, at least 1, there is one more token than now."""
        return max(1, ceil((int(tokens) + 1 - tokens) / self._rate))


def rate_guard(limiter: RateLimiter) -> ScopeGuard:
    """Return the guard that applies the rate limit; the guard that sets the client comes first.

    It leaves the response headers in ``scope["rate_limit"]`` and raises `ApiError` (429, RFC 6585,
    section 4) if the quota is used up.
    """

    def limit_rate(scope: Any) -> None:
        wait, scope["rate_limit"] = limiter.take(scope["auth"])
        if wait:
            raise ApiError(
                ErrorCode.RATE_LIMITED,
                "Too many requests with this API key. Wait as long as Retry-After says.",
                {"retry-after": str(wait)},
            )

    return ScopeGuard(limit_rate)


SMALL_BODY_BYTES: Final = 65536
"""Bodies up to this size are not counted: the slots bound them."""

LARGE_BODIES_BYTES: Final = 64 * 1024 * 1024
"""The total size of the larger bodies in flight, in bytes; more if a single one may be larger."""


class InFlight:
    """The slots of the requests that are in flight in this process, and the size of their bodies.

    slots -- how many requests may be in flight at once
    max_body_bytes -- the maximum size of one body
    """

    def __init__(self, slots: int, max_body_bytes: int) -> None:
        self._free = slots
        self._free_bytes = max(LARGE_BODIES_BYTES, max_body_bytes)

    def acquire(self) -> None:
        """Acquire a slot. Raises `ApiError` (503) if none is free."""
        if not self._free:
            raise unavailable("Too many requests in flight.")
        self._free -= 1

    def release(self) -> None:
        """Release a slot."""
        self._free += 1

    def acquire_bytes(self, size: int) -> None:
        """Acquire memory for a large body. Raises `ApiError` (503) if there is not enough."""
        if size > self._free_bytes:
            raise unavailable("Too many large request bodies in flight.")
        self._free_bytes -= size

    def release_bytes(self, size: int) -> None:
        """Release memory."""
        self._free_bytes += size


def in_flight_guard(in_flight: InFlight) -> ScopeGuard:
    """Return the guard that acquires a slot for a request; `release` releases it.

    It is the last guard, so that a request that another guard refuses needs no slot.
    """

    def acquire(scope: Any) -> None:
        in_flight.acquire()
        scope["slot"] = in_flight

    return ScopeGuard(acquire)


def release(scope: Any) -> None:
    """Release the slot that a request holds, if it holds one.

    This happens when the response starts: a client that reads slowly holds no slot.
    """
    if (in_flight := scope.pop("slot", None)) is not None:
        in_flight.release()
