"""The rate limit: how many requests a client may send to one worker process.

A bucket a client holds as many requests as the quota and fills up evenly (a token bucket). What
is left is told in the header fields of draft-ietf-httpapi-ratelimit-headers-11.
"""

import re
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler
from litestar.types import Guard
from msgspec import Struct

from petstore.errors import ApiError, Code

PATTERN: Final = r"([1-9][0-9]{0,8})/([smh])"
"""How a limit is written: a number of requests per second, minute or hour."""

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}

Field = tuple[bytes, bytes]


class RateLimit(Struct, frozen=True):
    """So many requests (quota) in so many seconds (window)."""

    quota: int
    window: int

    @classmethod
    def parse(cls, text: str) -> "RateLimit":
        """Return the limit that is written like ``100/s``. Raises `ValueError` if it is not."""
        match = re.fullmatch(PATTERN, text)
        if match is None:
            raise ValueError(f"no rate limit: {text!r}")
        return cls(int(match[1]), _SECONDS[match[2]])


class _Bucket(Struct):
    left: float
    at: float


class Limiter:
    """What every client of this process has left of its quota.

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
        """Count a request of a client.

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
        if bucket.left >= 1:
            bucket.left -= 1
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

    async def keep_rate(connection: ASGIConnection, _: BaseRouteHandler) -> None:  # type: ignore[type-arg]
        wait, connection.scope["rate_limit"] = limiter.take(connection.scope["auth"])  # type: ignore[typeddict-unknown-key]
        if wait:
            raise ApiError(
                Code.RATE_LIMITED,
                "Too many requests with this API key. Wait for the seconds that Retry-After says.",
                {"retry-after": str(wait)},
            )

    return keep_rate
