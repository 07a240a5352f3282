"""How the deprecation of an operation is announced in its responses."""

from datetime import UTC, datetime
from email.utils import format_datetime

from msgspec import Struct

from petstore.http.headers import Header


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
