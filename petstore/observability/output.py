"""Standard error, which nothing waits for: where it cannot be written, only lines are lost."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import PIPE_BUF
from stat import S_ISFIFO, S_ISSOCK
from threading import Lock
from typing import Final

from petstore.text.phrases import count

MAX_WAITING_BYTES: Final = 2**20
"""How much of the log is kept while nobody reads it. Further lines are dropped."""

_log = logging.getLogger("petstore")


class Output:
    """Writes lines to a file descriptor; keeps those that its reader does not take yet.

    fd -- of a file, of a terminal after `own_terminal`, or of a pipe or socket within `nonblocking`
    on_drop -- called with the number of lines that were dropped
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = bytearray()
        self._lock = Lock()  # threads log, too
        self._dropped = 0
        self._whole = True  # whether the last line was written to its end
        self.on_drop: Callable[[int], None] | None = None

    def write(self, lines: bytes) -> None:
        """Write whole lines, or keep them, or drop them if too much waits already."""
        if len(self._waiting) > MAX_WAITING_BYTES:
            self._drop(lines)
            lines = b""
        self._write(lines)

    def own_terminal(self) -> None:
        """Open the terminal anew, if it is one, so that no write to it waits.

        To set that on the descriptor would change it for the shell, too.
        """
        if os.isatty(self._fd):
            with suppress(OSError):  # it is not in /dev, as in some containers
                name = os.ttyname(self._fd)
                self._fd = os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)

    @contextmanager
    def nonblocking(self) -> Iterator[None]:
        """Within the block, no write to a pipe or a socket waits.

        Other processes that share the pipe are affected, too.
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
                    written = os.write(self._fd, self._waiting[:end])
                    self._whole = self._waiting[written - 1 : written] == b"\n"
                    del self._waiting[:written]
            except BlockingIOError:
                self._resume_later()
                return
            except OSError:  # the reader is gone, or the disk is full
                self._drop(self._waiting.lstrip(b"\n"))
                self._waiting[:] = b"" if self._whole else b"\n"  # the end of a part of a line
                return
        if number := self._dropped:
            self._dropped = 0
            dropped = count(number, "log line")
            _log.warning("%s dropped: standard error could not be written", dropped)
            if self._dropped:  # this line was, too
                self._dropped += number

    def _drop(self, lines: bytes | bytearray) -> None:
        number = lines.count(b"\n")
        self._dropped += number
        if self.on_drop is not None:
            self.on_drop(number)

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
