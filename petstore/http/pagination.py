"""Cursors and ``Link`` headers: how a client walks through a collection page by page.

A cursor is a letter for the collection and the id of the last item of a page as 14 hexadecimal
digits. That covers ids from 0 to 2**53 - 1 exactly, so the pattern accepts every cursor that can
have been issued and no other, in this code and in the OpenAPI document. Cursors are not signed:
they stay valid over restarts and workers, and reveal nothing that the ids do not.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Final, Generic, TypeVar, get_args
from urllib.parse import unquote_to_bytes

from msgspec.structs import astuple, fields

from petstore.contract import Order, OrderQuery, Pet, PetQuery
from petstore.http.errors import invalid
from petstore.http.request import Response

DEFAULT_LIMIT: Final = 20
"""The number of items on a page if the client does not choose one."""

MAX_LIMIT: Final = 100
"""The maximum number of items on a page."""

Item = TypeVar("Item", Pet, Order)
Query = TypeVar("Query", bound=PetQuery | OrderQuery)

_LIMIT: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)
_CURSOR_BYTES: Final = 15  # a letter and 14 digits
_USUAL_BYTES: Final = 100  # of a query string; the parts of a longer one are not kept
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def encode_cursor(letter: str, after: int) -> str:
    """Return the cursor of the page that begins after the item with this id.

    letter -- that of the collection
    after -- the id, from 0 to `MAX_ID`
    """
    return f"{letter}{after:014x}"


class Collection(Generic[Query]):
    """How one collection is divided into pages, and by which parameters its items are filtered.

    letter -- the first letter of its cursors, so that no other collection accepts them
    query -- what its repository is asked for. Each field after `after` and `count` is a filter: an
        enumeration of strings, or None
    path -- its path below the public prefix, for ``Link``

    cursor_pattern -- the regular expression of its cursors
    filters -- the values of each filter, by the name of its parameter and by their texts
    messages -- what is wrong with a value of a parameter, by its name, if something is
    """

    def __init__(self, letter: str, query: type[Query], path: str) -> None:
        self.letter: Final = letter
        self.cursor_pattern: Final = f"^{letter}[01][0-9a-f]{{13}}$"
        self.filters: Final[dict[str, dict[str, StrEnum]]] = {
            field.encode_name: {str(value): value for value in get_args(field.type)[0]}
            for field in fields(query)[2:]
        }
        self.messages: Final = {
            "limit": f"limit: expected an integer from 1 to {MAX_LIMIT}.",
            "cursor": "cursor: expected the cursor of a next link, unchanged.",
            **{n: f"{n}: expected one of {', '.join(v)}." for n, v in self.filters.items()},
        }
        self._query: Callable[..., Query] = query
        self._first = query(0, DEFAULT_LIMIT + 1)
        self._cursor = re.compile(self.cursor_pattern[:-1].encode())
        self._names = tuple(self.messages)
        self._path = path

    def parse(self, query_string: bytes) -> Query:
        """Parse `limit`, the filters and `cursor` strictly; other parameters are ignored.

        The query asks for one item more than the limit: it shows that there is a next page.

        Raises `ApiError` (400) for a value that is out of range or malformed, for a parameter
        that is sent twice, and for a query string that is not percent-encoded UTF-8.
        """
        # What surrounds the cursor is the same again and again, and means the same with any cursor.
        before, _, rest = query_string.partition(b"cursor=")
        cursor = rest[:_CURSOR_BYTES]
        if len(query_string) <= _USUAL_BYTES and self._cursor.fullmatch(cursor):
            others = self._parse_others(before, rest[_CURSOR_BYTES:])
            if others is not None:
                return self._query(int(cursor[1:], 16), *others)
        return self._parse(query_string)

    @lru_cache(maxsize=1000)  # noqa: B019 - collections live as long as the process
    def _parse_others(self, before: bytes, behind: bytes) -> tuple[Any, ...] | None:
        """Parse what comes before and behind ``cursor=`` and a valid cursor.

        Return the query's fields after `after`; None if ``cursor`` is only the end of a name.
        """
        if before and not before.endswith(b"&"):
            return None
        cursor = encode_cursor(self.letter, 0).encode()
        return astuple(self._parse(b"%bcursor=%b%b" % (before, cursor, behind)))[1:]

    def _parse(self, query_string: bytes) -> Query:
        if not (sent := parse_query(query_string, self._names)):
            return self._first
        limit, after = DEFAULT_LIMIT, 0
        if (text := sent.get("limit")) is not None:
            limit = int(text) if _LIMIT.fullmatch(text) else 0
            if not 1 <= limit <= MAX_LIMIT:
                raise invalid(self.messages["limit"])
        filters = []
        for name, values in self.filters.items():
            filters.append(value := values.get(sent.get(name, "")))
            if value is None and name in sent:
                raise invalid(self.messages[name])
        if (text := sent.get("cursor")) is not None:
            if not self._cursor.fullmatch(text.encode()):
                raise invalid(self.messages["cursor"])
            after = int(text[1:], 16)
        return self._query(after, limit + 1, *filters)

    def page(self, query: Query, items: list[Item], root_path: str) -> Response[list[Item]]:
        """Return the page, with a ``Link`` header if there is a next page.

        items -- those that the repository lists
        root_path -- the public prefix of the service

        The link (RFC 8288) repeats the request's `limit` and its filters.
        """
        limit = query.count - 1
        if len(items) <= limit:
            return Response(items)
        page = items[:limit]
        begin = self._link(root_path, limit, *astuple(query)[2:])
        return Response(page, [(b"link", b'%b%014x>; rel="next"' % (begin, page[-1].id))])

    @cache  # noqa: B019 - collections live as long as the process
    def _link(self, root_path: str, limit: int, *values: StrEnum | None) -> bytes:
        """Return a next link up to the digits of its cursor: one of a few hundred, made in 2 us."""
        sent = [f"limit={limit}"]
        sent += [f"{n}={v}" for n, v in zip(self.filters, values, strict=True) if v is not None]
        return f"<{root_path}{self._path}?{'&'.join(sent)}&cursor={self.letter}".encode()


def parse_query(query_string: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return those parameters of a query string that have one of the names, decoded.

    Percent-encoding (RFC 3986, section 2.1) is decoded, and a + is a space, as HTML forms send it.

    Raises `ApiError` (400) for a parameter that is sent twice and for a malformed query string:
    characters outside ASCII, a % without two hexadecimal digits, escapes that are not UTF-8.
    """
    found: dict[str, str] = {}
    if not query_string:
        return found
    try:
        text = query_string.decode("ascii")
        if "%" in text and _BAD_ESCAPE.search(text):
            raise invalid("query string: expected two hexadecimal digits after each %.")
        escaped = "%" in text or "+" in text
        for pair in text.split("&"):
            name, _, value = pair.partition("=")
            if escaped:
                name, value = _unescape(name), _unescape(value)
            if name in names:
                if name in found:
                    raise invalid(f"{name}: sent twice; expected at most once.")
                found[name] = value
    except UnicodeDecodeError:
        raise invalid("query string: expected percent-encoded UTF-8.") from None
    return found


def _unescape(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
