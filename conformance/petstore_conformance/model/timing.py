"""How long calls take, and so how many of them there is time for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from msgspec import Struct

from petstore.contract import RefusedError, Repository
from petstore_conformance.harness.effort import AT_A_TIME, AnyItem, current
from petstore_conformance.model.values import MANY_SECONDS

COUNTED_ITERATIONS = 200  # for so many of the event loop `measure` checks if the call has ended
SLOW_SECONDS = 0.02  # a repository is slow if a call takes longer, or prolongs others by more


class Length(Struct, frozen=True):
    """The length of a call: in iterations of the event loop, and in seconds."""

    iterations: int = 0
    seconds: float = 0.0

    async def wait(self, tenths: float) -> None:
        """Wait for some tenths of it: in iterations if counted, because no timer is that short."""
        if self.iterations > COUNTED_ITERATIONS:
            await asyncio.sleep(self.seconds * tenths / 10)
        else:
            await yield_to_others(round(self.iterations * tenths / 10))


async def measure(call: Coroutine[Any, Any, Any]) -> tuple[Length, Any]:
    """Make a call; return how long it takes, and its result, or None if it was refused."""
    time = asyncio.get_running_loop().time
    begin, iterations = time(), 0
    task = asyncio.ensure_future(call)
    while not task.done():
        iterations += 1
        await asyncio.sleep(0 if iterations <= COUNTED_ITERATIONS else 0.001)
    length = Length(iterations, time() - begin)
    with suppress(RefusedError):
        return length, await task
    return length, None


async def sample(
    repository: Repository, items: Sequence[AnyItem], *, together: bool = False, reads: bool = False
) -> Sequence[AnyItem]:
    """Return the items that there is time for: all of them, unless the repository is slow.

    together -- whether the calls for several items overlap, so that only the time counts by which
        each prolongs the others
    reads -- whether the calls only read, so that slow writes do not matter
    """
    seconds = await _read_seconds(repository)
    if seconds > SLOW_SECONDS:  # something else may have held it up
        seconds = await _read_seconds(repository, AT_A_TIME if together else 1)
    if not reads:
        seconds = max(seconds, median(current().write_seconds[together][-100:] or [0]))
    return current().choose(items, SLOW_SECONDS / seconds)


async def _read_seconds(repository: Repository, count: int = 1) -> float:
    """Read a pet so many times at once; return how long it takes for each."""
    time = asyncio.get_running_loop().time
    begin = time()
    await asyncio.gather(*(repository.get_pet(1) for _ in range(count)))
    return max(time() - begin, 1e-9) / count


async def yield_to_others(times: int = 1) -> None:
    """Let other tasks run, for so many iterations of the event loop."""
    for _ in range(times):
        await asyncio.sleep(0)


def time_limit(seconds: float) -> Callable[[], bool]:
    """Return a function that returns whether so many seconds are not over yet."""
    time = asyncio.get_running_loop().time
    end = time() + seconds
    return lambda: time() < end


async def fill(count: int, make: Callable[[int], Awaitable[AnyItem]]) -> list[AnyItem]:
    """Make items of the first numbers, a hundred at once, for at most `MANY_SECONDS`."""
    made, in_time = list[AnyItem](), time_limit(MANY_SECONDS)
    while len(made) < count and in_time():
        made += await asyncio.gather(*map(make, range(count)[len(made) :][:100]))
    current().note(len(made), count)
    return made
