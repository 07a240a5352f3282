"""Records of tokens, sorted by token, in a temporary file: they may not fit into memory."""

import sqlite3
from collections.abc import Iterator

from petstore.contract import TokenRecord


class SortedRecords:
    """Records and the numbers of their lines, in a temporary file once there are many.

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
