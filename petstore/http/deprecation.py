"""How the deprecation of an operation is announced in its responses."""

from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache

from msgspec import Struct

from petstore.http.headers import Header


class Deprecation(Struct, frozen=True):
    """The deprecation of an operation.

    since -- when it was deprecated (RFC 9745)
    sunset -- when it will be removed (RFC 8594), later than `since`
    successor -- the path of its replacement, without the public prefix (RFC 5829)

    Raises `ValueError` if `sunset` is not later than `since`.
    """

    since: datetime
    sunset: datetime
    successor: str

    def __post_init__(self) -> None:
        if not self.since.astimezone(UTC) < self.sunset.astimezone(UTC):
            raise ValueError("an operation is removed after it is deprecated, not before")

    def headers(self, root_path: str) -> dict[str, str]:
        """Return the headers that announce it, names in lower case.

        root_path -- the public prefix in front of the successor's path
        """
        return {
            "deprecation": f"@{int(self.since.timestamp())}",
            "sunset": format_datetime(self.sunset.astimezone(UTC), usegmt=True),
            "link": f'<{root_path}{self.successor}>; rel="successor-version"',
        }


@cache
def deprecation_headers(deprecation: Deprecation, root_path: str) -> list[Header]:
    """Return the headers of a deprecation as ASGI represents them."""
    headers = deprecation.headers(root_path).items()
    return [(name.encode(), value.encode()) for name, value in headers]
