"""The thread in which a blocking engine works; it commits waiting calls together."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from petstore.contract import UnavailableError
from petstore_conformance.templates.file.engine import Engine

MOST_CALLS: Final = 100
"""How many calls are committed together at most; those that follow wait for them."""

_Result = TypeVar("_Result")


class _Call(Struct):
    step: Callable[[Any], Any]
    future: Future[Any]


class EngineThread:
    """Runs steps in one thread.

    Reads wait in the same queue as writes, so they see what was committed before or with them.

    engine -- used in this thread only
    seconds -- how long a call may take, with all its waiting
    """

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds
        self._open = True
        self._calls = queue.SimpleQueue[_Call | None]()
        self._thread = threading.Thread(target=self._run, name="file_template", daemon=True)

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Refuse new calls, wait for those in flight, and let the thread close the engine."""
        self._open = False
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join, self._seconds)  # an engine may hang

    async def call(self, step: Callable[[Any], _Result]) -> _Result:
        """Return what the step returns, once its transaction is committed.

        Raises what the step raises, or `UnavailableError` if that takes too long. A caller that is
        cancelled, or has waited too long, stops waiting: its step is left out if it has not begun,
        and takes effect completely if it has.
        """
        if not self._open:
            raise UnavailableError("the repository is closed")
        future: Future[_Result] = Future()
        self._calls.put(_Call(step, future))
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise UnavailableError(f"no result within {self._seconds:g} s") from error

    def _run(self) -> None:
        closing = False
        try:
            while not closing:
                taken = [self._calls.get()]
                while len(taken) < MOST_CALLS and not self._calls.empty():
                    taken.append(self._calls.get())
                closing = None in taken
                self._commit([c for c in taken if c and c.future.set_running_or_notify_cancel()])
        finally:
            self._engine.close()

    def _commit(self, calls: Sequence[_Call]) -> None:
        if not calls:
            return
        try:
            outcomes = self._engine.commit([call.step for call in calls])
        except Exception as error:  # noqa: BLE001 - raised in each caller
            outcomes = [error] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, Exception):
                call.future.set_exception(outcome)
            else:
                call.future.set_result(outcome)
