"""The writer: changes that wait share a transaction, and each gets its own answer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import SqliteSettings, open_sqlite, schema
from petstore_sqlite.writer import Writer

from petstore.contract import NewPet, StorageError

Change = Callable[[apsw.Connection], int]


class Gate:
    """A writer whose thread waits until the gate opens: what it is given meanwhile goes together.

    commits -- how many transactions there were after that
    """

    def __init__(self, connection: apsw.Connection, writer: Writer) -> None:
        self.commits = -1  # the gate's own
        self.writer = writer
        self._open = threading.Event()
        connection.set_commit_hook(self._count)

    def _count(self) -> bool:
        self.commits += 1
        return False

    async def close(self) -> None:
        self._open.clear()
        inside = threading.Event()

        def wait(_: apsw.Connection) -> None:
            inside.set()
            assert self._open.wait(10)

        self._waiting = asyncio.create_task(self.writer.carry_out(wait))
        await asyncio.to_thread(inside.wait, 10)

    def open(self) -> None:
        self._open.set()

    async def give(self, *changes: Change) -> list["asyncio.Task[int]"]:
        tasks = [asyncio.create_task(self.writer.carry_out(change)) for change in changes]
        await asyncio.sleep(0)
        return tasks


@asynccontextmanager
async def gate(file: Path) -> AsyncIterator[Gate]:
    """Yield a closed gate at a new file."""
    with schema.connect(str(file), 0.2) as connection:
        schema.upgrade(connection, str(file), 0.2)
        async with Writer(connection, str(file)) as writer:
            made = Gate(connection, writer)
            await made.close()
            try:
                yield made
            finally:
                made.open()
                with suppress(StorageError, RuntimeError):
                    await made._waiting  # noqa: SLF001


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pets.sqlite"


def insert(connection: apsw.Connection) -> int:
    connection.execute("INSERT INTO pets (name, category_id) VALUES ('Rex', 7)")
    return connection.last_insert_rowid()


def refuse(_: apsw.Connection) -> int:
    raise StorageError("sold already")


def fail(connection: apsw.Connection) -> int:
    insert(connection)
    raise RuntimeError("nobody declared this")


async def names(file: Path) -> list[str]:
    async with open_sqlite(SqliteSettings(path=str(file))) as repository:
        return [pet.name for pet in await repository.list_pets(0, 10_000, None)]


def test_changes_that_wait_share_a_transaction(file: Path) -> None:
    async def run() -> None:
        async with gate(file) as closed:
            tasks = await closed.give(*[insert] * 200)
            closed.open()
            assert await asyncio.gather(*tasks) == list(range(1, 201))
            assert closed.commits == 1

    asyncio.run(run())


def test_concurrent_creates_take_far_fewer_transactions(file: Path) -> None:
    async def run() -> None:
        async with open_sqlite(SqliteSettings(path=str(file))) as repository:
            commits: list[None] = []
            repository._writer._connection.set_commit_hook(lambda: bool(commits.append(None)))  # type: ignore[func-returns-value] # noqa: SLF001
            creates = [repository.create_pet(NewPet(f"{n}", n)) for n in range(200)]
            receipts = await asyncio.gather(*creates)
            assert len({receipt.id for receipt in receipts}) == 200
            assert 1 <= len(commits) <= 20

    asyncio.run(run())


def test_a_refused_change_fails_alone(file: Path) -> None:
    async def run() -> None:
        async with gate(file) as closed:
            tasks = await closed.give(insert, refuse, insert, refuse, insert)
            closed.open()
            first, refused, second, also, third = await asyncio.gather(
                *tasks, return_exceptions=True
            )
            assert (first, second, third) == (1, 2, 3)
            for outcome in (refused, also):
                assert type(outcome) is StorageError
                assert str(outcome) == "sold already"
            assert closed.commits == 1
        assert await names(file) == ["Rex"] * 3

    asyncio.run(run())


def test_an_undeclared_error_undoes_its_transaction_and_no_other(file: Path) -> None:
    async def run() -> None:
        async with gate(file) as closed:
            tasks = await closed.give(insert, fail, insert)
            closed.open()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [RuntimeError] * 3
            assert closed.commits == 0
            [after] = await closed.give(insert)
            assert await after >= 1
        assert await names(file) == ["Rex"]

    asyncio.run(run())


def test_a_cancelled_caller_disturbs_no_other(file: Path) -> None:
    async def run() -> None:
        async with gate(file) as closed:
            tasks = await closed.give(insert, insert, insert)
            tasks[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[1]
            closed.open()
            assert [await tasks[0], await tasks[2]] == [1, 3]
        assert await names(file) == ["Rex"] * 3

    asyncio.run(run())


def test_closing_carries_out_what_waits(file: Path) -> None:
    async def run() -> None:
        async with gate(file) as closed:
            tasks = await closed.give(*[insert] * 50)
            asyncio.get_running_loop().call_later(0.1, closed.open)
            closing = asyncio.create_task(closed.writer.__aexit__())
            assert await asyncio.gather(*tasks) == list(range(1, 51))
            await closing
        assert len(await names(file)) == 50

    asyncio.run(run())


def test_a_long_queue_is_carried_out_in_turns(file: Path) -> None:
    async def run() -> None:
        async with gate(file) as closed:
            tasks = await closed.give(*[insert] * 2500)
            closed.open()
            assert await asyncio.gather(*tasks) == list(range(1, 2501))
            assert closed.commits == 3

    asyncio.run(run())
