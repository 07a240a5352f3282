"""Response headers that do not depend on the content: those of every response of an operation."""

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache
from typing import Final

from msgspec import Struct

Header = tuple[bytes, bytes]
"""A header as ASGI represents it: its name in lower case, and its value."""

JSON: Final = "application/json"

REQUEST_ID_PATTERN: Final = "[A-Za-z0-9._-]{1,128}"
"""What an ``X-Request-Id`` of a client must match to be used."""

_NO_SNIFF: Final[Header] = (b"x-content-type-options", b"nosniff")
"""On every response: browsers must not guess another content type (Fetch standard)."""

DEFAULT_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""On every response whose handler is not `cacheable`: never stored, rendered or framed as a page.

Without the first, a cache may store a response, even a 404 or 405 (RFC 9111, section 4.2.2).
"""

CLOSE: Final[Header] = (b"connection", b"close")


class Deprecation(Struct, frozen=True):
    """The deprecation of an operation.

    since -- when it was deprecated (RFC 9745)
    sunset -- when it will be removed (RFC 8594), later than `since`
    successor -- the path of its replacement, without the public prefix (RFC 5829)
    """

    since: datetime
    sunset: datetime
    successor: str

    @property
    def sunset_text(self) -> str:
        """When it will be removed, as HTTP writes a time."""
        return format_datetime(self.sunset.astimezone(UTC), usegmt=True)

    def headers(self, root_path: str) -> list[Header]:
        """Return the headers that announce it, with the public prefix before the successor."""
        return [
            (b"deprecation", b"@%d" % int(self.since.timestamp())),
            (b"sunset", self.sunset_text.encode()),
            (b"link", f'<{root_path}{self.successor}>; rel="successor-version"'.encode()),
        ]


class FixedHeaders(Struct, frozen=True):
    """Headers that do not change from response to response.

    headers -- as ASGI represents them
    encoded -- as HTTP/1.1 writes them: each on a line, after the line break of the line before
    """

    headers: list[Header]
    encoded: bytes


@cache
def fixed_headers(
    media_type: str,
    root_path: str = "",
    deprecation: Deprecation | None = None,
    *,
    cacheable: bool = False,
) -> FixedHeaders:
    """Return the headers that all responses of one media type of an operation have.

    media_type -- empty for a response without content, or whose handler adds it
    root_path -- the public prefix of the service
    deprecation -- that of the operation
    cacheable -- whether the handler adds its own instead of `DEFAULT_HEADERS`
    """
    headers: list[Header] = [(b"content-type", media_type.encode())] if media_type else []
    headers += [_NO_SNIFF, *(() if cacheable else DEFAULT_HEADERS)]
    if deprecation is not None:
        headers += deprecation.headers(root_path)
    encoded = b"".join([b"\r\n%b: %b" % header for header in headers])
    return FixedHeaders(headers, encoded)
