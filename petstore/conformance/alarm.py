"""Time limits, one of which holds even if a plugin loops for ever, or swallows its cancellation."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from types import FrameType
from typing import Any, Final

AGAIN_SECONDS: Final = 5
"""How long closing may take after the alarm, before it rings again."""

LATER_SECONDS: Final = 0.01
"""How much later the alarm rings if its exception would be lost."""


class AlarmError(BaseException):
    """The alarm has rung. Not an `Exception`, which a plugin might catch, only to continue."""


class OverdueError(AssertionError):
    """Something has not ended in time. Nothing else is wrong, so a busy machine may explain it."""


def stack(task: "asyncio.Task[Any]") -> str:
    """Return where a task waits: a line for each of its coroutines, the outermost first."""
    coroutine: Any = task.get_coro()
    lines = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        code = frame.f_code
        lines.append(f"  {code.co_filename}:{frame.f_lineno} in {code.co_qualname}")
        coroutine = coroutine.cr_await
    return "\n".join(lines)


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
        # Its cause is where the call waited; where asyncio raised it is of no interest.
        raise OverdueError(f"{what} has not ended within {seconds:g} s") from error.__cause__


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

    def ring(_number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if _collects_garbage(frame):
            signal.setitimer(signal.ITIMER_REAL, LATER_SECONDS, AGAIN_SECONDS)
            return
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


def _collects_garbage(frame: FrameType | None) -> bool:
    """Return whether a callback of the collector runs, whose exceptions Python ignores.

    Hypothesis has one. A signal that arrives during a long collection is handled in it.
    """
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        if frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False
