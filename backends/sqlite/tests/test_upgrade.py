"""A file of the first version is upgraded: its pets are kept and can be ordered."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import SqliteSettings, open_sqlite, schema

from petstore.contract import (
    Expected,
    NewPet,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    UnavailableError,
)

FIRST_VERSION = """
    CREATE TABLE pets (
        id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id BETWEEN 1 AND 9007199254740991),
        name TEXT NOT NULL,
        category_id INTEGER NOT NULL,
        status TEXT CHECK (status IN ('available', 'pending', 'sold'))
    ) STRICT;
    CREATE INDEX pets_by_status ON pets (status, id) WHERE status IS NOT NULL;
    INSERT INTO pets VALUES (1, 'Rex', 7, 'available'), (5, 'Tom', -1, NULL), (8, '', 0, 'sold');
    DELETE FROM pets WHERE id = 8;
    PRAGMA application_id = 0x50455453;
    PRAGMA user_version = 1;
    PRAGMA journal_mode = WAL;
"""
AT = datetime(2026, 11, 21, 9, 30, 0, 123456, tzinfo=UTC)
REX = NewPet("Rex", 7)


def execute(file: Path, statements: str) -> object:
    connection = apsw.Connection(str(file))
    try:
        return connection.execute(statements).get
    finally:
        connection.close()


def test_a_file_of_the_first_version_is_upgraded_and_keeps_its_pets(file: Path) -> None:
    execute(file, FIRST_VERSION)

    async def use() -> None:
        settings = SqliteSettings(path=str(file))
        for opening in range(2):
            async with open_sqlite(settings, Expected()) as repository:
                status = PetStatus.PENDING if opening else PetStatus.AVAILABLE
                rex, tom = Pet(1, "Rex", 7, status), Pet(5, "Tom", -1)
                assert list(await repository.list_pets(PetQuery(0, 9)))[:2] == [rex, tom]
                if not opening:
                    assert await repository.place_order(1, AT) == Receipt(1)
                assert (await repository.create_pet(REX)).id == 9 + opening
                assert len(await repository.list_orders(OrderQuery(0, 9, OrderStatus.PLACED))) == 1

    asyncio.run(use())
    assert execute(file, "PRAGMA user_version") == len(schema.MIGRATIONS)


def test_the_schema_refuses_a_second_live_order_of_a_pet(file: Path) -> None:
    """A second line of defense: a pet that is wrongly available is still not sold twice."""

    async def use() -> None:
        async with open_sqlite(SqliteSettings(path=str(file)), Expected()) as repository:
            pet = await repository.create_pet(NewPet("Rex", 7, PetStatus.AVAILABLE))
            await repository.place_order(pet.id, AT)
            execute(file, "UPDATE pets SET status = 'available'")
            with pytest.raises(UnavailableError, match=r"corrupt.* UNIQUE constraint failed"):
                await repository.place_order(pet.id, AT)
            assert len(await repository.list_orders(OrderQuery(0, 9))) == 1

    asyncio.run(use())
