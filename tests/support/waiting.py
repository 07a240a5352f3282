"""Waiting for another process, thread or server."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import httpx

Result = TypeVar("Result")

PATIENCE: Final = float(os.environ.get("PETSTORE_TEST_PATIENCE", "1"))
"""A factor for every time limit of the tests, for machines that are slower or busier still."""

HANG_SECONDS: Final = 60 * PATIENCE
"""After this time, what should have happened long ago is taken for a hang, and the test fails."""

NOT_YET: Final[tuple[type[Exception], ...]] = (OSError, httpx.TransportError)
"""Errors while a port may not be open yet, or a file may not exist yet."""


def alive(process_id: int) -> bool:
    """Return whether a process is running."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(
    holds: Callable[[], Result | None],
    seconds: float = HANG_SECONDS,
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


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until a condition holds, while the event loop goes on."""
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110 - nothing says that it does
            await asyncio.sleep(0.001)
