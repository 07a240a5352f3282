"""Time limits, one of which holds even if a plugin loops for ever, or swallows its cancellation."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from types import FrameType
from typing import Final

AGAIN_SECONDS: Final = 5
"""How long closing may take after the alarm, before it rings again."""


class AlarmError(BaseException):
    """The alarm has rung. Not an `Exception`, which a plugin might catch, only to continue."""


class OverdueError(AssertionError):
    """Something has not ended in time. Nothing else is wrong, so a busy machine may explain it."""


@asynccontextmanager
async def within(seconds: float, what: str = "the test") -> AsyncIterator[None]:
    """Cancel the block after a time; raise `OverdueError` then.

    what -- is named in the message
    """
    __tracebackhide__ = True
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise OverdueError(f"{what} has not ended within {seconds:g} s") from error


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Interrupt the block after a time, wherever it is, and again until it ends.

    Raises `OverdueError` then. It does nothing outside the main thread, and where the operating
    system has no interval timers: only `asyncio.timeout` ends a test there.
    """
    __tracebackhide__ = True
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    rung: list[AlarmError] = []

    def ring(_number: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        rung.append(AlarmError(f"interrupted here after {monotonic() - begin:.0f} s"))
        raise rung[-1]

    begin = monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    except AlarmError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # someone else's, such as that of pytest-timeout
            left = max(left - (monotonic() - begin), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, interval)
    if rung:  # also if it was swallowed
        raise OverdueError(f"the test has not ended within {seconds:g} s") from rung[0]
