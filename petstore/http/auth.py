"""The guard that asks for an API key."""

import re
from typing import Any, Final

from petstore.config.keys import Keys
from petstore.http.errors import ApiError, ErrorCode
from petstore.http.guards import ScopeGuard

_CHALLENGE: Final = 'Bearer realm="petstore"'
_BEARER: Final = re.compile(rb"bearer +([^ ]+) *", re.IGNORECASE)


def key_guard(keys: Keys) -> ScopeGuard:
    """Return the guard that admits clients with a valid key (RFC 6750, section 2.1).

    It sets ``scope["auth"]`` to the client's name. It raises `ApiError` (401) if the key is
    missing or invalid, or if there is more than one ``Authorization``. The response carries a
    challenge (RFC 9110, section 11.6.1), with ``invalid_token`` if a key was sent (RFC 6750,
    section 3).
    """

    def require_key(scope: Any) -> None:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        bearer = [match for value in values if (match := _BEARER.fullmatch(value))]
        if not bearer:
            raise _unauthorized("API key missing: send Authorization: Bearer <API_KEY>.")
        client = keys.client(bearer[0][1]) if len(values) == 1 else None
        if client is None:
            raise _unauthorized("Invalid API key.", ', error="invalid_token"')
        scope["auth"] = client

    return ScopeGuard(require_key)


def _unauthorized(message: str, parameters: str = "") -> ApiError:
    challenge = {"www-authenticate": _CHALLENGE + parameters}
    return ApiError(ErrorCode.UNAUTHORIZED, message, challenge)
