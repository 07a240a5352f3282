"""Call the storage from code that is not asynchronous."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class Calls:
    """Runs storage calls, one at a time. Ctrl-C takes effect between two of them.

    A `KeyboardInterrupt` in the middle of a call would leave the connection to the storage in an
    unknown state, and closing it might never end. Calls are short; a second Ctrl-C ends one.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._running = False
        self._interrupts = 0

    def __enter__(self) -> Self:
        """Take over SIGINT."""
        self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the event loop and restore the handler of SIGINT."""
        self._interrupts, self._running = 0, True
        self._runner.close()
        signal.signal(signal.SIGINT, self._handler)

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a call. Raises `KeyboardInterrupt` after it if SIGINT came."""
        self._interrupts, self._running = 0, True
        try:
            result = self._runner.run(call)
        finally:
            self._running = False
        if self._interrupts:
            raise KeyboardInterrupt
        return result

    def _interrupt(self, *_: Any) -> None:
        self._interrupts += 1
        if not self._running or self._interrupts > 1:
            raise KeyboardInterrupt
