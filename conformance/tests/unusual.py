"""Unusual backends that keep every clause: slow ones, delayed at random, with strange ids.

Each name in `UNUSUAL` is a kind of database or driver that a third party may have. The kit must
pass all of them.
"""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

import msgspec
from petstore_conformance.harness.effort import WRITES
from petstore_conformance.harness.forwarding import Forwarding

from conformance.tests.correct import Correct, Store, backend
from petstore.contract import (
    MAX_ID,
    Backend,
    Expected,
    IdempotencyToken,
    Receipt,
    Repository,
    TokenReusedError,
)


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop that does not wait: when nothing is left to do, its clock jumps ahead.

    So delays cost nothing, and their order depends on nothing but their lengths. For code without
    threads and sockets.
    """

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self.now = 0.0

    def time(self) -> float:
        """Return the seconds for which this loop has waited."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(None if timeout is None else 0)
        if not events and timeout is not None:
            self._loop.now += max(timeout, 0)
        return events


class Wrapped(Forwarding):
    """Passes each call on to another repository. Subclasses change when."""

    def __init__(self, inner: Repository, random: Random) -> None:
        self.inner = inner
        self.random = random
        self.store = inner.store

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        return await self.call(getattr(self.inner, method), *arguments, **named)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await method(*arguments, **named)


class Distant(Wrapped):
    """Every call takes 50 ms: half of it until it is made, and half until the result is back."""

    seconds = 0.05

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(self.one_way())
        result = await method(*arguments, **named)
        await asyncio.sleep(self.one_way())
        return result

    def one_way(self) -> float:
        """Return how many seconds a request or its response takes."""
        return self.seconds / 2


class Jittery(Distant):
    """A request, and then its response, each takes 0 to 10 ms on its way."""

    seconds = 0.01

    def one_way(self) -> float:
        return self.random.uniform(0, self.seconds)


class FarAway(Distant):
    """Every call takes 140 ms."""

    seconds = 0.14


class Limited(Distant):
    """So many connections, for which calls wait."""

    connections = 1

    def __init__(self, inner: Repository, random: Random) -> None:
        super().__init__(inner, random)
        self.free = asyncio.Semaphore(self.connections)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        async with self.free:
            return await super().call(method, *arguments, **named)


class Locked(Limited, FarAway):
    """One lock for all: a call at a time, and each takes 140 ms."""


class PartlySlow(Distant):
    """Calls whose names begin like this take long, and other calls half a millisecond."""

    slow: tuple[str, ...]

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        if method.startswith(self.slow):
            return await super().forward(method, *arguments, **named)
        await asyncio.sleep(0.0005)
        return await getattr(self.inner, method)(*arguments, **named)


class ListsSlowly(PartlySlow):
    """Every page takes 40 ms.

    pages -- how many were read of all its repositories
    """

    seconds, slow = 0.04, ("list",)
    pages: ClassVar[int] = 0

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        ListsSlowly.pages += 1
        return await super().call(method, *arguments, **named)


class RestoresSlowly(Distant):
    """A transaction takes 40 items, and each item 0.6 ms."""

    seconds = 0.0006

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        if method == "restore":
            await asyncio.sleep(self.seconds * len(arguments[0]))
        return await getattr(self.inner, method)(*arguments, **named)


class WritesSlowly(PartlySlow):
    """A quorum stores each write, which takes 45 ms; others may overlap it."""

    seconds, slow = 0.045, (*WRITES, "restore")


class WritesInTurn(Limited, WritesSlowly):
    """A write after the other, each of which takes 45 ms to reach the disk."""


class Pooled(Limited, Jittery):
    """Two connections, for which calls wait; each call is delayed at random."""

    connections = 2


