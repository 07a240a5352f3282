"""A repository in another process, which can be killed; `served` is the code of that process.

They exchange pickled messages, each after its length. The first one holds the backend and its
settings, so the backend's functions must be importable by their names.
"""

import asyncio
import os
import pickle
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from statistics import median
from typing import Any, Final

from petstore.contract import UnavailableError
from petstore_conformance.harness import served
from petstore_conformance.harness.alarm import CANCEL_SECONDS, timed
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.forwarding import Forwarding
from petstore_conformance.harness.kit import Location
from petstore_conformance.harness.served import PAUSED, READY, RESUMED, pack, receive

STILL_SECONDS: Final = 0.01  # for how long a process is stopped, besides the length of ten writes


class Child(Forwarding):
    """A repository whose calls are made in another process.

    writes -- the number of calls of functions that write, up to its last result, if it counts them
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        self._process, self._input = process, process.stdin
        self._numbers = count()
        self._results: dict[int, asyncio.Future[Any]] = {READY: asyncio.Future()}
        self.store = ""  # until it is open
        self.writes, self._still = 0, False
        self._reader = asyncio.create_task(self._read())

    async def open(self, given: bytes) -> None:
        """Let the other process open the repository that it is given. Raises what `open` raises."""
        self._input.write(given)
        self.store = await self._results[READY]
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
        self, call: Coroutine[Any, Any, Any], step: int, seconds: float = 0
    ) -> AsyncIterator["asyncio.Task[Any]"]:
        """Begin a call; in the block, its process is stopped after so many of its writes.

        It goes on after these seconds, or when others must have ended or wait for what it has
        locked. Yields the call, which has ended if it makes fewer writes. Only with a `last_write`.
        """
        self._results[PAUSED] = stopped = asyncio.Future[Any]()
        self._input.write(pack((PAUSED, step)))
        calling = asyncio.create_task(call)
        calling.add_done_callback(lambda it: it.cancelled() or it.exception())  # if the block fails
        await asyncio.wait({calling, stopped}, return_when=asyncio.FIRST_COMPLETED)
        taken = median(current().write_seconds[False][-100:] or [0])
        seconds = seconds or STILL_SECONDS + 10 * taken
        over = threading.Event()
        # In a thread: a call in the block may hold the event loop until it has a lock.
        threading.Thread(target=self._signal, args=(over, seconds)).start()
        try:
            yield calling
        finally:
            over.set()
            self._input.write(pack((PAUSED, 0)))
            self._results.pop(PAUSED, None)
            await self._go_on()

    def _signal(self, over: threading.Event, seconds: float) -> None:
        while not over.wait(seconds):
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)

    async def _go_on(self) -> None:
        """Let the process go on, again and again until it says so."""
        while self._still and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.001)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while message := await receive(self._process.stdout):
            number, outcome, self.writes = message
            if number in (PAUSED, RESUMED):
                self._still = number == PAUSED
            result = self._results.pop(number, None)
            if result is None:  # it may have stopped at something that it writes by itself
                self._going_on = asyncio.create_task(self._go_on())
            elif result.done():  # it was cancelled
                continue
            elif isinstance(outcome, BaseException):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)
        for result in self._results.values():
            if not result.done():
                result.set_exception(UnavailableError("the process has ended"))


@asynccontextmanager
async def child(
    location: Location,
    *,
    notes: str = "",
    closes: bool = False,
    last_write: int | None = None,
    last_call: int | None = None,
) -> AsyncIterator[Child]:
    """Open a location in another process, which is killed when the block ends.

    notes -- the folder of the notes of all processes, if they have any
    closes -- whether the process closes its repository first, which removes a location of its own
    last_write -- once it is open, the process counts its writes, and ends at once after this one; 0
        only counts
    last_call -- the process ends at once when it has sent the result of this call; the first is 0
    """
    async with _start(closes=closes) as repository:
        await repository.open(_given(location, notes, last_write, last_call))
        yield repository


@asynccontextmanager
async def opened_meanwhile(
    location: Location, notes: str, step: int, meanwhile: Callable[[], Awaitable[object]]
) -> AsyncIterator[Child]:
    """Open a location in another process, as `child` does.

    meanwhile -- called while the process is stopped after so many of the writes of opening
    """
    async with _start() as repository:
        opening = repository.open(_given(location, notes, 0))
        async with repository.paused_at(opening, step) as opened:
            await meanwhile()
        await opened
        yield repository


def _given(
    location: Location, notes: str, last_write: int | None = None, last_call: int | None = None
) -> bytes:
    try:
        return pack((location.backend, location.settings, notes, last_write, last_call))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(
            f"Another process cannot open the location: {error}. Let `open`, `scratch` and the"
            " type of the settings be importable by their names, at the top level of a module."
        ) from error


@asynccontextmanager
async def _start(*, closes: bool = False) -> AsyncIterator[Child]:
    script = f"import runpy, sys; sys.path[:] = {sys.path!r}; runpy.run_path({served.__file__!r}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{script}, run_name='__main__')"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"TZ": "Asia/Kathmandu"},  # local time must not be stored
    )
    repository = Child(process)
    try:
        yield repository
    finally:
        if closes:
            assert process.stdin is not None
            process.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), CANCEL_SECONDS)
        await repository.kill()
