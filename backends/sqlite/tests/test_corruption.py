"""A corrupt file: each call succeeds or raises an error of the contract, and never a wrong type."""

import asyncio
import os
import random
import re
import shutil
from collections.abc import Awaitable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import apsw
import pytest
from msgspec import ValidationError, convert, to_builtins
from petstore_sqlite import SqliteRepository

from backends.sqlite.tests.files import opened
from petstore.contract import (
    ConflictError,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    StorageError,
    UnavailableError,
)
from tests.support.repositories import AT, make_token

SEED = int(os.environ.get("PETSTORE_SEED", "14"))
CORRUPTIONS = 40
PETS = 400
PAGE = 4096
DAMAGED = "corrupt|were changed by hand|are not those that were opened|it was deleted by hand"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with pets, orders and records of tokens."""
    path = tmp_path_factory.mktemp("intact") / "pets.sqlite"

    async def fill() -> None:
        async with opened(path) as repository:
            statuses = list(PetStatus)
            await asyncio.gather(
                *(
                    repository.create_pet(
                        NewPet(f"pet {n} ä" * (n % 40), n, statuses[n % 3]), make_token(n)
                    )
                    for n in range(PETS)
                )
            )
            for n in range(1, PETS, 6):
                try:
                    receipt = await repository.place_order(n, AT, make_token(10_000 + n))
                    await repository.update_order(receipt.id, list(OrderStatus)[n // 6 % 3])
                except ConflictError:
                    continue

    asyncio.run(fill())
    return path


def corrupt(path: Path, choice: random.Random) -> str:
    """Change some bytes, or a page, or the length. Return what was done."""
    data = bytearray(path.read_bytes())
    kind = choice.choice(["bits", "bits", "bytes", "zeros", "noise", "swap", "copy", "cut"])
    first = 0 if kind in {"bits", "bytes"} else PAGE  # without its header it is not a database
    begin, other = (choice.randrange(first, len(data), PAGE) for _ in range(2))
    page, other_page = (slice(start, start + PAGE) for start in (begin, other))
    if kind == "bits":
        for _ in range(choice.randrange(1, 60)):
            data[begin + choice.randrange(PAGE)] ^= 1 << choice.randrange(8)
    elif kind == "bytes":
        begin += choice.randrange(PAGE - 64)
        data[begin : begin + 64] = choice.randbytes(64)
    elif kind == "zeros":
        data[page] = bytes(PAGE)
    elif kind == "noise":
        data[page] = choice.randbytes(PAGE)
    elif kind == "swap":
        data[page], data[other_page] = data[other_page], data[page]
    elif kind == "copy":
        data[page] = data[other_page]
    else:
        del data[choice.randrange(PAGE, len(data)) :]
    path.write_bytes(data)
    return f"{kind} in page {page.start // PAGE + 1}"


def calls(repository: SqliteRepository) -> Iterator[tuple[Awaitable[object], object]]:
    """Yield calls, each with the type of its result."""
    for status in (None, *PetStatus):
        yield repository.list_pets(PetQuery(0, PETS, status)), Sequence[Pet]
    for order_status in (None, *OrderStatus):
        yield repository.list_orders(OrderQuery(0, PETS, order_status)), Sequence[Order]
    for id_ in range(1, PETS, 7):
        yield repository.get_pet(id_), Pet | None
        yield repository.get_order(id_), Order | None
    for number in range(0, PETS, 37):
        yield repository.create_pet(NewPet("Rex", number), make_token(number)), Receipt
        yield repository.create_pet(NewPet("Rex", number), make_token(20_000 + number)), Receipt
        yield repository.create_pet(NewPet("Rex", number)), Receipt
        yield repository.place_order(number, AT, make_token(30_000 + number)), Receipt
        for order_status in (OrderStatus.COMPLETED, OrderStatus.CANCELLED):
            yield repository.update_order(number, order_status), Order
        pet = Pet(number + 1, "Rex", 7, PetStatus.AVAILABLE)
        yield repository.restore([pet, Order(number + 1, 5, OrderStatus.CANCELLED, AT)]), None


def check_type(result: object, type_: object) -> None:
    """Check that every value has exactly its type: that it survives a strict conversion."""
    assert convert(to_builtins(result, builtin_types=(datetime, bytes)), type_, strict=True) == (
        list(result) if isinstance(result, Sequence) else result
    )


async def use(path: Path) -> list[str]:
    """Make all calls; return the messages of the errors."""
    messages = []
    try:
        async with opened(path, busy_seconds=0) as repository:
            for call, type_ in calls(repository):
                try:
                    check_type(await call, type_)
                except UnavailableError as error:
                    messages.append(str(error))
                except StorageError:
                    continue
    except StorageError as error:
        messages.append(str(error))
    return messages


def test_no_corruption_causes_another_error_or_a_wrong_type(intact: Path, tmp_path: Path) -> None:
    choice = random.Random(SEED)  # noqa: S311 - not a secret
    found = 0
    for number in range(CORRUPTIONS):
        path = tmp_path / f"{number}.sqlite"
        shutil.copy(intact, path)
        done = corrupt(path, choice)
        try:
            messages = asyncio.run(use(path))
        except Exception as error:
            error.add_note(f"seed {SEED}, corruption {number}: {done}")
            raise
        assert all(re.search(DAMAGED, message) for message in messages), (number, done, messages)
        found += bool(messages)
    assert found > CORRUPTIONS // 4  # the others met a free byte, or a value of the same type


def test_the_check_of_types_notices_a_wrong_one() -> None:
    """The control."""
    check_type([Pet(1, "Rex", 7, PetStatus.SOLD)], Sequence[Pet])
    with pytest.raises(ValidationError):
        check_type(Pet(1, 7, 7), Pet)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        check_type(Receipt(1.0), Receipt)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE pets SET status = 'lost'",
        "UPDATE pets SET name = x'ff'",
        "UPDATE pets SET name = CAST(x'ff' AS TEXT)",
        "UPDATE pets SET category_id = 1.5",
        "UPDATE orders SET status = 'lost'",
        "UPDATE orders SET placed_at = 1.5",
        "UPDATE orders SET placed_at = 9223372036854775807",
        "UPDATE orders SET placed_at = 'x'",
        "UPDATE orders SET pet_id = 'x' || id",
        "UPDATE tokens SET id = 'x'",
        "UPDATE tokens SET fingerprint = 7",
        "UPDATE record_clock SET restarts = 'x'",
        "DELETE FROM record_clock",
    ],
)
def test_a_value_that_cannot_be_there_is_called_corrupt(
    intact: Path, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "pets.sqlite"
    shutil.copy(intact, path)
    connection = apsw.Connection(str(path))
    tables = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
    plain = [(name, sql.replace("STRICT, ", "").replace("STRICT", "")) for name, sql in tables]
    connection.execute("PRAGMA writable_schema = ON; PRAGMA ignore_check_constraints = ON")
    for name, sql in plain:  # without what SQLite checks when it writes
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
    connection.execute("PRAGMA writable_schema = RESET")
    connection.execute(change)
    connection.close()
    messages = asyncio.run(use(path))
    assert messages
    assert all("it is corrupt; stop the service" in message for message in messages)
