"""Calls of one iteration of the event loop that are sent as one, or as few if they are large."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

Arguments = tuple[int | bytes, ...]

_BATCH_BYTES: Final = 256 * 1024
"""About how many bytes are sent together at most, unless a single call has more."""


class Batches:
    """Collects the calls of an iteration of the event loop and sends them at its end.

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
        self._bytes = 0
        self._tasks = set[asyncio.Task[None]]()

    def call(self, arguments: Arguments, size: int = 0) -> "asyncio.Future[Any]":
        """Return the future of a result. A call is sent even if its caller is cancelled.

        size -- the bytes of what may be large in the arguments
        """
        if not self._waiting:
            self._loop.call_soon(self._dispatch)
        future = self._loop.create_future()
        self._bytes += size
        self._waiting.append((arguments, future))
        return future

    def _dispatch(self) -> None:
        calls, self._waiting = self._waiting, []
        size = self._size
        if self._bytes > _BATCH_BYTES:
            size = min(size, max(1, len(calls) * _BATCH_BYTES // self._bytes))
        self._bytes = 0
        for start in range(0, len(calls), size):
            task = self._loop.create_task(self._run(calls[start : start + size]))
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
