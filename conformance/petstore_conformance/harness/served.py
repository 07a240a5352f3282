"""The code of the other process: it opens a location, and makes the calls that it is sent.

It imports nothing of the kit, because that takes most of a second.
"""

import asyncio
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from io import BufferedWriter
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final

from msgspec.structs import replace

from petstore.contract import MAX_NOTE_BYTES, Backend, Expected, Repository

READY: Final = -1  # sent instead of a call's number once the repository is open, or cannot be
PAUSED: Final = -2  # received with a number of writes; sent when the process stops after them
RESUMED: Final = -3  # sent when it has gone on: a signal that comes before it stops is lost

_STEPS = "p?write|begin|flush|f?(data)?sync|send|exec|commit|register|truncate|unlink|put|delete"
_WRITES = re.compile(rf"(?!SimpleQueue)(.*\.)?({_STEPS})")
"""How the names of C functions begin that write to a file, a socket or an engine.

Of some engines only what follows is seen: `send` wakes the event loop, `register` lets it wait.
"""


def pack(message: object) -> bytes:
    """Return a message as it is sent: its length, and the pickled object."""
    data = pickle.dumps(message)
    return len(data).to_bytes(4) + data


async def receive(reader: asyncio.StreamReader) -> Any:
    """Return the next message, or None at the end."""
    try:
        size = int.from_bytes(await reader.readexactly(4))
        return pickle.loads(await reader.readexactly(size))  # noqa: S301 - from our own process
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


@asynccontextmanager
async def open_new(
    backend: Backend, settings: Any, expected: Expected
) -> AsyncIterator[Repository]:
    """Open a new location, removed on exit; with notes, once two processes have made theirs."""
    async with backend.scratch(settings) as scratch:
        if notes := expected.notes:
            notes.write(b"made")
            while len([*notes.read()]) < 2:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)
        async with backend.open(scratch, replace(expected, notes=None)) as repository:
            yield repository


class FolderNotes:
    """The notes of the processes of a service about their store, for one that opens it."""

    def __init__(self, folder: str) -> None:
        self._own = Path(folder) / f"{os.getpid()}-{id(self)}"

    def read(self) -> list[bytes]:
        """Return the last note of each process that has one."""
        return [file.read_bytes() for file in self._own.parent.glob("*[0-9]")]

    def write(self, note: bytes) -> None:
        """Replace the note of this process."""
        assert type(note) is bytes
        assert len(note) <= MAX_NOTE_BYTES
        new = self._own.with_suffix(".new")
        new.write_bytes(note)
        new.replace(self._own)


class _Writes:
    """Counts the calls of functions in C that write, and ends the process after one of them.

    pause -- called after the write of the number `pause_after`
    """

    def __init__(self, last: int | None, pause: Callable[[], None]) -> None:
        self._last = last
        self._pause = pause
        self.number = self.pause_after = 0
        self.counting = False
        if last is not None:
            threading.setprofile(self._note)
            sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, function: Any) -> None:
        if not self.counting or event != "c_return":
            return
        if frame.f_code.co_filename == __file__:
            return  # one of our own messages
        if function in (os.replace, os.rename) or _WRITES.match(function.__qualname__):
            self.number += 1
            if self.number == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.number == self.pause_after:
                self._pause()


async def _serve(from_other: Connection, output: BufferedWriter, given: bytes) -> None:  # noqa: C901 - one loop, and what it calls
    """Open a location when told to; make the calls that are received, send their results."""
    backend, settings, notes, last_write, last_call, after = pickle.loads(given)  # noqa: S301
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), from_other)
    sys.stdout = sys.stderr  # what a backend prints is not a message

    def send(number: int, outcome: object, begin: float = 0) -> None:
        more = writes.number, time.monotonic() - begin
        try:
            data = pack((number, outcome, *more))
        except Exception as error:  # noqa: BLE001 - the exception of a driver
            text = f"{outcome!r}, which cannot be pickled: {error!r}"
            data = pack((number, RuntimeError(text), *more))
        output.write(data)
        output.flush()
        if number == last_call and not after:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run(number: int, call: Callable[..., Awaitable[Any]], given: Any, named: Any) -> None:
        if number == last_call:
            signal.setitimer(signal.ITIMER_REAL, after)  # not handled, so it ends the process
        begin = time.monotonic()
        try:
            send(number, await call(*given, **named), begin)
        except BaseException as error:  # noqa: BLE001 - the other process raises it
            send(number, error, begin)

    def pause() -> None:
        send(PAUSED, None)
        signal.raise_signal(signal.SIGSTOP)  # to this thread, which stops before it goes on
        send(RESUMED, None)

    _, pause_after = await receive(reader)
    writes = _Writes(last_write, pause)
    writes.pause_after, writes.counting = pause_after, pause_after > 0
    expected = Expected(notes=FolderNotes(notes) if notes else None)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        try:
            repository = await stack.enter_async_context(backend.open(settings, expected))
        except Exception as error:  # noqa: BLE001 - the other process raises it
            send(READY, error)
            return
        send(READY, repository.store)
        writes.counting = True
        while message := await receive(reader):
            number, method, *arguments = message
            if number == PAUSED:
                writes.pause_after = writes.number + method
            else:
                group.create_task(run(number, getattr(repository, method), *arguments))


def run(
    from_other: Connection, to_other: Connection, environment: dict[str, str], given: bytes
) -> None:
    """Serve the other process, in its environment, with the location that is given."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    with open(to_other.fileno(), "wb", closefd=False) as output:
        asyncio.run(_serve(from_other, output, given))
