"""Records of tokens: expired ones are deleted, and no wrong clock deletes a valid one."""

import asyncio
import time
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

    uptime -- starts at zero with the machine
    time -- the time of day
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.uptime = 0
        self.time = NOW
        self._monkeypatch = monkeypatch
        self._restarts = 0
        monkeypatch.setattr(time, "clock_gettime", lambda _: float(self.uptime))
        monkeypatch.setattr(tokens, "BOOT", "first")

    def pass_(self, seconds: int) -> None:
        self.uptime += seconds
        self.time += seconds

    def restart(self, *, off: int = 60, noticed: bool = True) -> None:
        """Restart the machine, which is off for so many seconds.

        noticed -- whether this run of the machine has another name, as it has on Linux
        """
        self.time += off
        self.uptime = 0
        if noticed:
            self._restarts += 1
            self._monkeypatch.setattr(tokens, "BOOT", f"restart {self._restarts}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


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


async def test_a_record_that_is_renewed_replaces_no_other(file: Path, clock: Clock) -> None:
    """It did: the other one had been given the number of the expired record, which was deleted."""
    async with opened(file) as repository:
        await repository.create_pet(REX, token(1, clock.time))
        clock.pass_(LIFE)
        tokens_ = [token(number, clock.time) for number in (2, 1)]
        receipts = await asyncio.gather(*(repository.create_pet(REX, each) for each in tokens_))
        again = await asyncio.gather(*(repository.create_pet(REX, each) for each in tokens_))
    assert again == [Receipt(receipt.id, replayed=True) for receipt in receipts]


@pytest.mark.parametrize("process", ["one", "each batch", "each write"])
async def test_batches_with_long_pauses_do_not_let_records_pile_up(
    file: Path, clock: Clock, process: str
) -> None:
    """They did: the clock went on by a minute for each minute with a write, however long ago."""
    size, batches = 20, 5
    length = {"one": size * batches, "each batch": size, "each write": 1}[process]
    for first in range(0, size * batches, length):
        async with opened(file) as repository:
            for number in range(first, first + length):
                clock.pass_(0 if number % size else LIFE)
                await create(repository, clock, range(number, number + 1), every=0)
    assert records(file) == size


@pytest.mark.parametrize("noticed", [True, False])
async def test_restarts_of_the_machine_do_not_let_records_pile_up(
    file: Path, clock: Clock, *, noticed: bool
) -> None:
    """Those from before the last one are kept for a while: nobody knows how old they are."""
    for turn in range(6):
        clock.pass_(0 if noticed else (10 - turn) * LIFE)
        async with opened(file) as repository:
            await create(repository, clock, range(turn * 20, turn * 20 + 20))
        clock.restart(off=LIFE, noticed=noticed)
    assert records(file) == (40 if noticed else 20)


async def test_records_from_before_a_restart_are_deleted_after_their_life(
    file: Path, clock: Clock
) -> None:
    async with opened(file) as repository:
        await create(repository, clock, range(40))
    clock.restart()
    async with opened(file) as repository:
        await create(repository, clock, range(100, 400))
    assert records(file) == LIFE // 60


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
    assert records(file) == LIFE // 60
