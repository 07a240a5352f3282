"""A repository in another process: what goes wrong there is said here."""

import asyncio
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from petstore_conformance.harness import served
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


def test_a_call_that_another_thread_makes_in_c_is_a_step() -> None:
    async def call() -> int:
        before = writes.number
        await asyncio.to_thread(partial(sorted, []))
        return writes.number - before

    writes = served._Writes(0, lambda: None)  # noqa: SLF001 - what the other process counts with
    writes.counting = True
    try:
        assert asyncio.run(call()) > 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
