"""How much a client may ask, and how much may be under way: guards behind the one for keys.

What a client has left is told in the fields of draft-ietf-httpapi-ratelimit-headers-11.
"""

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Guard
from msgspec import Struct

from petstore.errors import ApiError, Code, unavailable
from petstore.headers import Field

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_ENOUGH: Final = 1 - 1e-9  # of a request: sums of fractions are not exact
_SLOT: Final = "slot"


class RateLimit(Struct, frozen=True):
    """So many requests (quota) in so many seconds (window)."""

    quota: int
    window: int

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        """Return the limit of a setting: a number of requests per s, m or h, such as ``100/s``."""
        quota, unit = text.split("/")
        return cls(int(quota), _SECONDS[unit])


class _Bucket(Struct):
    left: float
    at: float


class Limiter:
    """What every client of this process has left of its quota.

    A bucket a client holds as many requests as the quota and fills up evenly (a token bucket). It
    stays as long as the process: there are as many as there are names of clients.

    clock -- returns seconds that never go back
    """

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._rate = limit.quota / limit.window
        self._buckets: dict[str, _Bucket] = {}
        policy = f'"client";q={limit.quota};w={limit.window}'
        self._policy: Field = (b"ratelimit-policy", policy.encode())

    def take(self, client: str) -> tuple[int, list[Field]]:
        """Count a request of a client, known by its name.

        Return 0, or the seconds to wait where nothing is left, and the header fields that tell.
        """
        now = self._clock()
        quota = self._limit.quota
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = _Bucket(quota, now)
        bucket.left = min(quota, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        wait = 0
        if bucket.left >= _ENOUGH:
            bucket.left = max(0.0, bucket.left - 1)
        else:
            wait = self._seconds_to_next(bucket.left)
        left = int(bucket.left)
        tell = b'"client";r=%d;t=%d' % (left, self._seconds_to_next(bucket.left))
        return wait, [self._policy, (b"ratelimit", tell)]

    def _seconds_to_next(self, left: float) -> int:
        """Return the whole seconds until one request more than now may be sent, at least 1."""
        return max(1, ceil((int(left) + 1 - left) / self._rate))


def rate_guard(limiter: Limiter) -> Guard:
    """Return the guard that holds the rate limit; it comes after the one that finds the client.

    It leaves header fields for the answer in ``scope["rate_limit"]`` and raises `ApiError` (429,
    RFC 6585, section 4) where nothing is left.
    """

    async def keep_rate(connection: ASGIConnection, _: BaseRouteHandler) -> None:  # type: ignore[type-arg] # any
        wait, connection.scope["rate_limit"] = limiter.take(connection.scope["auth"])  # type: ignore[typeddict-unknown-key] # ours
        if wait:
            raise ApiError(
                Code.RATE_LIMITED,
                "Too many requests with this API key. Wait for the seconds that Retry-After says.",
                {"retry-after": str(wait)},
            )

    return keep_rate


class InFlight:
    """The requests that this process may work on at once.

    most -- how many these are; the next one is refused
    """

    def __init__(self, most: int) -> None:
        self._free = most

    def enter(self) -> None:
        """Take a place. Raises `ApiError` (503) where none is free."""
        if not self._free:
            raise unavailable("Too many requests are under way.")
        self._free -= 1

    def leave(self) -> None:
        """Give a place back."""
        self._free += 1


def in_flight_guard(in_flight: InFlight) -> Guard:
    """Return the guard that takes a place for a request; `leave` gives it back.

    It comes last: who is refused for another reason takes none.
    """

    async def enter(connection: ASGIConnection, _: BaseRouteHandler) -> None:  # type: ignore[type-arg] # any
        in_flight.enter()
        connection.scope[_SLOT] = in_flight  # type: ignore[typeddict-unknown-key] # ours

    return enter


def leave(scope: Any) -> None:
    """Give back the place that a request has, if it has one.

    That is when its answer is ready: a client that reads slowly holds none.
    """
    if (in_flight := scope.pop(_SLOT, None)) is not None:
        in_flight.leave()
