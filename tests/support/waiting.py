"""Waiting for another process, thread or server."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

import httpx

Result = TypeVar("Result")

NOT_YET: Final[tuple[type[Exception], ...]] = (OSError, httpx.TransportError)
"""Errors while a port may not be open yet, or a file may not exist yet."""


def until(
    holds: Callable[[], Result | None],
    seconds: float = 20,
    log: Callable[[], str] = str,
    errors: tuple[type[Exception], ...] = NOT_YET,
) -> Result:
    """Wait until a condition holds; return its result.

    holds -- returns a true value once it holds
    seconds -- how long to wait before the test fails
    log -- returns a text for the failure message
    errors -- if `holds` raises one of these, the condition does not hold yet
    """
    end = time.monotonic() + seconds
    while True:
        reason: Exception | None = None
        try:
            if held := holds():
                return held
        except errors as error:
            reason = error
        if time.monotonic() > end:
            raise AssertionError(f"still not true after {seconds} s: {log()}") from reason
        time.sleep(0.02)
