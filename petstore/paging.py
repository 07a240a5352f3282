"""Cursors and ``Link`` headers: how a client walks a collection page by page.

A cursor is a letter for the collection and the id of the last item of a page, as 14 hexadecimal
digits. That covers ids from 0 to 2**53 - 1 exactly, so `CURSOR` accepts what can have been issued
and nothing else, in this code and in the OpenAPI document alike. Cursors are not signed: they
hold over restarts and over workers, and reveal nothing that the ids do not.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from petstore.errors import invalid

DEFAULT_LIMIT: Final = 20
"""How many items a page holds if the client does not say."""

MAX_LIMIT: Final = 100
"""How many items a client may ask for at once."""

Status = TypeVar("Status", bound=StrEnum)

_LIMIT: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def cursor_pattern(kind: str) -> str:
    """Return the regular expression of the cursors of one collection (`kind`, a letter)."""
    return f"^{kind}[01][0-9a-f]{{13}}$"


def cursor(kind: str, after: int) -> str:
    """Return the cursor of the page that begins after the item with this id.

    kind -- the letter of the collection
    after -- the id, from 0 to `MAX_ID`
    """
    return f"{kind}{after:014x}"


class Numbered(Protocol):
    """What has an id."""

    @property
    def id(self) -> int:
        """Between 1 and `MAX_ID`."""


Item = TypeVar("Item", bound=Numbered)


class Query(Struct, Generic[Status], frozen=True):
    """What a client asks of a collection: a page of `limit` items after the id `after`.

    limit -- from 1 to `MAX_LIMIT`
    after -- from 0, the beginning, to `MAX_ID`
    status -- None for items of any status
    """

    limit: int
    after: int
    status: Status | None


class Collection(Generic[Status]):
    """How one collection is paged.

    kind -- the letter that its cursors begin with, so that no other collection takes them
    statuses -- the enumeration that its `status` filter takes
    path -- its public path, prefix included, for ``Link``
    """

    def __init__(self, kind: str, statuses: type[Status], path: str) -> None:
        self._kind = kind
        self._cursor = re.compile(cursor_pattern(kind)[:-1], re.ASCII)
        self._statuses = {str(status): status for status in statuses}
        self._path = path

    def parse(self, query_string: bytes) -> Query[Status]:
        """Read `limit`, `status` and `cursor` strictly; other parameters are ignored.

        Raises `ApiError` (400) for a value that is out of range or not as documented, for one of
        the three given twice, and for a query string that is no UTF-8 with proper escapes.
        """
        given = parameters(query_string, ("limit", "status", "cursor"))
        limit, after, status = DEFAULT_LIMIT, 0, None
        if (text := given.get("limit")) is not None:
            limit = int(text) if _LIMIT.fullmatch(text) else 0
            if not 1 <= limit <= MAX_LIMIT:
                raise invalid(f"limit: expected a whole number from 1 to {MAX_LIMIT}.")
        if (text := given.get("status")) is not None:
            status = self._statuses.get(text)
            if status is None:
                raise invalid(f"status: expected one of {', '.join(self._statuses)}.")
        if (text := given.get("cursor")) is not None:
            if not self._cursor.fullmatch(text):
                raise invalid("cursor: expected one from the next link of a page, unchanged.")
            after = int(text[1:], 16)
        return Query(limit, after, status)

    def page(
        self, query: Query[Status], items: Sequence[Item]
    ) -> tuple[Sequence[Item], str | None]:
        """Cut off the item beyond the page, if there is one.

        items -- up to `query.limit` + 1 items, as the repository lists them
        Returns the page and, where a further item showed that there is a successor, the value of
        its ``Link`` header (RFC 8288), which repeats the request's `limit` and `status`.
        """
        if len(items) <= query.limit:
            return items, None
        page = items[: query.limit]
        status = "" if query.status is None else f"&status={query.status}"
        after = cursor(self._kind, page[-1].id)
        return page, f'<{self._path}?limit={query.limit}{status}&cursor={after}>; rel="next"'


def parameters(query_string: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return the parameters called `names` of a query string, decoded.

    Escapes (RFC 3986, section 2.1) are resolved, and a + is a space, as HTML forms send it.

    Raises `ApiError` (400) for one of them given twice and for a malformed query string:
    characters outside ASCII, a per cent sign without two hexadecimal digits, escapes that are no
    UTF-8.
    """
    found: dict[str, str] = {}
    if not query_string:
        return found
    try:
        text = query_string.decode("ascii")
        if "%" in text and _BAD_ESCAPE.search(text):
            raise invalid("query string: a % must be followed by two hexadecimal digits.")
        for pair in text.split("&"):
            name, _, value = pair.partition("=")
            name, value = _unescape(name), _unescape(value)
            if name in names:
                if name in found:
                    raise invalid(f"{name}: given twice; expected once at most.")
                found[name] = value
    except UnicodeDecodeError:
        raise invalid("query string: expected percent-encoded UTF-8.") from None
    return found


def _unescape(text: str) -> str:
    if "%" not in text and "+" not in text:  # the usual case
        return text
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
