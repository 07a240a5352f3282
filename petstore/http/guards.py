"""The guards of the interface, in the order in which they run."""

import re
from typing import Any, Final

from petstore.config.keys import Keys
from petstore.http.errors import (
    KEY_INVALID,
    KEY_MISSING,
    OVER_RATE_LIMIT,
    ApiError,
    ErrorCode,
    Refusal,
    unavailable,
)
from petstore.http.limits import RateLimiter
from petstore.http.request import ServiceRequest
from petstore.http.routes import Guard

_CHALLENGE: Final = 'Bearer realm="petstore"'
_BEARER: Final = re.compile(rb"bearer +([^ ]+) *", re.IGNORECASE)


def key_guard(keys: Keys) -> Guard:
    """Return the guard that admits clients with a valid key (RFC 6750, section 2.1).

    It makes the client's name the request's `auth`. It raises `ApiError` (401) if the key is
    missing or invalid, or if there is more than one ``Authorization``. The response carries a
    challenge (RFC 9110, section 11.6.1), with ``invalid_token`` if a key was sent (RFC 6750,
    section 3).
    """

    def require_key(request: ServiceRequest, _: Any) -> None:
        scope = request.scope
        sent, bearer = 0, None
        for name, value in scope["headers"]:
            if name == b"authorization":
                sent += 1
                bearer = _BEARER.fullmatch(value) or bearer
        if bearer is None:
            raise _unauthorized(KEY_MISSING, "no_key")
        client = keys.client(bearer[1]) if sent == 1 else None
        if client is None:
            raise _unauthorized(KEY_INVALID, "invalid_key", ', error="invalid_token"')
        scope["auth"] = client

    return require_key


def _unauthorized(message: str, refusal: Refusal, parameters: str = "") -> ApiError:
    challenge = {"www-authenticate": _CHALLENGE + parameters}
    return ApiError(ErrorCode.UNAUTHORIZED, message, challenge, refusal)


def rate_guard(limiter: RateLimiter) -> Guard:
    """Return the guard that applies the rate limit; the guard that sets the client comes first.

    It leaves the response headers in the request's `limit_headers` and raises `ApiError` (429,
    RFC 6585, section 4) if the quota is used up.
    """

    def limit_rate(request: ServiceRequest, _: Any) -> None:
        wait, request.limit_headers = limiter.take(request.scope["auth"])
        if wait:
            raise ApiError(
                ErrorCode.RATE_LIMITED, OVER_RATE_LIMIT, {"retry-after": str(wait)}, "rate_limited"
            )

    return limit_rate


def read_only_guard(request: ServiceRequest, _: Any) -> None:
    """Refuse a write with 503: the service is read-only."""
    if request.scope["method"] not in {"GET", "HEAD"}:
        raise unavailable(
            "The service is read-only for now, for instance because its data is being moved. Send"
            " the request again later, with the same Idempotency-Key if it has one."
        )


def slot_guard(request: ServiceRequest, _: Any) -> None:
    """Acquire a slot for a request; the response releases it.

    It is the last guard, so that a request that another guard refuses needs no slot. It raises
    `ApiError` (503) if the client holds too many, or must read earlier responses first.
    """
    client = request.scope["auth"]
    shares = request.service.shares
    unread = shares.unread
    if unread.free < unread.total:  # not usually
        unread.check(client, 0)
    shares.slots.acquire(client)
    request.slot = shares.slots
