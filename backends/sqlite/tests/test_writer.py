"""The writer: writes that wait share a transaction, each caller gets its own result; the log."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
from petstore_sqlite import schema
from petstore_sqlite.writer import Writer
from petstore_sqlite.writes import Creation

from backends.sqlite.tests.files import opened
from petstore.contract import (
    MAX_ID,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    StorageError,
)
from tests.support.repositories import AT, REX, make_token, pets
from tests.support.waiting import HANG_SECONDS

Write = Callable[[apsw.Connection], int]


class Gate:
    """A writer whose thread waits until the gate opens: writes until then share a transaction.

    commits -- how many transactions were committed after that
    """

    def __init__(self, writer: Writer) -> None:
        self.commits = -1  # the first commit is that of the gate
        self.writer = writer
        self.connection = writer._connection  # noqa: SLF001 - to see what it executes
        self.connection.set_commit_hook(self._count)
        self._inside, self._opened = threading.Event(), threading.Event()

    def _count(self) -> bool:
        self.commits += 1
        return False

    def _wait(self, _: apsw.Connection) -> None:
        self._inside.set()
        assert self._opened.wait(HANG_SECONDS)

    async def close(self) -> None:
        self._waiting = asyncio.create_task(self.writer.submit(self._wait))
        await asyncio.to_thread(self._inside.wait, HANG_SECONDS)

    def open(self) -> None:
        self._opened.set()

    async def submit(self, *writes: Write) -> list["asyncio.Task[int]"]:
        tasks = [asyncio.create_task(self.writer.submit(write)) for write in writes]
        await asyncio.sleep(0)
        return tasks


@asynccontextmanager
async def closed_gate(file: Path) -> AsyncIterator[Gate]:
    """Yield a closed gate to a new file."""
    async with opened(file) as repository:
        gate = Gate(repository._writer)  # noqa: SLF001 - no other has a thread that can wait
        await gate.close()
        try:
            yield gate
        finally:
            gate.open()


def insert(connection: apsw.Connection) -> int:
    connection.execute("INSERT INTO pets (name, category_id) VALUES ('Rex', 7)")
    return connection.last_insert_rowid()


def refuse(_: apsw.Connection) -> int:
    raise StorageError("refused")


def fail(connection: apsw.Connection) -> int:
    insert(connection)
    raise RuntimeError("not an error of the contract")


async def names(file: Path) -> list[str]:
    async with opened(file) as repository:
        return [pet.name for pet in await pets(repository)]


@pytest.mark.parametrize(("count", "commits"), [(200, 1), (2500, 3)])
async def test_writes_that_wait_share_transactions(file: Path, count: int, commits: int) -> None:
    async with closed_gate(file) as gate:
        tasks = await gate.submit(*[insert] * count)
        gate.open()
        assert await asyncio.gather(*tasks) == list(range(1, count + 1))
        assert gate.commits == commits


async def test_calls_of_a_kind_that_wait_share_a_statement(file: Path) -> None:
    statements: list[str] = []

    def trace(_cursor: apsw.Cursor, sql: str, _values: object) -> bool:
        statements.append(sql)
        return True

    async with closed_gate(file) as gate:
        news = [NewPet(f"pet {n}", n) for n in range(200)]
        creates = [
            asyncio.create_task(gate.writer.submit(Creation(new, make_token(n) if n % 2 else None)))
            for n, new in enumerate(news)
        ]
        refused, other = await gate.submit(refuse, insert)
        creates[7].cancel()
        gate.connection.exec_trace = trace
        gate.open()
        assert await other == 201
        with pytest.raises(StorageError, match="refused"):
            await refused
        receipts = await asyncio.gather(*creates[:7], *creates[8:])
    assert sum(sql.startswith("INSERT") for sql in statements) == 2
    stored = await names(file)
    assert stored == [*(new.name for new in news), "Rex"]
    created = [new.name for new in news if new is not news[7]]
    assert [stored[receipt.id - 1] for receipt in receipts] == created


async def test_any_other_error_rolls_back_its_transaction_and_no_other(file: Path) -> None:
    async with closed_gate(file) as gate:
        tasks = await gate.submit(insert, fail, insert)
        gate.open()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RuntimeError] * 3
        assert gate.commits == 0
        [after] = await gate.submit(insert)
        assert await after >= 1
    assert await names(file) == ["Rex"]


async def test_the_last_ids_are_assigned_to_some_of_the_calls_waiting_together(file: Path) -> None:
    """The others change nothing: their pets stay available, and their tokens have no records."""
    async with opened(file) as repository:
        free = [Pet(n, "free", 1, PetStatus.AVAILABLE) for n in range(1, 6)]
        last = Order(MAX_ID - 2, MAX_ID - 2, OrderStatus.CANCELLED, AT)
        await repository.restore([*free, Pet(MAX_ID - 2, "last but two", 1), last])
        orders = [repository.place_order(n, AT, make_token(n)) for n in range(1, 6)]
        creates = [repository.create_pet(REX, make_token(n)) for n in range(11, 16)]
        for calls in (creates, orders):
            results = await asyncio.gather(*calls, return_exceptions=True)
            receipts = [result for result in results if isinstance(result, Receipt)]
            assert sorted(receipt.id for receipt in receipts) == [MAX_ID - 1, MAX_ID]
            assert [type(result) for result in results].count(StorageError) == 3
        found = await pets(repository)
        assert [pet.id for pet in found][5:] == [MAX_ID - 2, MAX_ID - 1, MAX_ID]
        assert [pet.status for pet in found].count(PetStatus.PENDING) == 2
        assert len((await repository.list_tokens("", 9, 0)).records) == 4


async def test_a_log_that_a_reader_has_made_long_is_truncated(file: Path) -> None:
    """It stayed at 203 MB."""
    large = NewPet("x" * 1_000_000, 7)
    wal = file.with_name(f"{file.name}-wal")
    async with opened(file) as repository:
        reader = apsw.Connection(str(file))
        reader.execute("BEGIN; SELECT count(*) FROM pets")
        for _ in range(40):
            await repository.create_pet(large)
        assert wal.stat().st_size > 2 * schema.WAL_LIMIT
        reader.close()
        # After the first commit it is copied, with the second it starts over.
        for _ in range(2):
            await repository.create_pet(REX)
        assert wal.stat().st_size <= schema.WAL_LIMIT
