"""Waiting for another process, thread or server."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def until(
    holds: Callable[[], Result | None], seconds: float = 20, log: Callable[[], str] = str
) -> Result:
    """Wait until a condition holds; return its result.

    holds -- returns a true value once it holds; an `OSError` counts as "not yet", because a port
        may not be open or a file may not exist
    seconds -- how long to wait before the test fails
    log -- returns a text for the failure message
    """
    end = time.monotonic() + seconds
    while True:
        reason: OSError | None = None
        try:
            if held := holds():
                return held
        except OSError as error:
            reason = error
        if time.monotonic() > end:
            raise AssertionError(f"still not true after {seconds} s: {log()}") from reason
        time.sleep(0.02)
