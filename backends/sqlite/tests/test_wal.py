"""The write-ahead log: it is truncated once the reader that made it long has gone."""

from pathlib import Path

import apsw
from petstore_sqlite.schema import WAL_LIMIT

from backends.sqlite.tests.files import opened
from petstore.contract import NewPet
from tests.support.repositories import REX

BIG = NewPet("x" * 1_000_000, 7)


async def test_a_log_that_a_reader_has_made_long_is_truncated(file: Path) -> None:
    """It stayed at 203 MB."""
    wal = file.with_name(f"{file.name}-wal")
    async with opened(file) as repository:
        reader = apsw.Connection(str(file))
        reader.execute("BEGIN; SELECT count(*) FROM pets")
        for _ in range(40):
            await repository.create_pet(BIG)
        assert wal.stat().st_size > 2 * WAL_LIMIT
        reader.close()
        # After the first commit it is copied, with the second it starts over.
        for _ in range(2):
            await repository.create_pet(REX)
        assert wal.stat().st_size <= WAL_LIMIT
