"""Response headers that do not depend on the content."""

from typing import Final

Header = tuple[bytes, bytes]
"""A header as ASGI represents it: its name in lower case, and its value."""

JSON: Final = "application/json"

NO_SNIFF: Final[Header] = (b"x-content-type-options", b"nosniff")
"""On every response: browsers must not guess another content type (Fetch standard)."""

DEFAULT_HEADERS: Final[tuple[Header, ...]] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""On every response whose handler is not `cacheable`: never stored, rendered or framed as a page.

Without the first, a cache may store a response, even a 404 or 405 (RFC 9111, section 4.2.2).
"""
