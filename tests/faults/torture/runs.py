"""What a set-up of the torture is told, and when it cannot run."""

from collections.abc import Callable, Generator
from pathlib import Path

from msgspec import Struct
from petstore_conformance.faults.verdicts import RoundOutcome


class Run(Struct, frozen=True):
    """The part of a run that one set-up has.

    seconds -- how long new rounds are begun
    end -- when the last one is cut short, on the monotonic clock
    """

    seed: int
    seconds: float
    end: float


Outcomes = Generator[RoundOutcome, None, None]

SetUp = Callable[[Path, Run], Outcomes]
"""Starts servers in an empty directory, runs a round each time that the next outcome is asked for,
and stops the servers when it is closed."""


class LeftOutError(Exception):
    """A set-up cannot run on this machine; the message says why."""
