"""A repository in another process, which can be killed; `served` is the code of that process.

They exchange pickled messages, each after its length. The first one holds the backend and its
settings, so the backend's functions must be importable by their names.
"""

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

from petstore.contract import UnavailableError
from petstore_conformance.harness import served
from petstore_conformance.harness.alarm import CANCEL_SECONDS, timed
from petstore_conformance.harness.effort import current
from petstore_conformance.harness.forwarding import Forwarding
from petstore_conformance.harness.kit import Location
from petstore_conformance.harness.served import READY, pack, receive


class Child(Forwarding):
    """A repository whose calls are made in another process.

    writes -- the number of calls of functions that write, up to its last result, if it counts them
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count()
        self._results: dict[int, asyncio.Future[Any]] = {READY: asyncio.Future()}
        self.store = ""  # until it is open
        self.writes = 0
        self._reader = asyncio.create_task(self._read())

    async def opened(self) -> None:
        """Wait until the repository is open in the other process. Raises what `open` raises."""
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
        assert self._process.stdin is not None
        self._process.stdin.write(pack((number, method, arguments, named)))
        with timed():
            return await result

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while message := await receive(self._process.stdout):
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
    try:
        opened = pack((location.backend, location.settings, notes, last_write, last_call))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(
            f"Another process cannot open the location: {error}. Let `open`, `scratch` and the"
            " type of the settings be importable by their names, at the top level of a module."
        ) from error
    script = f"import runpy, sys; sys.path[:] = {sys.path!r}; runpy.run_path({served.__file__!r}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{script}, run_name='__main__')"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"TZ": "Asia/Kathmandu"},  # local time must not be stored
    )
    repository = Child(process)
    assert process.stdin is not None
    try:
        process.stdin.write(opened)
        await repository.opened()
        yield repository
    finally:
        if closes:
            process.stdin.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), CANCEL_SECONDS)
        await repository.kill()
