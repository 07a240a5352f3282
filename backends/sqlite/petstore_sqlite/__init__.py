"""Pets and orders in an SQLite file: what was acknowledged is on disk."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Annotated, cast

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from petstore.contract import Access, Backend, Expected, SettingsError
from petstore_sqlite import schema
from petstore_sqlite.file import (
    LockWait,
    check_name,
    check_presence,
    is_of_file,
    refuse_unreadable_wal,
    why_not_writable,
)
from petstore_sqlite.reader import Reader
from petstore_sqlite.repository import SqliteRepository
from petstore_sqlite.store import OpenStore
from petstore_sqlite.writer import Writer

__all__ = ["SqliteRepository", "SqliteSettings", "backend"]


class SqliteSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the file is, and how long to wait for other processes that write to it."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            description="the path of a file on a local disk",
            examples=["/var/lib/petstore/petstore.sqlite"],
        ),
    ]
    busy_seconds: Annotated[float, Meta(ge=0, le=3600, title="how long to wait for a lock")] = 5
    check: Annotated[
        bool, Meta(description="true or false: whether to check the whole file at opening")
    ] = False

    def __post_init__(self) -> None:
        """Write the path so that it stays valid when the working directory is deleted."""
        if is_of_file(self.path) and not self.path.startswith("~"):
            with suppress(OSError):  # it was deleted already; `check_name` says so
                up = cast("re.Match[str]", re.match(r"(\.\./)*", self.path))[0]
                full = Path(os.path.realpath(up), self.path[len(up) :])
                force_setattr(self, "path", str(full))


@asynccontextmanager
async def open_sqlite(
    settings: SqliteSettings, expected: Expected
) -> AsyncIterator[SqliteRepository]:
    """Open the file, upgrade its schema, and close it when all writes are done.

    If no write may come, a file that cannot be written to is opened to be read.
    """
    if not is_of_file(settings.path):
        raise SettingsError(
            f"PETSTORE_SQLITE_PATH must be the path of a file, not {settings.path!r}: for instance"
            " /var/lib/petstore/pets.sqlite"
        )
    if settings.path.startswith("~"):
        raise SettingsError(
            f"PETSTORE_SQLITE_PATH is {settings.path!r}, and '~' is not expanded: write the path in"
            " full (or begin it with ./ if '~' is part of a name)"
        )
    check_name(settings.path)
    check_presence(settings.path, expected)
    busy = LockWait(settings.busy_seconds)
    create = expected.store is None and expected.access is Access.CREATE
    read_only = expected.access is Access.READ and bool(why_not_writable(settings.path))
    if read_only:
        refuse_unreadable_wal(settings.path)
    with schema.connect(settings.path, busy, create=create, read_only=read_only) as writing:
        schema.migrate(writing, settings.path, busy, expected)
        if settings.check:
            schema.check(writing, settings.path)
        with schema.connect(settings.path, busy, read_only=True) as reading:
            if expected.snapshot:
                schema.begin_snapshot(reading, settings.path)
            store = OpenStore(writing, settings.path, expected)
            reader = Reader(reading, busy, store)
            async with Writer(writing, busy, store) as writer:
                try:
                    yield SqliteRepository(reader, writer, store)
                finally:
                    store.close()
                    await reader.close()


@asynccontextmanager
async def scratch_sqlite(settings: SqliteSettings) -> AsyncIterator[SqliteSettings]:
    """Yield the settings of a new file beside the configured one; remove the file on exit."""
    path = f"{settings.path}.scratch-{token_hex(8)}"
    try:
        yield replace(settings, path=path)
    finally:
        _remove(path)


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)


backend = Backend(
    contract=2,
    settings=SqliteSettings,
    open=open_sqlite,
    scratch=scratch_sqlite,
    shared=True,
    durable=True,
    snapshots=True,
)
