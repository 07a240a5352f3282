"""Stores in files for the tests outside the kit, and changes behind the back of a store."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from petstore_conformance.harness.kit import ANY_STORE
from petstore_sqlite import SqliteRepository, SqliteSettings, open_sqlite

from petstore.contract import Access, Expected, StorageError
from tests.support.repositories import REX

READING = Expected(access=Access.READ)


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


def create(file: Path | str, count: int = 1) -> list[int]:
    """Open the file, add pets, close it; return their ids."""

    async def run() -> list[int]:
        async with opened(file, busy_seconds=0.2) as repository:
            creates = [repository.create_pet(REX) for _ in range(count)]
            return [receipt.id for receipt in await asyncio.gather(*creates)]

    return asyncio.run(run())


def refusal(file: Path | str) -> str:
    """Check that a file is refused with a message of one line; return "Type: message"."""
    with pytest.raises(StorageError) as caught:
        create(file)
    assert len(str(caught.value).splitlines()) == 1
    return f"{type(caught.value).__name__}: {caught.value}"


@contextmanager
def unprivileged() -> Iterator[None]:
    """Drop the privileges of root, which no file permission restricts."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
