"""A repository in another process, which can be killed: the code of both processes.

They exchange pickled messages, each after its length. The first one holds the backend and its
settings, so the backend's functions must be importable by their names.
"""

import asyncio
import os
import pickle
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from types import FrameType
from typing import Any, Final

from petstore.contract import Expected, UnavailableError
from petstore_conformance.harness.alarm import CANCEL_SECONDS, timed
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.forwarding import Forwarding
from petstore_conformance.harness.kit import Location

_READY = -1
"""Sent instead of the number of a call, once the repository is open."""

_WRITES: Final = ("write", "pwrite", "flush", "fsync", "fdatasync", "send", "exec", "commit")
"""Prefixes of the names of C functions that write to a file, a connection or an engine."""


class Child(Forwarding):
    """A repository whose calls are made in another process.

    writes -- the number of calls of functions that write, up to its last result, if it counts them
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count()
        self._results: dict[int, asyncio.Future[Any]] = {_READY: asyncio.Future()}
        self.store = ""  # until it is open
        self.writes = 0
        self._reader = asyncio.create_task(self._read())

    async def opened(self) -> None:
        """Wait until the repository is open in the other process. Raises what `open` raises."""
        self.store = await self._results[_READY]
        current().cores.note()  # it may end by itself

    async def kill(self) -> None:
        """End the process at once; calls in flight raise `UnavailableError`."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGSTOP)  # at once: to read its times takes longer
            try:
                current().cores.note()
            finally:
                self._process.kill()
        await self._process.wait()
        await self._reader

    async def end(self) -> None:
        """Let the process close its repository, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Make the call in the other process; return or raise what it does there."""
        current().calls += 1
        number = next(self._numbers)
        self._results[number] = result = asyncio.Future[Any]()
        assert self._process.stdin is not None
        self._process.stdin.write(_pack((number, method, arguments, named)))
        with timed():
            return await result

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while message := await _receive(self._process.stdout):
            number, outcome, self.writes = message
            result = self._results.pop(number)
            if result.done():  # it was cancelled
                continue
            if isinstance(outcome, BaseException):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)
        for result in self._results.values():
            if not result.done():
                result.set_exception(UnavailableError("the process has ended"))


@asynccontextmanager
async def child(
    location: Location, *, closes: bool = False, last_write: int | None = None
) -> AsyncIterator[Child]:
    """Open a location in another process, which is killed when the block ends.

    closes -- whether the process closes its repository first, which removes a location of its own
    last_write -- once it is open, the process counts its writes, and ends at once after this one; 0
        only counts
    """
    try:
        opened = _pack((location.backend, location.settings, last_write))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(
            f"Another process cannot open the location: {error}. Let `open`, `scratch` and the"
            " type of the settings be importable by their names, at the top level of a module."
        ) from error
    main = f"import sys; sys.path[:] = {sys.path!r}; from petstore_conformance.harness import child"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{main}; child.main()"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"TZ": "Asia/Kathmandu"},  # local time must not be stored
    )
    repository = Child(process)
    try:
        assert process.stdin is not None
        process.stdin.write(opened)
        await repository.opened()
        yield repository
    finally:
        if closes:
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await repository.end()
        await repository.kill()


def _pack(message: object) -> bytes:
    data = pickle.dumps(message)
    return len(data).to_bytes(4) + data


async def _receive(reader: asyncio.StreamReader) -> Any:
    """Return the next message, or None at the end."""
    try:
        size = int.from_bytes(await reader.readexactly(4))
        return pickle.loads(await reader.readexactly(size))  # noqa: S301 - from our own process
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class _Writes:
    """Counts the calls of functions in C that write, and ends the process after one of them."""

    def __init__(self, last: int | None) -> None:
        self._last = last
        self.number = 0
        self.counting = False
        if last is not None:
            threading.setprofile(self._note)
            sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, function: Any) -> None:
        if not self.counting or event != "c_return":
            return
        code = frame.f_code
        if code.co_filename == __file__ or code.co_name == "_write_to_self":
            return  # our own messages, and those that wake the event loop
        if function in (os.replace, os.rename) or function.__name__.startswith(_WRITES):
            self.number += 1
            if self.number == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


async def _serve() -> None:
    """Open a location; make the calls from standard input, write results to standard output."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a backend prints is not a message

    def send(number: int, outcome: object) -> None:
        try:
            data = _pack((number, outcome, writes.number))
        except Exception as error:  # noqa: BLE001 - the exception of a driver
            text = f"{outcome!r}, which cannot be pickled: {error!r}"
            data = _pack((number, RuntimeError(text), writes.number))
        output.write(data)
        output.flush()

    async def run(number: int, call: Callable[..., Awaitable[Any]], given: Any, named: Any) -> None:
        try:
            send(number, await call(*given, **named))
        except BaseException as error:  # noqa: BLE001 - the other process raises it
            send(number, error)

    backend, settings, last_write = await _receive(reader)
    writes = _Writes(last_write)
    async with backend.open(settings, Expected()) as repository, asyncio.TaskGroup() as group:
        send(_READY, repository.store)
        writes.counting = True
        while message := await _receive(reader):
            number, method, *arguments = message
            group.create_task(run(number, getattr(repository, method), *arguments))


def main() -> None:
    """Run as the other process."""
    asyncio.run(_serve())
