"""Signals to stop: none may be lost, and none may keep a location from being removed."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
                return any(number in numbers for number in STOPPING)
            return False

        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield arrived
        finally:
            signal.set_wakeup_fd(previous)


class Cleanup:
    """Between `begin` and `end`, Ctrl-C waits: an interrupted cleanup would leave something."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._waiting: list[tuple[int, FrameType | None]] = []

    def begin(self) -> None:
        """Let SIGINT wait from now on."""
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._wait)

    def end(self) -> None:
        """Restore the handler of SIGINT, and call it if a signal has waited."""
        if self._handler is not None:
            handler, self._handler = self._handler, None
            signal.signal(signal.SIGINT, handler)
            if self._waiting and callable(handler):
                handler(*self._waiting.pop())

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))