class Reserving(Jittery):
    """Keeps a new token for a write in flight, and refuses it to another one meanwhile."""

    inner: Correct

    def __init__(self, inner: Correct, random: Random) -> None:
        super().__init__(inner, random)
        self.tokens: list[IdempotencyToken] = []

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.inner.require_open()
        given = (*arguments, *named.values())
        token = next((each for each in given if isinstance(each, IdempotencyToken)), None)
        if token is None or self.inner.find(token):
            return await super().call(method, *arguments, **named)
        if any(
            (other.value == token.value and other.fingerprint != token.fingerprint)
            for other in self.tokens
        ):
            raise TokenReusedError("another write in flight has the token")
        self.tokens.append(token)
        try:
            return await super().call(method, *arguments, **named)
        finally:
            self.tokens.remove(token)


class Unstoppable(Wrapped):
    """The server makes a call whose caller was cancelled. At times it is busy, or its disk is slow.

    New items are synced first; those that come meanwhile share the sync.
    """

    inner: Correct

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        return await asyncio.shield(self._serve(method, *arguments, **named))

    async def _serve(self, method: str, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(self.one_of(0.001, 0.06))
        if method in ("create_pet", "place_order", "restore"):
            extra, now = self.inner.data.extra, asyncio.get_running_loop().time()
            if extra.get("synced", 0) < now:
                extra["synced"] = now + self.one_of(0.001, 0.3)
            await asyncio.sleep(extra["synced"] - now)
        return await getattr(self.inner, method)(*arguments, **named)

    def one_of(self, usual: float, rare: float) -> float:
        """Return one of two lengths, in seconds."""
        return usual if self.random.random() < 0.9 else rare


class RandomGaps(Correct):
    """Leaves out up to 10,000 ids each time, as a server does that has lost those in its cache."""

    random: Random

    def choose_id(self) -> int:
        above = super().choose_id()
        return max(above, min(above + self.random.randrange(10_000), MAX_ID))


class NearTheEnd(Correct):
    """Begins where 8,000 ids are left."""

    def choose_id(self) -> int:
        return max(super().choose_id(), MAX_ID - 8000)


class Descending(Correct):
    """Takes blocks of 64 ids and assigns each of them from its end."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.block: list[int] = []

    def choose_id(self) -> int:
        self.block = [id_ for id_ in self.block if id_ > self.data.restored]
        if not self.block:
            first = super().choose_id()
            self.block = list(range(first, max(first + 1, min(first + 64, MAX_ID + 1))))
            self.data.last_id = self.block[-1]
        return self.block.pop()


class Purging(Correct):
    """Deletes all expired records with each call that has a token."""

    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        if token is not None:
            old = [v for v, known in self.data.records.items() if known.until <= token.now]
            for value in old:
                del self.data.records[value]
        return super().find(token)


WRAPPERS: list[type[Wrapped]] = [
    Jittery,
    Distant,
    FarAway,
    Locked,
    ListsSlowly,
    WritesSlowly,
    WritesInTurn,
    Pooled,
    Reserving,
    Unstoppable,
]
REPOSITORIES: list[type[Correct]] = [RandomGaps, NearTheEnd, Descending, Purging]
UNUSUAL = [class_.__name__ for class_ in (*WRAPPERS, *REPOSITORIES)]


def wrapped(inner: Backend, wrapper: type[Wrapped], seed: int) -> Backend:
    """Return a backend whose repositories are those of another one in a wrapper."""
    random = Random(seed)  # noqa: S311 - delays, not secrets

    @asynccontextmanager
    async def open_(settings: Any, expected: Expected) -> AsyncIterator[Wrapped]:
        async with inner.open(settings, expected) as repository:
            yield wrapper(repository, random)

    return msgspec.structs.replace(inner, open=open_)


def unusual(name: str, seed: int) -> Backend:
    """Return one of `UNUSUAL`, shared and durable within this process.

    seed -- that of its delays and gaps
    """
    for wrapper in WRAPPERS:
        if wrapper.__name__ == name:
            return wrapped(backend(Correct), wrapper, seed)
    (repository,) = (class_ for class_ in REPOSITORIES if class_.__name__ == name)
    random = Random(seed)  # noqa: S311 - gaps, not secrets
    return backend(type(name, (repository,), {"random": random}))
