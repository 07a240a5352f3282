"""Time limits and signals. One limit holds even if a plugin loops or swallows cancellation."""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any, Final

from petstore.contract import UnavailableError

CANCEL_SECONDS = 5.0  # how long a cancelled call may take to end
AGAIN_SECONDS: Final = 5  # how long closing may take after the alarm, before it rings again


class AlarmError(BaseException):
    """The alarm has rung. Not an `Exception`, which a plugin might catch, only to continue."""


class OverdueError(AssertionError):
    """Something has not ended in time. Nothing else is wrong, so a busy machine may explain it."""


class LateEffectError(OverdueError):
    """A cancelled call took effect later than it would have otherwise."""


def is_late(clause: str, error: BaseException) -> bool:
    """Return whether a clause failed only because something did not end or was not available.

    That says little of the cause, unless it is what the clause is about.
    """
    unavailable = isinstance(error, UnavailableError) and clause != "healthy"
    return unavailable or type(error) is OverdueError


@contextmanager
def timed() -> Iterator[None]:
    """Note on an `UnavailableError` that the block raises how long it took, as `seconds`."""
    __tracebackhide__ = True
    begin = monotonic()
    try:
        yield
    except UnavailableError as error:
        error.__dict__["seconds"] = monotonic() - begin
        raise


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
    """Cancel the block after a time; raise an `OverdueError` then that says `what` it was."""
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
def alarm(seconds: float, what: str = "the test") -> Iterator[None]:
    """Interrupt the block and cancel its tasks after a time, and again until it ends.

    Raises an `OverdueError` then that says `what` it was. It does nothing outside the main thread:
    only `asyncio.timeout` ends a test there.
    """
    __tracebackhide__ = True
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    rung: list[AlarmError] = []

    def ring(_number: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        rung.append(AlarmError(f"interrupted here after {monotonic() - begin:.0f} s"))
        with suppress(RuntimeError):  # there is no event loop
            for task in asyncio.all_tasks():  # the next one might block it as this one does
                task.cancel()
        raise rung[-1]

    ignore = sys.unraisablehook

    def ring_again(lost: "sys.UnraisableHookArgs") -> None:
        # It rang in a finalizer, where Python ignores exceptions, such as during a collection.
        if isinstance(lost.exc_value, AlarmError):
            signal.setitimer(signal.ITIMER_REAL, 0.01, AGAIN_SECONDS)
        else:
            ignore(lost)

    begin = monotonic()
    sys.unraisablehook = ring_again
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    except (Exception, AlarmError, asyncio.CancelledError, BaseExceptionGroup):
        if not rung:  # a task group wraps it, and a library may replace it
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = ignore
        signal.signal(signal.SIGALRM, handler)
        if left:  # someone else's, such as that of pytest-timeout
            left = max(left - (monotonic() - begin), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, interval)
    if rung:  # also if it was swallowed
        raise OverdueError(f"{what} has not ended within {seconds:g} s") from rung[0]


@contextmanager
def signals_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal to stop has arrived since it was last called.

    The handler of a signal raises an exception. That may be lost: in a callback of the garbage
    collector, or while a generator is cleaned up.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        for end in (reader, writer):
            end.setblocking(False)

        def arrived() -> bool:
            with suppress(BlockingIOError):
                numbers = reader.recv(4096)
                return not {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}.isdisjoint(numbers)
            return False

        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield arrived
        finally:
            signal.set_wakeup_fd(previous)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block: an interrupted cleanup would leave something."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = list[tuple[int, FrameType | None]]()
    handler = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting and callable(handler):
            handler(*waiting.pop())


def send(process: int, signal_: int) -> None:
    """Send a signal to a process, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(process, signal_)
