"""Cross-origin requests: which pages of other origins may call the service from a browser.

This is the CORS protocol of the Fetch standard. A preflight is an OPTIONS request; which methods
it may allow comes from the table of routes.
"""

from collections.abc import Callable
from typing import Any, Final

from petstore.http.headers import Header

# Any header may be sent and read: keys are no cookies, so a list would protect nothing, only break
# pages whose tools add headers (docs/decisions/0014). The wildcard does not cover Authorization;
# the other names are for browsers older than the wildcard.
ALLOWED_HEADERS: Final = b"Authorization, Content-Type, Idempotency-Key, X-Request-Id, *"
"""The headers that a page may send."""

EXPOSED_HEADERS: Final = (
    b"Link, Location, Deprecation, Sunset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id,"
    b" Idempotency-Replayed, *"
)
"""The response headers that a page may read, beside the few that it always may."""

_MAX_AGE: Final = b"7200"  # seconds that a preflight is valid; browsers accept no more


class Cors:
    """The headers that let pages of other origins read responses.

    allow -- returns the methods of a path, as in ``Allow``, or None for an unknown path
    origins -- as browsers send them, for instance ``https://shop.example``; ``*`` is any origin
    """

    def __init__(self, allow: Callable[[str], str | None], origins: tuple[str, ...]) -> None:
        self._allow = allow
        self._any = "*" in origins
        self._origins = {origin.encode() for origin in origins}

    def headers(self, scope: Any) -> list[Header]:
        """Return the headers to add to the response to a request."""
        sent = dict(scope["headers"])
        origin = sent.get(b"origin")
        headers = [] if self._any else [(b"vary", b"origin")]  # RFC 9110, section 12.5.5
        if origin is None or not (self._any or origin in self._origins):
            return headers
        headers.append((b"access-control-allow-origin", b"*" if self._any else origin))
        allow = None
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in sent:
            allow = self._allow(scope["path"])
        if allow is not None:
            headers += [
                (b"access-control-allow-methods", allow.encode()),
                (b"access-control-allow-headers", ALLOWED_HEADERS),
                (b"access-control-max-age", _MAX_AGE),
            ]
        else:
            headers.append((b"access-control-expose-headers", EXPOSED_HEADERS))
        return headers
