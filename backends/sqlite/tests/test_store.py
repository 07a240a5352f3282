"""Which store is served: the expected one or none, and none that went back to an older state."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import SqliteRepository, SqliteSettings, open_sqlite, schema

from petstore.contract import (
    ChangeNeededError,
    Expected,
    IdempotencyToken,
    NewPet,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    TokenRecord,
    UnavailableError,
    WrongStoreError,
)

AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
REX = NewPet("Rex", 7, PetStatus.AVAILABLE)
TOKEN = IdempotencyToken(bytes(32), bytes(32), 1000, 9000)
OTHER_TOKEN = IdempotencyToken(bytes(31) + b"1", bytes(32), 1000, 9000)
OLDER_SCHEMA = 3

Use = Callable[[SqliteRepository], Awaitable[object]]


def use(file: Path, work: Use, expected: Expected = Expected()) -> str:  # noqa: B008 - frozen
    """Open the store, use it and close it; return its identity."""

    async def run() -> str:
        async with open_sqlite(SqliteSettings(path=str(file)), expected) as repository:
            await work(repository)
            return repository.store

    return asyncio.run(run())


async def nothing(_: SqliteRepository) -> None:
    """Leave the store as it is."""


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


def execute(file: Path, statements: str) -> None:
    connection = apsw.Connection(str(file))
    connection.execute(statements)
    connection.close()


class TestExpected:
    """`Expected` decides what may be opened; what is refused is left as it was."""

    @pytest.mark.parametrize(
        ("expected", "error", "message"),
        [
            (Expected("a"), WrongStoreError, "the store a is expected in it. Check that the disk"),
            (Expected(create=False), ChangeNeededError, "no such file; it would be created"),
        ],
    )
    def test_no_file_is_created(
        self, file: Path, expected: Expected, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            use(file, nothing, expected)
        assert [*file.parent.iterdir()] == []

    @pytest.mark.parametrize(
        ("expected", "error", "message"),
        [
            (Expected("a"), WrongStoreError, "it holds no store; a is expected"),
            (Expected(create=False), ChangeNeededError, "a store would be created in it"),
        ],
    )
    def test_no_store_is_created_in_an_empty_file(
        self, file: Path, expected: Expected, error: type[Exception], message: str
    ) -> None:
        file.touch()
        with pytest.raises(error, match=message):
            use(file, nothing, expected)
        assert [*file.parent.iterdir()] == [file]
        assert file.read_bytes() == b""

    def test_a_missing_folder_is_no_place_for_a_new_store(self, file: Path) -> None:
        with pytest.raises(UnavailableError, match="missing does not exist; create it"):
            use(file.parent / "missing" / file.name, nothing, Expected(create=False))

    def test_an_older_schema_is_upgraded_only_if_that_is_allowed(self, file: Path) -> None:
        older = apsw.Connection(str(file))
        older.execute("".join(schema.MIGRATIONS[:OLDER_SCHEMA]))
        older.pragma("application_id", schema.APPLICATION_ID)
        older.pragma("user_version", OLDER_SCHEMA)
        older.close()
        before = file.read_bytes()
        with pytest.raises(ChangeNeededError, match=r"upgraded from version 3 to \d+$"):
            use(file, nothing, Expected(upgrade=False))
        with pytest.raises(WrongStoreError, match="it holds no store; a is expected"):
            use(file, nothing, Expected("a"))
        assert file.read_bytes() == before
        identity = use(file, add_pet)
        assert use(file, nothing, Expected(identity, create=False, upgrade=False)) == identity

    def test_another_store_is_refused(self, file: Path, tmp_path: Path) -> None:
        other = use(tmp_path / "other.sqlite", nothing)
        identity = use(file, add_pet)
        before = file.read_bytes()
        with pytest.raises(WrongStoreError, match=f"holds the store {identity}; {other} is exp"):
            use(file, nothing, Expected(other))
        assert file.read_bytes() == before


async def order(repository: SqliteRepository) -> None:
    await repository.place_order(1, AT)


async def complete(repository: SqliteRepository) -> None:
    await repository.update_order(1, OrderStatus.COMPLETED)


async def restore_record(repository: SqliteRepository) -> None:
    await repository.restore([TokenRecord(bytes(32), bytes(32), 9000, 1)])


async def check(repository: SqliteRepository) -> None:
    await repository.check()


class TestLook:
    """An older copy or another store in the open file is refused, by each handle of it."""

    @pytest.mark.parametrize("change", [add_pet, order, complete, restore_record])
    @pytest.mark.parametrize("notice", [check, add_pet])
    def test_an_older_copy_in_the_open_file(
        self, file: Path, tmp_path: Path, change: Use, notice: Use
    ) -> None:
        """Ids were assigned twice, and a sold pet was available again."""
        older = tmp_path / "older.sqlite"

        async def prepare(repository: SqliteRepository) -> None:
            await add_pet(repository)
            if change is complete:
                await order(repository)
            copy(file, older)

        async def lose(repository: SqliteRepository) -> None:
            await change(repository)
            write_over(file, older)
            for call, error in ((notice, WrongStoreError), (check, WrongStoreError)):
                with pytest.raises(error, match="it is an older copy of the store"):
                    await call(repository)
            for read in (repository.get_pet(1), repository.list_pets(PetQuery(0, 9))):
                with pytest.raises(UnavailableError, match="it is an older copy of the store"):
                    await read

        use(file, prepare)
        use(file, lose)
        assert use(file, add_pet)  # it is served once it is opened again

    def test_a_copy_of_another_store(self, file: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.sqlite"
        identity = use(other, add_pet)

        async def lose(repository: SqliteRepository) -> None:
            write_over(file, other)
            with pytest.raises(WrongStoreError, match=f"it holds the store {identity} now"):
                await repository.check()
            with pytest.raises(UnavailableError):
                await repository.create_pet(REX)

        use(file, lose)
        use(file, nothing, Expected(identity))

    @pytest.mark.parametrize("statement", ["DROP TABLE store", "DELETE FROM store"])
    def test_a_store_without_identity(self, file: Path, statement: str) -> None:
        async def lose(repository: SqliteRepository) -> None:
            execute(file, statement)
            with pytest.raises(WrongStoreError, match="Stop the service and restore a backup"):
                await repository.check()

        use(file, lose)

    def test_a_file_that_is_put_back_stays_refused(self, file: Path) -> None:
        moved = file.with_name("moved")

        async def lose(repository: SqliteRepository) -> None:
            os.rename(file, moved)  # noqa: PTH104
            with pytest.raises(WrongStoreError, match="was deleted, moved or replaced"):
                await repository.check()
            os.rename(moved, file)  # noqa: PTH104
            for call in (check, add_pet):
                with pytest.raises(WrongStoreError, match="was deleted, moved or replaced"):
                    await call(repository)

        use(file, lose)

    def test_nothing_that_leaves_the_store_as_it_is_is_refused(self, file: Path) -> None:
        """Other handles write, and an operator's tools change the file."""

        async def change(repository: SqliteRepository) -> None:
            async with open_sqlite(SqliteSettings(path=str(file)), Expected()) as other:
                for statement in ("VACUUM", "ANALYZE", "DELETE FROM pets", "REINDEX"):
                    await asyncio.gather(*(add_pet(each) for each in (repository, other) * 9))
                    execute(file, statement)
                    await repository.check()
                    await other.check()

        use(file, change)

    def test_a_write_that_fails_is_not_missed(self, file: Path) -> None:
        async def fail(repository: SqliteRepository) -> None:
            execute(file, "ALTER TABLE tokens RENAME TO hidden")
            with pytest.raises(UnavailableError, match=r"changed by hand.* no such table: tokens"):
                await repository.create_pet(REX, TOKEN)
            await repository.check()

        use(file, fail)


class TestRecords:
    """Records of tokens that point to what is no longer there, and their pages."""

    def test_a_record_of_a_pet_that_was_deleted(self, file: Path) -> None:
        """A retry got 201 for a pet that was not found."""

        async def retry(repository: SqliteRepository) -> None:
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

        use(file, retry)

    def test_a_page_of_expired_records_is_empty_and_not_the_last(self, file: Path) -> None:
        records = [TokenRecord(bytes([n] * 32), bytes(32), 1000 + n, n + 1) for n in range(8)]

        async def walk(repository: SqliteRepository) -> None:
            await repository.restore(records)
            found, cursor, pages = [], "", 0
            while pages == 0 or cursor:
                page = await repository.list_tokens(cursor, 2, 1004)
                found += page.records
                cursor, pages = page.next, pages + 1
            assert found == records[5:]
            assert pages == 5

        use(file, walk)
