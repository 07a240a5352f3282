"""Opening a file: of an earlier version, which keeps what it holds, and by several processes."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from petstore_sqlite import schema

from backends.sqlite.tests.files import execute, opened
from petstore.contract import OrderQuery, OrderStatus, Pet, PetStatus, Receipt, UnavailableError
from tests.support.repositories import AT, REX, make_token, pets

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


async def test_a_file_of_the_first_version_is_upgraded_and_keeps_its_pets(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(file, FIRST_VERSION)
    for again in range(2):
        async with opened(file) as repository:
            status = PetStatus.PENDING if again else PetStatus.AVAILABLE
            rex, tom = Pet(1, "Rex", 7, status), Pet(5, "Tom", -1)
            assert (await pets(repository))[:2] == [rex, tom]
            if not again:
                assert await repository.place_order(1, AT) == Receipt(1)
            assert (await repository.create_pet(REX)).id == 9 + again
            assert len(await repository.list_orders(OrderQuery(0, 9, OrderStatus.PLACED))) == 1
    assert execute(file, "PRAGMA user_version") == len(schema.MIGRATIONS)
    (upgrading,) = caplog.messages  # the second time, nothing was upgraded
    newest = len(schema.MIGRATIONS)
    assert f"upgrading sqlite at {file} from schema version 1 to {newest}: " in upgrading


async def test_records_of_the_fifth_version_stay_in_force(file: Path) -> None:
    execute(file, "".join(schema.MIGRATIONS[:5]))
    execute(file, f"PRAGMA application_id = {schema.APPLICATION_ID}; PRAGMA user_version = 5")
    execute(file, "INSERT INTO pets (name, category_id) VALUES ('Rex', 7)")
    tokens = [make_token(n, until=1000 - n) for n in range(9)]
    for token in tokens:
        row = f"x'{token.value.hex()}', x'{token.fingerprint.hex()}', 1, {token.until}, 0"
        execute(file, f"INSERT INTO tokens VALUES ({row})")
    async with opened(file) as repository:
        for token in tokens:
            assert await repository.create_pet(REX, token) == Receipt(1, replayed=True)
        assert len((await repository.list_tokens("", 99, 0)).records) == len(tokens)


async def test_the_schema_refuses_a_second_live_order_of_a_pet(file: Path) -> None:
    """A second line of defense: a pet that is wrongly available is still not sold twice."""
    async with opened(file) as repository:
        pet = await repository.create_pet(REX)
        await repository.place_order(pet.id, AT)
        execute(file, "UPDATE pets SET status = 'available'")
        with pytest.raises(UnavailableError, match=r"corrupt.* UNIQUE constraint failed"):
            await repository.place_order(pet.id, AT)
        assert len(await repository.list_orders(OrderQuery(0, 9))) == 1


OPENER = """
import asyncio, sys
from petstore.contract import Expected, NewPet
from petstore_sqlite import SqliteSettings, open_sqlite

async def create(path):
    async with open_sqlite(SqliteSettings(path=path, busy_seconds=60), Expected()) as repository:
        return (await repository.create_pet(NewPet("Rex", 7))).id

for line in sys.stdin:
    print(asyncio.run(create(line.strip())), flush=True)
"""


def test_processes_that_open_a_new_file_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    """Without waiting in the right places, one process failed for about one file in thirty."""
    command = [sys.executable, "-c", OPENER]
    with ExitStack() as stack:
        openers = [
            stack.enter_context(
                subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(4)
        ]
        for number in range(20):
            for opener in openers:
                print(tmp_path / str(number), file=opener.stdin, flush=True)
            ids = [opener.stdout.readline() for opener in openers if opener.stdout]
            assert sorted(ids) == ["1\n", "2\n", "3\n", "4\n"]
