"""What a set-up of the torture is told, and when it cannot run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct
from petstore_conformance.faults.session import Repeated


class Run(Struct, frozen=True):
    """The part of a run that one set-up has.

    seconds -- how long new rounds are begun
    end -- when the last one is cut short, on the monotonic clock
    """

    seed: int
    seconds: float
    end: float


Opened = Callable[[Path, Run], AbstractContextManager[Repeated]]
"""Starts servers in an empty directory, and yields what is repeated on them."""


class LeftOutError(Exception):
    """A set-up cannot run on this machine; the message says why."""
