"""Which store is served: the expected one or none, and none that went back to an older state."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import SqliteRepository, schema

from backends.sqlite.tests.files import content, execute, opened
from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    OrderStatus,
    Pet,
    PetQuery,
    TokenRecord,
    UnavailableError,
    WrongStoreError,
)
from tests.support.repositories import AT, REX, Noted, make_token, refused

OLDER_SCHEMA = 3
TOKEN, OTHER_TOKEN = make_token(0), make_token(1)

Use = Callable[[SqliteRepository], Awaitable[object]]


async def add_pet(repository: SqliteRepository) -> None:
    await repository.create_pet(REX)


def write_over(file: Path, other: Path) -> None:
    """Write what another file holds into this one, as ``.restore`` does."""
    source, target = apsw.Connection(str(other)), apsw.Connection(str(file))
    with target.backup("main", source, "main") as backup:
        backup.step()
    source.close()
    target.close()


def copy(file: Path, to: Path) -> None:
    to.touch()
    write_over(to, file)


def create(file: Path, expected: Expected) -> str:
    """Open the store and add a pet; return its identity."""

    async def run() -> str:
        async with opened(file, expected) as repository:
            await add_pet(repository)
            return repository.store

    return asyncio.run(run())


class TestExpected:
    """`Expected` decides what may be opened; what is refused is left as it was."""

    def test_no_store_is_created_in_an_empty_file(self, file: Path) -> None:
        file.touch()
        creating, other = Expected(access=Access.WRITE), Expected("a")
        assert "a store would be created in it" in refused(
            opened(file, creating), ChangeNeededError
        )
        assert "it holds no store; a is expected" in refused(opened(file, other), WrongStoreError)
        assert content(file.parent) == {file.name: b""}

    def test_an_older_schema_is_upgraded_only_if_that_is_allowed(self, file: Path) -> None:
        older = apsw.Connection(str(file))
        older.execute("".join(schema.MIGRATIONS[:OLDER_SCHEMA]))
        older.pragma("application_id", schema.APPLICATION_ID)
        older.pragma("user_version", OLDER_SCHEMA)
        older.close()
        before, other = content(file.parent), Expected("a")
        message = refused(opened(file, Expected(access=Access.WRITE)), ChangeNeededError)
        assert f"upgraded from version 3 to {len(schema.MIGRATIONS)}" in message
        message = refused(opened(file, other), WrongStoreError)
        assert "it holds no store; a is expected" in message
        assert content(file.parent) == before
        identity = create(file, Expected())
        message = refused(opened(file, other), WrongStoreError)
        assert f"it holds the store {identity}; a is expected" in message
        assert create(file, Expected(identity, access=Access.WRITE)) == identity


async def order(repository: SqliteRepository) -> None:
    await repository.place_order(1, AT)


async def complete(repository: SqliteRepository) -> None:
    await repository.update_order(1, OrderStatus.COMPLETED)


async def restore_record(repository: SqliteRepository) -> None:
    await repository.restore([TokenRecord(bytes(32), bytes(32), 9000, 1)])


class TestLook:
    """An older copy or another store in the open file is refused, by each handle of it."""

    @pytest.mark.parametrize("change", [add_pet, order, complete, restore_record])
    @pytest.mark.parametrize("notice", [SqliteRepository.check, add_pet])
    async def test_an_older_copy_in_the_open_file(
        self, file: Path, tmp_path: Path, change: Use, notice: Use
    ) -> None:
        """Ids were assigned twice, and a sold pet was available again."""
        older = tmp_path / "older.sqlite"
        async with opened(file) as repository:
            await add_pet(repository)
            if change is complete:
                await order(repository)
            copy(file, older)
        async with opened(file) as repository:
            await change(repository)
            write_over(file, older)
            for call in (notice, SqliteRepository.check):
                with pytest.raises(WrongStoreError, match="it is an older copy of the store"):
                    await call(repository)
            for read in (repository.get_pet(1), repository.list_pets(PetQuery(0, 9))):
                with pytest.raises(UnavailableError, match="it is an older copy of the store"):
                    await read
        async with opened(file) as repository:  # it is served once it is opened again
            await add_pet(repository)

    async def test_an_older_copy_under_a_worker_that_has_not_seen_the_latest(
        self, file: Path, tmp_path: Path
    ) -> None:
        """It assigned their ids again, as did a worker that replaced another."""
        older, noted = tmp_path / "older.sqlite", Expected(notes=Noted())
        async with opened(file, noted) as idle, opened(file, noted) as busy:
            copy(file, older)
            await add_pet(busy)
            write_over(file, older)
            with pytest.raises(WrongStoreError, match="it is an older copy of the store"):
                await add_pet(idle)
        with pytest.raises(WrongStoreError, match="it is an older copy of the store"):
            async with opened(file, noted):
                pass

    async def test_a_copy_of_another_store(self, file: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.sqlite"
        async with opened(other) as repository:
            await add_pet(repository)
            identity = repository.store
        async with opened(file) as repository:
            write_over(file, other)
            with pytest.raises(WrongStoreError, match=f"it holds the store {identity} now"):
                await repository.check()
            with pytest.raises(UnavailableError):
                await repository.create_pet(REX)
        async with opened(file, Expected(identity)):
            pass

    @pytest.mark.parametrize("statement", ["DROP TABLE store", "DELETE FROM store"])
    async def test_a_store_without_identity(self, file: Path, statement: str) -> None:
        async with opened(file) as repository:
            execute(file, statement)
            with pytest.raises(WrongStoreError, match="Stop the service and restore a backup"):
                await repository.check()

    async def test_nothing_that_leaves_the_store_as_it_is_is_refused(self, file: Path) -> None:
        """Other handles write, and an operator's tools change the file."""
        async with opened(file) as repository, opened(file) as other:
            for statement in ("VACUUM", "ANALYZE", "DELETE FROM pets", "REINDEX"):
                await asyncio.gather(*(add_pet(each) for each in (repository, other) * 9))
                execute(file, statement)
                await repository.check()
                await other.check()


class TestRecords:
    """Records of tokens that point to what is no longer there, and their pages."""

    async def test_a_record_of_a_pet_that_was_deleted(self, file: Path) -> None:
        """A retry got 201 for a pet that was not found."""
        async with opened(file) as repository:
            await repository.create_pet(REX, TOKEN)
            await repository.place_order(1, AT, OTHER_TOKEN)
            execute(file, "DELETE FROM orders; DELETE FROM pets")
            token = f"token is x'{TOKEN.value.hex()}'"
            with pytest.raises(UnavailableError, match=f"pet 1 is not stored.*{token}"):
                await repository.create_pet(REX, TOKEN)
            with pytest.raises(UnavailableError, match="order 1 is not stored"):
                await repository.place_order(1, AT, OTHER_TOKEN)
            await repository.restore([Pet(1, "Rex", 7)])
            assert (await repository.create_pet(REX, TOKEN)).replayed

    async def test_a_page_of_expired_records_is_empty_and_not_the_last(self, file: Path) -> None:
        records = [TokenRecord(bytes([n] * 32), bytes(32), 1000 + n, n + 1) for n in range(8)]
        async with opened(file) as repository:
            await repository.restore(records)
            first = await repository.list_tokens("", 2, 1004)
            assert first.next
            assert first.records == []
