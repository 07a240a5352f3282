"""What differs between an export and a store."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

from petstore.contract import Order, Pet, TokenRecord
from petstore.text.phrases import shorten
from petstore.transfer.ndjson import MEMBERS, InvalidLineError, Transferred, encode
from petstore.transfer.sources import Source

_STORE: Final = "the store"

_Key = tuple[int, int | bytes]
_Entry = tuple[_Key, str, Transferred]
"""Where an item belongs in an export, where it was found, and the item."""


class SortedRecords:
    """Records by token, and the numbers of their lines, in a temporary file once there are many.

    All methods raise `sqlite3.OperationalError` if that cannot be written.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE records (value BLOB PRIMARY KEY, fingerprint BLOB, until INT, id INT,"
            " line INT) WITHOUT ROWID"
        )
        self._database.execute("BEGIN")

    def add(self, record: TokenRecord, line: int = 0) -> bool:
        """Keep a record; return False if a different one with its token has been added before."""
        row = record.value, record.fingerprint, record.until, record.id
        added = self._database.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (*row, line)
        )
        if added.rowcount:
            return True
        found = self._database.execute(
            "SELECT value, fingerprint, until, id FROM records WHERE value = ?", row[:1]
        )
        return bool(found.fetchone() == row)

    def close(self) -> None:
        """Remove the temporary file."""
        self._database.close()

    def __iter__(self) -> Iterator[tuple[int, TokenRecord]]:
        """Yield the records, each with the number of its first line."""
        rows = self._database.execute("SELECT * FROM records ORDER BY value")
        return ((line, TokenRecord(*fields)) for *fields, line in rows)


def differences(
    lines: Iterable[tuple[int, Transferred]],
    records: SortedRecords,
    name: str,
    source: Source,
    now: int,
) -> Iterator[str]:
    """Yield a line for each difference.

    Pets and orders are compared as they are read, because an export has them in the order in which
    a store lists them. Records have no order: they are sorted in a temporary file.

    lines -- numbers and items, as an export has written them
    records -- the records among them, once all are read
    name -- the name of the file
    now -- records that have expired then are not compared, in seconds since 1970

    Raises `InvalidLineError` for one that is repeated or out of order.
    """
    both = merge(_in_file(lines, records, name, now), _in_store(source, now), key=itemgetter(0))
    for _, group in groupby(both, itemgetter(0)):
        (_, where, item), *others = group
        if not others:
            yield f"only in {where}: {_text(item)}"
        for _, other, found in others:
            if found != item:
                yield f"{where}: {_text(item)}; {other}: {_text(found)}"


def _in_file(
    lines: Iterable[tuple[int, Transferred]], records: SortedRecords, name: str, now: int
) -> Iterator[_Entry]:
    last: _Key = (0, 0)
    for number, item in lines:
        if isinstance(item, TokenRecord):
            continue
        entry = _key(item), f"{name}, line {number}", item
        if entry[0] <= last:
            raise InvalidLineError(
                f"{entry[1]}: it is repeated or out of order; an export has each item once, by"
                " ascending id"
            )
        last = entry[0]
        yield entry
    for number, record in records:
        if record.until > now:
            yield _key(record), f"{name}, line {number}", record


def _in_store(source: Source, now: int) -> Iterator[_Entry]:
    for page in chain(source.pages(Pet), source.pages(Order)):
        for item in page:
            yield _key(item), _STORE, item
    with closing(SortedRecords()) as records:
        for record in chain.from_iterable(source.tokens(now)):
            records.add(record)
        yield from ((_key(record), _STORE, record) for _, record in records)


def _key(item: Transferred) -> _Key:
    return list(MEMBERS).index(type(item)), item.value if isinstance(item, TokenRecord) else item.id


def _text(item: Transferred) -> str:
    return shorten(encode(item).decode().strip(), 200)
