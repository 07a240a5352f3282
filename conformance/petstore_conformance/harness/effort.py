"""How long calls take, and how much of a clause there is time for: its calls and its values.

The seed chooses the values that are left out, so that another run leaves out others.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from math import ceil
from random import Random
from statistics import median
from typing import Any, Final, TypeVar

from hypothesis import core
from msgspec import Struct

from petstore.contract import RefusedError, Repository
from petstore_conformance.harness.alarm import timed
from petstore_conformance.harness.cores import Cores
from petstore_conformance.harness.forwarding import Forwarding

LEAST_SHARE = 0.25  # the verdict is not "compliant" if a clause tries a smaller share of its values
COUNTED_ITERATIONS = 200  # for so many of the event loop `measure` checks if the call has ended
SLOW_SECONDS = 0.02  # a repository is slow if a call takes longer, or prolongs others by more
MANY_SECONDS: Final = 12  # how long many items may take to be stored
AT_A_TIME: Final = 8  # how many values are tried at a time, if the calls for them may overlap
WRITES: Final = ("create", "place", "update")  # how methods begin that write a single item

AnyItem = TypeVar("AnyItem")

_OWN_SEED: Final = secrets.randbelow(2**32)


class Effort:
    """The calls and values that a clause has tried so far.

    calls -- how many calls it has made
    share -- that of the values that it has tried, from 0 to 1; if it tries several kinds of values,
        the smallest share of any
    cores -- what processes have had of the cores since it began
    random -- determined by the seed and the clause
    write_seconds -- False -> how long writes took alone, also in earlier clauses; True -> by how
        much each prolonged others
    """

    def __init__(self, clause: str, write_seconds: dict[bool, list[float]]) -> None:
        self.write_seconds = write_seconds
        self.calls = 0
        self.share = 1.0
        self.cores = Cores()
        # That of --hypothesis-seed. There is no documented way to ask for it outside of pytest.
        seed = _OWN_SEED if core.global_force_seed is None else core.global_force_seed
        self.random = Random(f"{seed} {clause}")  # noqa: S311 - choices, not secrets
        self._writing = self._begun = 0

    @contextmanager
    def write(self) -> Iterator[None]:
        """Make a write in the block. What it takes counts unless it fails."""
        time = asyncio.get_running_loop().time
        self._writing += 1
        self._begun += 1
        begin, number, overlapping = time(), self._begun, self._writing
        try:
            yield
        finally:
            self._writing -= 1
        alone = overlapping == 1 and number == self._begun
        if alone or overlapping >= AT_A_TIME:
            self.write_seconds[not alone].append((time() - begin) / overlapping)

    def note(self, tried: int, of: int) -> None:
        """Take note that so many of some values were tried, or steps made."""
        if tried < of:
            self.share = min(self.share, tried / of)

    def choose(self, items: Sequence[AnyItem], share: float) -> Sequence[AnyItem]:
        """Return about this share of the items, at least one, in the same order."""
        count = ceil(len(items) * min(share, 1))
        self.note(count, len(items))
        return [items[n] for n in sorted(self.random.sample(range(len(items)), count))]

    def shortage(self) -> str | None:
        """Return a sentence if too small a share was tried for a verdict."""
        if self.share >= LEAST_SHARE:
            return None
        too_long = "the calls take too long. Test with a server that is nearer or faster"
        return (
            f"only {self.share:.0%} of the values were tried, and {LEAST_SHARE:.0%} are needed:"
            f" {self.cores.shortage() or too_long}"
        )


EFFORTS: Final[dict[str, Effort]] = {}  # the name of a clause -> what its latest run has tried

_current = Effort("", {False: [], True: []})


def current() -> Effort:
    """Return the effort of the clause that runs now."""
    return _current


def begin(clause: str, write_seconds: dict[bool, list[float]]) -> Effort:
    """Begin a clause: what is tried from now on counts for it. See `Effort`."""
    global _current  # noqa: PLW0603 - one clause runs at a time, also in threads of Hypothesis
    _current = EFFORTS[clause] = Effort(clause, write_seconds)
    return _current


class Counted(Forwarding):
    """Counts the calls of another repository; times writes, and what raises `UnavailableError`."""

    def __init__(self, inner: Repository) -> None:
        self.inner = inner

    @property
    def store(self) -> str:  # type: ignore[override] # a wrong one may change
        """The identity of the store, as the other repository shows it now."""
        return self.inner.store

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Count the call, make it and return its result."""
        __tracebackhide__ = True
        current().calls += 1
        with timed(), current().write() if method.startswith(WRITES) else nullcontext():
            return await getattr(self.inner, method)(*arguments, **named)


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
