"""Records of tokens: none is dropped too early."""

from types import SimpleNamespace

import pytest
from petstore_memory import idempotency
from petstore_memory.idempotency import IdempotencyRecords

from petstore.contract import IdempotencyToken, Receipt


def make_token(number: int, now: int, until: int = 0) -> IdempotencyToken:
    return IdempotencyToken(number.to_bytes(32, "big"), bytes(32), now, until or now + 100)


def test_a_clock_that_jumps_and_comes_back_drops_no_valid_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records were dropped by the caller's clock alone: a retry then had a second effect."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(idempotency, "monotonic", lambda: clock.now)
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
    assert len(records.page(b"", 99, 0)) == 1  # that of the wrong clock, whose time has not come
