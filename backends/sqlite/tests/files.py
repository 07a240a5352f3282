"""Stores in files for the tests outside the kit, and changes behind the back of a store."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import apsw
from petstore_conformance.harness.kit import ANY_STORE
from petstore_sqlite import SqliteRepository, SqliteSettings, open_sqlite

from petstore.contract import Expected


def opened(
    file: Path | str, expected: Expected = ANY_STORE, *, busy_seconds: float = 5
) -> AbstractAsyncContextManager[SqliteRepository]:
    """Open the store in a file."""
    return open_sqlite(SqliteSettings(path=str(file), busy_seconds=busy_seconds), expected)


def execute(file: Path | str, statements: str) -> Any:
    """Execute SQL over another connection; return the value or the row that it finds, if any."""
    connection = apsw.Connection(str(file))
    try:
        return connection.execute(statements).get
    finally:
        connection.close()


def content(folder: Path) -> dict[str, bytes]:
    """Return what each file in a folder holds."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
