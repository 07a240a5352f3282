"""Records of tokens: expired ones are deleted, and no wrong clock deletes a valid one."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest
from petstore_sqlite import SqliteRepository, SqliteSettings, open_sqlite, tokens

from petstore.contract import Expected, IdempotencyToken, NewPet, Receipt

REX = NewPet("Rex", 7)
HOUR = 3600
DAY = 24 * HOUR
NOW = 1_790_000_000


class Clock:
    """The clocks of all processes: they advance only when a test says so.

    monotonic -- starts at zero with the machine
    time -- the time of day
    """

    def __init__(self) -> None:
        self.monotonic = 0.0
        self.time = NOW

    def __call__(self) -> float:
        return self.monotonic

    def pass_(self, seconds: int) -> None:
        self.monotonic += seconds
        self.time += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tokens, "monotonic", clock)
    return clock


@pytest.fixture
def settings(tmp_path: Path) -> SqliteSettings:
    return SqliteSettings(path=str(tmp_path / "pets.sqlite"))


def token(number: int, now: float, life: int = DAY) -> IdempotencyToken:
    return IdempotencyToken(number.to_bytes(32, "big"), bytes(32), int(now), int(now) + life)


def records(settings: SqliteSettings) -> int:
    connection = apsw.Connection(settings.path)
    try:
        return int(connection.execute("SELECT count(*) FROM tokens").get)
    finally:
        connection.close()


async def create(
    repository: SqliteRepository, clock: Clock, numbers: range, *, ahead: int = 0, every: int = 60
) -> list[Receipt]:
    """Create pets, one after the other in time, with a clock that is so far ahead."""
    receipts = []
    for number in numbers:
        clock.pass_(every)
        receipts.append(await repository.create_pet(REX, token(number, clock.time + ahead)))
    return receipts


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_expired_records_are_deleted_by_later_writes(
    settings: SqliteSettings, clock: Clock
) -> None:
    async def work() -> None:
        async with open_sqlite(settings, Expected()) as repository:
            await create(repository, clock, range(1800), every=120)

    run(work())
    # A minute at most is counted for each write: a day has 1,440 of them.
    assert records(settings) == pytest.approx(1440 + 3, abs=2)


def test_several_writes_a_minute_are_kept_for_a_day(settings: SqliteSettings, clock: Clock) -> None:
    async def work() -> None:
        async with (
            open_sqlite(settings, Expected()) as one,
            open_sqlite(settings, Expected()) as two,
        ):
            for number in range(0, 3400, 2):
                await create(one, clock, range(number, number + 1), every=30)
                await create(two, clock, range(number + 1, number + 2), every=30)

    run(work())
    assert 2 * 1440 <= records(settings) <= 2 * (1440 + 10)


def test_restarts_and_pauses_do_not_let_records_pile_up(
    settings: SqliteSettings, clock: Clock
) -> None:
    async def work() -> None:
        for day in range(6):
            async with open_sqlite(settings, Expected()) as repository:
                await create(repository, clock, range(day * 400, day * 400 + 400))
            clock.pass_(16 * HOUR)
            clock.monotonic = day  # the machine was off

    run(work())
    assert records(settings) <= 1440 + 20


@pytest.mark.parametrize("ahead", [25 * HOUR, 10 * 365 * DAY])
@pytest.mark.parametrize("wrong_first", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_one_wrong_clock_deletes_no_valid_record(
    settings: SqliteSettings, clock: Clock, ahead: int, wrong_first: bool, restarted: bool
) -> None:
    """Also if it was the first to write, and if it is still wrong after a restart."""

    async def work() -> None:
        async with open_sqlite(settings, Expected()) as right:
            async with open_sqlite(settings, Expected()) as wrong:
                if wrong_first:
                    await create(wrong, clock, range(1000, 1001), ahead=ahead)
                receipts = await create(right, clock, range(60))
                await create(wrong, clock, range(2000, 2060), ahead=ahead)
                if not restarted:
                    await create(wrong, clock, range(3000, 3060), ahead=ahead)
            if restarted:
                async with open_sqlite(settings, Expected()) as wrong:
                    await create(wrong, clock, range(3000, 3060), ahead=ahead)
            clock.pass_(20 * HOUR)
            await create(right, clock, range(4000, 4010))
            for number, receipt in enumerate(receipts):
                again = await right.create_pet(REX, token(number, clock.time))
                assert again == Receipt(receipt.id, replayed=True)

    run(work())


def test_a_clock_that_is_late_holds_up_others_only_while_its_records_live(
    settings: SqliteSettings, clock: Clock
) -> None:
    async def work() -> None:
        async with open_sqlite(settings, Expected()) as repository:
            await create(repository, clock, range(10_000, 10_005), ahead=-NOW)
            await create(repository, clock, range(1800))

    run(work())
    assert records(settings) <= 1440 + 10
