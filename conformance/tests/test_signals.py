"""Signals that end the kit: none is lost, and none interrupts a cleanup."""

import signal
from collections.abc import Iterator

import pytest
from petstore_conformance.harness.alarm import signals_to_stop, uninterrupted


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Let SIGINT raise `KeyboardInterrupt`, also where a shell has made it ignored."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def test_a_signal_whose_exception_was_lost_is_remembered_once() -> None:
    with signals_to_stop() as arrived:
        assert not arrived()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert arrived()
        assert not arrived()


def test_a_signal_during_a_cleanup_waits_for_its_end() -> None:
    def clean_up() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            ended.append(True)

    ended = list[bool]()
    with pytest.raises(KeyboardInterrupt):
        clean_up()
    assert ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_cleanup_without_a_signal_restores_the_handler() -> None:
    with uninterrupted():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
