"""A repository in another process, which can be killed; `served` is the code of that process."""

import asyncio
import os
import pickle
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from statistics import median
from types import ModuleType
from typing import Any, Final

from petstore.contract import UnavailableError
from petstore_conformance.harness import served
from petstore_conformance.harness.alarm import CANCEL_SECONDS, send, timed
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.forwarding import Forwarding
from petstore_conformance.harness.kit import Location
from petstore_conformance.harness.served import PAUSED, READY, RESUMED, pack, receive

_CONTEXT: Any = get_context("spawn" if len(os.environ.get("TMPDIR", "")) > 60 else "forkserver")
_CONTEXT.set_forkserver_preload([served.__name__])  # it saves 0.1 s, but has a socket in TMPDIR
STILL_SECONDS: Final = 0.01  # for how long a process is stopped, besides the length of ten writes


class Child(Forwarding):
    """A repository whose calls are made in another process.

    writes -- the number of calls of functions that write, up to its last result, if it counts them
    lengths -- how many seconds each call has taken there
    """

    def __init__(
        self, process: BaseProcess, to_it: asyncio.WriteTransport, from_it: asyncio.StreamReader
    ) -> None:
        assert process.pid is not None
        self._process, self._id, self._input = process, process.pid, to_it
        self._numbers = count()
        self._results: dict[int, asyncio.Future[Any]] = {READY: asyncio.Future()}
        self.store = ""  # until it is open
        self.writes, self.lengths, self._is_stopped = 0, list[float](), False
        self._reader = asyncio.create_task(self._read(from_it))

    async def open(self) -> None:
        """Let the other process open its repository. Raises what `open` raises there."""
        self._input.write(pack((PAUSED, 0)))  # it waits for the first message
        self.store = await self._results[READY]

    async def kill(self, *, closes: bool = False) -> None:
        """End the process, which may close its repository first; no call stays in flight."""
        if closes:
            self._input.close()
            await asyncio.wait({self._reader}, timeout=CANCEL_SECONDS)
        self._process.kill()
        self._process.join()
        self._input.close()
        await self._reader

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Make the call in the other process; return or raise what it does there."""
        current().calls += 1
        number = next(self._numbers)
        self._results[number] = result = asyncio.Future[Any]()
        self._input.write(pack((number, method, arguments, named)))
        with timed():
            return await result

    @asynccontextmanager
    async def paused_at(
        self, call: Coroutine[Any, Any, Any], moment: float, seconds: float = 0
    ) -> AsyncIterator["asyncio.Task[Any]"]:
        """Begin a call; in the block, its process is stopped at a moment. Yields the call.

        It goes on after these seconds, or when others must have ended or wait for what it has
        locked.

        moment -- an int: after so many writes, if there are; a float: after so many seconds
        """
        self._results[PAUSED] = stopped = asyncio.Future[Any]()
        if isinstance(moment, int):
            self._input.write(pack((PAUSED, moment)))
        calling = asyncio.create_task(call)
        calling.add_done_callback(lambda it: it.cancelled() or it.exception())  # if the block fails
        limit = moment if isinstance(moment, float) else None
        await asyncio.wait({calling, stopped}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if limit:
            send(self._id, signal.SIGSTOP)
        taken = median(current().write_seconds[False][-100:] or [0])
        seconds = seconds or STILL_SECONDS + 10 * taken
        over = threading.Event()
        # In a thread: a call in the block may hold the event loop until it has a lock.
        threading.Thread(target=self._resume_again, args=(over, seconds)).start()
        try:
            yield calling
        finally:
            over.set()
            send(self._id, signal.SIGCONT)
            self._input.write(pack((PAUSED, 0)))
            self._results.pop(PAUSED, None)
            await self._go_on()

    def _resume_again(self, over: threading.Event, seconds: float) -> None:
        while not over.wait(seconds):
            send(self._id, signal.SIGCONT)

    async def _go_on(self) -> None:
        """Let the process go on, again and again until it says so."""
        while self._is_stopped:
            send(self._id, signal.SIGCONT)
            await asyncio.sleep(0.001)

    async def _read(self, messages: asyncio.StreamReader) -> None:
        while message := await receive(messages):
            number, outcome, self.writes, length = message
            self.lengths += [length] if number >= 0 else []
            if number in (PAUSED, RESUMED):
                self._is_stopped = number == PAUSED
            result = self._results.pop(number, None)
            if result is None:  # it may have stopped at something that it writes by itself
                self._going_on = asyncio.create_task(self._go_on())
            elif result.done():  # it was cancelled
                continue
            elif isinstance(outcome, BaseException):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)
        self._is_stopped = False
        for result in self._results.values():
            if not result.done():
                result.set_exception(UnavailableError("the process has ended"))


@asynccontextmanager
async def child(  # noqa: PLR0913 - each of the others has a default
    location: Location,
    *,
    notes: str = "",
    closes: bool = False,
    last_write: int | None = None,
    last_call: int | None = None,
    after: float = 0,
) -> AsyncIterator[Child]:
    """Open a location in another process, which is killed when the block ends.

    notes -- the folder of the notes of all processes, if they have any
    closes -- whether the process closes its repository first, which removes a location of its own
    last_write -- once it is open, the process counts its writes, and ends at once after this one; 0
        only counts
    last_call -- the process ends at once when it has sent the result of this call; the first is 0
    after -- if not 0, the process ends so many seconds after that call has begun
    """
    async with _start(location, notes, last_write, last_call, after, closes=closes) as repository:
        await repository.open()
        yield repository


@asynccontextmanager
async def opened_meanwhile(
    location: Location, notes: str, step: int, meanwhile: Callable[[], Awaitable[object]]
) -> AsyncIterator[Child]:
    """Open a location in another process, as `child` does.

    meanwhile -- called while the process is stopped after so many of the writes of opening
    """
    async with _start(location, notes, 0, None, 0) as repository:
        async with repository.paused_at(repository.open(), step) as opened:
            await meanwhile()
        await opened
        yield repository


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the script that runs: a new process would import it, and so perhaps run the kit."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@asynccontextmanager
async def _start(
    location: Location, *more: str | float | None, closes: bool = False
) -> AsyncIterator[Child]:
    try:
        given = pickle.dumps((location.backend, location.settings, *more))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(
            f"Another process cannot open the location: {error}. Let `open`, `scratch` and the"
            " type of the settings be importable by their names, at the top level of a module."
        ) from error
    loop, from_it = asyncio.get_running_loop(), asyncio.StreamReader()
    (its_input, input_), (output, its_output) = _CONTEXT.Pipe(False), _CONTEXT.Pipe(False)
    environment = os.environ | {"TZ": "Asia/Kathmandu"}  # local time must not be stored
    with its_input, its_output, _without_main():
        arguments = its_input, its_output, environment, given
        process = _CONTEXT.Process(target=served.run, args=arguments)
        process.start()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(from_it), output)
        to_it, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, input_)
        repository = Child(process, to_it, from_it)
        try:
            yield repository
        finally:
            await repository.kill(closes=closes)
    finally:
        process.kill()  # if it was cancelled before: Python would wait for it at the end
