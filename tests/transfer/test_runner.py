"""Ctrl-C while the storage is called: the call ends first."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from petstore.transfer.runner import Calls


@pytest.fixture
def calls() -> Iterator[Calls]:
    """Return calls; SIGINT is given back at the end."""
    before = signal.getsignal(signal.SIGINT)
    with Calls() as calls:
        yield calls
    assert signal.getsignal(signal.SIGINT) is before


def interrupt() -> None:
    """Send SIGINT to this process."""
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_call_ends_first(calls: Calls) -> None:
    steps = []

    async def call() -> None:
        interrupt()
        steps.append("interrupted")
        await asyncio.sleep(0)
        steps.append("ended")

    with pytest.raises(KeyboardInterrupt):
        calls.run(call())
    assert steps == ["interrupted", "ended"]


def test_an_interrupt_at_the_very_end_of_a_call_is_not_lost(calls: Calls) -> None:
    async def call() -> None:
        asyncio.get_running_loop().call_soon(interrupt)

    with pytest.raises(KeyboardInterrupt):
        calls.run(call())


def test_a_second_interrupt_ends_a_call_that_waits(calls: Calls) -> None:
    async def call() -> None:
        for seconds in (0, 0.01):
            asyncio.get_running_loop().call_later(seconds, interrupt)
        await asyncio.sleep(3600)

    with pytest.raises(KeyboardInterrupt):
        calls.run(call())


def test_an_interrupt_between_two_calls_is_raised_at_once(calls: Calls) -> None:
    calls.run(asyncio.sleep(0))
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert calls.run(asyncio.sleep(0, "after it")) == "after it"
