"""The write-ahead log: it is truncated once the reader that made it long has gone."""

import asyncio
from pathlib import Path

import apsw
from petstore_sqlite import SqliteSettings, open_sqlite
from petstore_sqlite.schema import WAL_LIMIT

from petstore.contract import Expected, NewPet

BIG = NewPet("x" * 1_000_000, 7)


def test_a_log_that_a_reader_has_made_long_is_truncated(tmp_path: Path) -> None:
    """It stayed at 203 MB."""
    path = tmp_path / "pets.sqlite"
    wal = tmp_path / "pets.sqlite-wal"

    async def run() -> None:
        async with open_sqlite(SqliteSettings(path=str(path)), Expected()) as repository:
            reader = apsw.Connection(str(path))
            reader.execute("BEGIN; SELECT count(*) FROM pets")
            for _ in range(40):
                await repository.create_pet(BIG)
            assert wal.stat().st_size > 2 * WAL_LIMIT
            reader.close()
            # After the first commit it is copied, with the second it starts over.
            for _ in range(2):
                await repository.create_pet(NewPet("Rex", 7))
            assert wal.stat().st_size <= WAL_LIMIT

    asyncio.run(run())
