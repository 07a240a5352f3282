"""Records of tokens: expired ones are dropped, so that they do not pile up."""

import pytest
from petstore_memory import idempotency
from petstore_memory.idempotency import IdempotencyRecords

from petstore.contract import IdempotencyToken, Receipt


def make_token(number: int, now: int, until: int = 0) -> IdempotencyToken:
    return IdempotencyToken(number.to_bytes(32, "big"), bytes(32), now, until or now + 100)


class Clock:
    """The monotonic clock of the records: it advances only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(idempotency, "monotonic", clock)
    return clock


def test_a_clock_that_jumps_and_comes_back_drops_no_valid_record(clock: Clock) -> None:
    """Records were dropped by the caller's clock alone: a retry then had a second effect."""
    records = IdempotencyRecords()
    day, jump = 24 * 3600, 25 * 3600
    for number in range(10):
        clock.now = number
        records.add(make_token(number, number, number + day), number)
    wrong = make_token(10, 10 + jump, 10 + jump + day)
    for _ in range(10):
        assert records.find(wrong) is None
    records.add(wrong, 10)
    for number in range(10):
        assert records.find(make_token(number, 11)) == Receipt(number, replayed=True)
    for number in range(20):
        clock.now = day + number
        assert records.find(make_token(99, day + number)) is None
    assert len(records) == 1  # that of the wrong clock, whose time has not come


def test_records_of_a_clock_that_is_late_hold_up_others_only_while_they_live(clock: Clock) -> None:
    records = IdempotencyRecords()
    records.add(make_token(0, -(10**9)), 0)
    for number in range(1, 500):
        clock.now = number
        assert records.find(make_token(number, number)) is None
        records.add(make_token(number, number), number)
    assert len(records) == 100
