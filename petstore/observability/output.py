"""Standard error, which nothing waits for: a reader that stalls costs log lines, not requests."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import PIPE_BUF
from stat import S_ISFIFO, S_ISSOCK
from threading import Lock
from typing import Final

from petstore.config.errors import count

MAX_WAITING_BYTES: Final = 2**20
"""How much of the log is kept while nobody reads it. Further lines are dropped."""

_log = logging.getLogger("petstore")


class Output:
    """Writes lines to a file descriptor; keeps those that its reader does not take yet.

    fd -- of a file, or of a pipe or socket within `nonblocking`
    on_drop -- called with the number of lines that were dropped
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()
        self._lock = Lock()  # threads log, too
        self._dropped = 0
        self.on_drop: Callable[[int], None] | None = None

    def write(self, lines: bytes) -> None:
        """Write whole lines, or keep them, or drop them if too much waits already."""
        if len(self._waiting) > MAX_WAITING_BYTES:
            count = lines.count(b"\n")
            self._dropped += count
            if self.on_drop is not None:
                self.on_drop(count)
            lines = b""
        self._write(lines)

    @contextmanager
    def nonblocking(self) -> Iterator[None]:
        """Within the block, no write to a pipe or a socket waits.

        Other processes that share the pipe are affected, too. A terminal is left as it is: it
        belongs to the shell.
        """
        mode = os.fstat(self._fd).st_mode
        if not (S_ISFIFO(mode) or S_ISSOCK(mode)):
            yield
            return
        os.set_blocking(self._fd, False)
        try:
            yield
        finally:
            os.set_blocking(self._fd, True)

    def _write(self, lines: bytes) -> None:
        with self._lock:
            self._waiting += lines
            try:
                while self._waiting:  # whole lines at a time, which workers write side by side
                    end = self._waiting.rfind(b"\n", 0, PIPE_BUF) + 1 or None
                    del self._waiting[: os.write(self._fd, self._waiting[:end])]
            except BlockingIOError:
                self._resume_later()
                return
            except OSError:  # the reader is gone
                self._waiting.clear()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            _log.warning("%s dropped: standard error was not read", count(dropped, "log line"))

    def _resume_later(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread: the next line tries again
            return

        def resume() -> None:
            loop.remove_writer(self._fd)
            self._write(b"")

        loop.add_writer(self._fd, resume)


standard_error: Final = Output(2)
