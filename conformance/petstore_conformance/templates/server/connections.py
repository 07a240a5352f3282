"""Connections to the server: how many calls it gets at once, and how long each may take."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from petstore.contract import UnavailableError
from petstore_conformance.templates.server.client import StandInClient

_Result = TypeVar("_Result")


class Connections:
    """Runs steps on the server.

    seconds -- how long a call may take, with all its waiting
    connections -- how many calls the server gets at once; the others wait
    """

    def __init__(self, client: StandInClient, seconds: float, connections: int) -> None:
        self._client = client
        self._seconds = seconds
        self._free = asyncio.Semaphore(connections)
        self._open = True

    def close(self) -> None:
        """Make every later call raise `UnavailableError`."""
        self._open = False

    async def call(self, step: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run a step on a free connection: the one point where errors are translated.

        REPLACE: repeat the step after a deadlock or a serialization failure, until the time is
        over. Do not repeat it after a lost reply: it may have taken effect. If a call is cancelled
        in the middle of a command, close or reset its connection.
        """
        if not self._open:
            raise UnavailableError("the repository is closed")
        try:
            async with asyncio.timeout(self._seconds), self._free:
                return await self._client.run(step)
        except OSError as error:  # TimeoutError, too. REPLACE: those of your client that may pass
            raise UnavailableError(f"the server cannot be reached: {error!r}") from error
