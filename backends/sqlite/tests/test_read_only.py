"""A file that can only be read: it is served if no write may come, and only then."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from petstore_sqlite import SqliteRepository

from backends.sqlite.tests.files import READING, content, create, execute, opened
from petstore.contract import Access, Expected, OrderQuery, UnavailableError, WrongStoreError
from tests.support.mounts import read_only
from tests.support.repositories import AT, REX, make_token, pets, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "volume #1?"  # what must be quoted in a URI
    folder.mkdir()
    return folder


@contextmanager
def mounted(file: Path) -> Iterator[Path]:
    """Yield a path by which a file can only be read."""
    with read_only(file.parent) as target:
        yield target / file.name


async def fill(file: Path) -> None:
    async with opened(file) as repository:
        await repository.create_pet(REX, make_token(1))
        await repository.place_order(1, AT)


async def count(repository: SqliteRepository) -> tuple[int, int, int]:
    tokens = await repository.list_tokens("", 10, 0)
    orders = await repository.list_orders(OrderQuery(0, 10))
    return len(await pets(repository)), len(orders), len(tokens.records)


@pytest.mark.parametrize("snapshot", [False, True])
async def test_all_reads_are_served_and_writes_fail(folder: Path, snapshot: bool) -> None:
    await fill(folder / "pets.sqlite")
    with mounted(folder / "pets.sqlite") as file:
        expected = Expected(access=Access.READ, snapshot=snapshot)
        async with opened(file, expected) as one, opened(file, READING) as other:
            for repository in (one, other):
                assert await count(repository) == (1, 1, 1)
                await repository.check()
                with pytest.raises(UnavailableError, match="is on a read-only file system"):
                    await repository.create_pet(REX)
    assert list(content(folder)) == ["pets.sqlite"]


async def test_the_writes_of_others_are_seen(folder: Path) -> None:
    """Of a process that has the file open already, by a mount that can be written to."""
    path = folder / "pets.sqlite"
    async with opened(path) as writer:
        await writer.create_pet(REX)
        with mounted(path) as file:
            async with opened(file, READING) as repository:
                await writer.create_pet(REX)
                assert len(await pets(repository)) == 2
                await repository.check()


@pytest.mark.parametrize(("closed", "log"), [(False, False), (True, False), (True, True)])
async def test_a_process_that_begins_to_write_is_noticed(
    folder: Path, closed: bool, log: bool
) -> None:
    """A file without a log, or with one that is empty, is read as one that does not change."""
    path = folder / "pets.sqlite"
    await fill(path)
    if log:
        (folder / "pets.sqlite-wal").touch()
    with mounted(path) as file:
        async with opened(file, READING) as repository:
            if closed:
                await asyncio.to_thread(execute, path, "UPDATE pets SET name = 'Tom'")
                assert list(content(folder)) == ["pets.sqlite"]
                with pytest.raises(WrongStoreError, match=r"begun to write.*Restart the serv"):
                    await repository.check()
            else:
                async with opened(path):
                    with pytest.raises(WrongStoreError, match="begun to write"):
                        await repository.check()
        async with opened(file, READING) as repository:
            assert await count(repository) == (1, 1, 1)


def test_a_log_that_cannot_be_read_is_not_left_out(folder: Path, tmp_path: Path) -> None:
    """As after a copy of a file that was in use."""
    busy = tmp_path / "pets.sqlite"
    create(busy)
    with closing(sqlite3.connect(busy)) as connection:
        connection.execute("UPDATE pets SET name = 'Tom'")
        connection.commit()
        for name in ("pets.sqlite", "pets.sqlite-wal"):
            shutil.copy(tmp_path / name, folder)
    with mounted(folder / "pets.sqlite") as file:
        message = refused(opened(file, READING), UnavailableError)
        assert f"its log {file}-wal has writes that the file lacks" in message
        assert "Run 'petstore check' where its folder can be written to" in message
    create(folder / "pets.sqlite")
    with mounted(folder / "pets.sqlite") as file:
        asyncio.run(check_pets(file, ["Tom", "Rex"]))


async def check_pets(file: Path, names: list[str]) -> None:
    async with opened(file, READING) as repository:
        assert [pet.name for pet in await pets(repository)] == names


def test_a_backup_without_a_log_is_served(folder: Path, tmp_path: Path) -> None:
    """``VACUUM INTO`` writes a file whose journal mode is not WAL."""
    create(tmp_path / "pets.sqlite", 2)
    execute(tmp_path / "pets.sqlite", f"VACUUM INTO '{folder}/pets.sqlite'")
    with mounted(folder / "pets.sqlite") as file:
        asyncio.run(check_pets(file, ["Rex", "Rex"]))
