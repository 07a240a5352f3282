"""Records of tokens: expired ones are dropped, so that they do not pile up."""

from petstore_memory.idempotency import IdempotencyRecords

from petstore.contract import IdempotencyToken, Receipt


def make_token(number: int, now: int, until: int = 0) -> IdempotencyToken:
    return IdempotencyToken(number.to_bytes(32, "big"), bytes(32), now, until or now + 100)


def test_expired_records_are_dropped_by_later_writes() -> None:
    records = IdempotencyRecords()
    for number in range(1000):
        assert records.find(make_token(number, number)) is None
        records.add(make_token(number, number), number)
    assert len(records) == 100
    assert records.find(make_token(950, 999)) == Receipt(950, replayed=True)


def test_a_token_that_is_used_again_outlives_its_first_record() -> None:
    records = IdempotencyRecords()
    records.add(make_token(1, 0, until=10), 1)
    assert records.find(make_token(1, 10)) is None
    records.add(make_token(1, 10, until=30), 2)
    for now in (10, 11, 29):
        assert records.find(make_token(1, now)) == Receipt(2, replayed=True)
    assert records.find(make_token(1, 30)) is None
    assert len(records) == 0


def test_the_expiry_of_a_replaced_record_does_not_drop_the_newer_one() -> None:
    """A caller whose clock goes back, as a test's may, replaces a record that is still valid."""
    records = IdempotencyRecords()
    records.add(make_token(1, 0, until=50), 1)
    records.add(make_token(1, 0, until=90), 2)
    assert records.find(make_token(1, 60)) == Receipt(2, replayed=True)
