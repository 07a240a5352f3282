"""Signals to stop: none may be lost, and none may keep a location from being removed."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


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
