"""A repository in another process: what goes wrong there is said here."""

import asyncio
from pathlib import Path

import pytest
from petstore_conformance.harness.child import child
from petstore_conformance.harness.kit import Location
from petstore_sqlite import SqliteSettings, backend

from petstore.contract import UnavailableError


def test_a_location_that_the_other_process_cannot_open_raises_what_it_raises(
    tmp_path: Path,
) -> None:
    async def open_() -> None:
        async with child(Location(backend, SqliteSettings(path=f"{tmp_path}/missing/a.db"))):
            pass

    with pytest.raises(UnavailableError, match="/missing does not exist"):
        asyncio.run(open_())
