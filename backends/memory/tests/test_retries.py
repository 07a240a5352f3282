"""Records of retries: expired ones are dropped, so that they do not fill the memory."""

from petstore_memory.retries import Retries

from petstore.contract import Receipt, Retry


def retry(number: int, now: int, until: int = 0) -> Retry:
    return Retry(number.to_bytes(32, "big"), bytes(32), now, until or now + 100)


def test_expired_records_are_dropped_as_others_are_found() -> None:
    retries = Retries()
    for number in range(1000):
        assert retries.find(retry(number, number)) is None
        retries.record(retry(number, number), number)
    assert len(retries) == 100
    assert retries.find(retry(950, 999)) == Receipt(950, replayed=True)


def test_a_token_that_is_used_anew_outlives_its_first_record() -> None:
    retries = Retries()
    retries.record(retry(1, 0, until=10), 1)
    assert retries.find(retry(1, 10)) is None
    retries.record(retry(1, 10, until=30), 2)
    for now in (10, 11, 29):
        assert retries.find(retry(1, now)) == Receipt(2, replayed=True)
    assert retries.find(retry(1, 30)) is None
    assert len(retries) == 0


def test_a_replaced_record_does_not_take_the_newer_one_along() -> None:
    """Were the time moved back and forth, as in a test, the older expiry would come first."""
    retries = Retries()
    retries.record(retry(1, 0, until=50), 1)
    retries.record(retry(1, 0, until=90), 2)
    assert retries.find(retry(1, 60)) == Receipt(2, replayed=True)
