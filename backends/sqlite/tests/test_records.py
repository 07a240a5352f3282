"""Records of tokens: expired ones are deleted, and no wrong clock deletes a valid one."""

from pathlib import Path

import pytest
from petstore_sqlite import SqliteRepository, tokens

from backends.sqlite.tests.files import execute, opened
from petstore.contract import IdempotencyToken, Receipt
from tests.support.repositories import REX, make_token

HOUR = 3600
LIFE = 2 * HOUR
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


def token(number: int, now: float) -> IdempotencyToken:
    return make_token(number, now=int(now), until=int(now) + LIFE)


def records(file: Path) -> int:
    return int(execute(file, "SELECT count(*) FROM tokens"))


async def create(
    repository: SqliteRepository, clock: Clock, numbers: range, *, ahead: int = 0, every: int = 60
) -> list[Receipt]:
    """Create pets, one after the other in time, with a clock that is so far ahead."""
    receipts = []
    for number in numbers:
        clock.pass_(every)
        receipts.append(await repository.create_pet(REX, token(number, clock.time + ahead)))
    return receipts


async def test_expired_records_are_deleted_by_later_writes(file: Path, clock: Clock) -> None:
    async with opened(file) as repository:
        await create(repository, clock, range(160), every=120)
    # A minute at most is counted for each write: two hours have 120 of them.
    assert records(file) == pytest.approx(120 + 3, abs=2)


async def test_several_writes_a_minute_are_kept_for_their_life(file: Path, clock: Clock) -> None:
    async with opened(file) as one, opened(file) as two:
        for number in range(0, 340, 2):
            await create(one, clock, range(number, number + 1), every=30)
            await create(two, clock, range(number + 1, number + 2), every=30)
    assert 2 * 120 <= records(file) <= 2 * (120 + 10)


async def test_restarts_and_pauses_do_not_let_records_pile_up(file: Path, clock: Clock) -> None:
    for day in range(6):
        async with opened(file) as repository:
            await create(repository, clock, range(day * 40, day * 40 + 40))
        clock.pass_(16 * HOUR)
        clock.monotonic = day  # the machine was off
    assert records(file) <= 120 + 20


@pytest.mark.parametrize("wrong_first", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
async def test_one_wrong_clock_deletes_no_valid_record(
    file: Path, clock: Clock, *, wrong_first: bool, restarted: bool
) -> None:
    """Also if it was the first to write, and if it is still wrong after a restart."""
    ahead = LIFE + HOUR
    async with opened(file) as right:
        async with opened(file) as wrong:
            if wrong_first:
                await create(wrong, clock, range(1000, 1001), ahead=ahead)
            receipts = await create(right, clock, range(20))
            await create(wrong, clock, range(2000, 2020), ahead=ahead)
            if not restarted:
                await create(wrong, clock, range(3000, 3020), ahead=ahead)
        if restarted:
            async with opened(file) as wrong:
                await create(wrong, clock, range(3000, 3020), ahead=ahead)
        clock.pass_(HOUR // 2)
        await create(right, clock, range(4000, 4010))
        for number, receipt in enumerate(receipts):
            again = await right.create_pet(REX, token(number, clock.time))
            assert again == Receipt(receipt.id, replayed=True)


async def test_a_clock_that_is_late_holds_up_others_only_while_its_records_live(
    file: Path, clock: Clock
) -> None:
    async with opened(file) as repository:
        await create(repository, clock, range(10_000, 10_005), ahead=-NOW)
        await create(repository, clock, range(160))
    assert records(file) <= 120 + 10
