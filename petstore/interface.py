"""What the interface promises, as far as more than one room must know it."""

from typing import Final

API_PREFIX: Final = "/v1"
"""The prefix of all paths of the interface."""

DEFAULT_LIMIT: Final = 20
"""The number of items on a page if the client does not choose one."""

MAX_LIMIT: Final = 100
"""The maximum number of items on a page."""

RECORD_SECONDS: Final = 24 * 60 * 60
"""How long a write is remembered under its idempotency key."""


def cursor_pattern(letter: str) -> str:
    """Return the regular expression of the cursors of one collection, by its letter."""
    return f"^{letter}[01][0-9a-f]{{13}}$"


def encode_cursor(letter: str, after: int) -> str:
    """Return the cursor of the page that begins after the item with this id.

    letter -- that of the collection
    after -- the id, from 0 to `MAX_ID`
    """
    return f"{letter}{after:014x}"
