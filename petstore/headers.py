"""Header fields that answers carry whatever they say."""

from typing import Final

Field = tuple[bytes, bytes]
"""A header field as ASGI has it: its name in lower case, and its value."""

NO_SNIFF: Final[Field] = (b"x-content-type-options", b"nosniff")
"""On every answer: browsers take the content type as it is told (Fetch standard)."""

OF_INTERFACE: Final[tuple[Field, ...]] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""On every answer below /v1: it is stored nowhere (RFC 9111), and no page loads or frames it."""
