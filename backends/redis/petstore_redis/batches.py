"""Calls of one turn of the event loop that are sent as one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Arguments = tuple[int | bytes, ...]


class Batches:
    """Collects the calls of a turn of the event loop and sends them at its end.

    send -- sends the arguments of calls; returns a result for each, or raises an error for all
    size -- how many calls are sent together at most
    """

    def __init__(
        self, send: Callable[[Sequence[Arguments]], Awaitable[Sequence[Any]]], size: int
    ) -> None:
        self._send = send
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Arguments, asyncio.Future[Any]]] = []
        self._tasks = set[asyncio.Task[None]]()

    def call(self, arguments: Arguments) -> "asyncio.Future[Any]":
        """Return the future of a result. A call is sent even if its caller is cancelled."""
        if not self._waiting:
            self._loop.call_soon(self._dispatch)
        future = self._loop.create_future()
        self._waiting.append((arguments, future))
        return future

    async def send(self, arguments: Arguments) -> Any:
        """Send a call by itself, at once; return its result."""
        (result,) = await self._send([arguments])
        return result

    def _dispatch(self) -> None:
        calls, self._waiting = self._waiting, []
        for start in range(0, len(calls), self._size):
            task = self._loop.create_task(self._run(calls[start : start + self._size]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, calls: Sequence[tuple[Arguments, "asyncio.Future[Any]"]]) -> None:
        try:
            results = await self._send([arguments for arguments, _ in calls])
        except Exception as error:  # noqa: BLE001 - raised in each caller
            for _, future in calls:
                if not future.done():  # its caller was cancelled
                    future.set_exception(type(error)(*error.args))
        else:
            for (_, future), result in zip(calls, results, strict=True):
                if not future.done():
                    future.set_result(result)
