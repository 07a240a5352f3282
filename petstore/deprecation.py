"""How the end of an operation is announced on each of its answers."""

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache

from msgspec import Struct


class Deprecation(Struct, frozen=True):
    """An operation that is to be removed.

    since -- when it was deprecated (RFC 9745)
    sunset -- when it is to be removed (RFC 8594), later than that
    successor -- the path of what replaces it, without the public prefix (RFC 5829)

    Raises `ValueError` if it is not removed later than it was deprecated.
    """

    since: datetime
    sunset: datetime
    successor: str

    def __post_init__(self) -> None:
        if not self.since.astimezone(UTC) < self.sunset.astimezone(UTC):
            raise ValueError("an operation is removed after it is deprecated, not before")

    def fields(self, root: str) -> dict[str, str]:
        """Return the header fields that announce it: names in lower case, and values.

        root -- the public prefix, before the successor's path
        """
        return {
            "deprecation": f"@{int(self.since.timestamp())}",
            "sunset": format_datetime(self.sunset.astimezone(UTC), usegmt=True),
            "link": f'<{root}{self.successor}>; rel="successor-version"',
        }


@cache
def deprecation_headers(deprecation: Deprecation, root: str) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a deprecation as ASGI sends them."""
    return [(name.encode(), value.encode()) for name, value in deprecation.fields(root).items()]
