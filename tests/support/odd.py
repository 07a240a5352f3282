"""Backends that keep every clause and are odd all the same: slow, jumbled, with strange ids.

Each name in `ODD` is a kind of database or driver that a third party may have. The kit must pass
all of them.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random
from typing import Any, TypeVar

import msgspec

from petstore.contract import (
    MAX_ID,
    Backend,
    IdempotencyToken,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    TokenReusedError,
)
from tests.support.honest import Honest, Store, backend

Result = TypeVar("Result")
Item = TypeVar("Item")


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


class Wrapped(Repository):
    """Passes each call on to another repository. Subclasses change when, or in what shape."""

    def __init__(self, inner: Repository, random: Random) -> None:
        self.inner = inner
        self.random = random

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return await method(*arguments)

    def page(self, items: Sequence[Item]) -> Sequence[Item]:
        return items

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        receipt: Receipt = await self.call(self.inner.create_pet, new, token)
        return receipt

    async def get_pet(self, pet_id: int) -> Pet | None:
        pet: Pet | None = await self.call(self.inner.get_pet, pet_id)
        return pet

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        return self.page(await self.call(self.inner.list_pets, after, count, status))

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        receipt: Receipt = await self.call(self.inner.place_order, pet_id, at, token)
        return receipt

    async def get_order(self, order_id: int) -> Order | None:
        order: Order | None = await self.call(self.inner.get_order, order_id)
        return order

    async def list_orders(
        self, after: int, count: int, status: OrderStatus | None
    ) -> Sequence[Order]:
        return self.page(await self.call(self.inner.list_orders, after, count, status))

    async def update_order(self, order_id: int, status: OrderStatus) -> Order:
        order: Order = await self.call(self.inner.update_order, order_id, status)
        return order

    async def restore(self, items: Sequence[Pet | Order]) -> None:
        await self.call(self.inner.restore, items)


class Jittery(Wrapped):
    """A request, and then its response, each takes 0 to 10 ms on its way."""

    seconds = 0.01

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(self.random.uniform(0, self.seconds))
        result = await method(*arguments)
        await asyncio.sleep(self.random.uniform(0, self.seconds))
        return result


class Distant(Wrapped):
    """Every call takes 50 ms."""

    seconds = 0.05

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(self.seconds / 2)
        result = await method(*arguments)
        await asyncio.sleep(self.seconds / 2)
        return result


class FarAway(Distant):
    """Every call takes 140 ms."""

    seconds = 0.14


class Locked(FarAway):
    """One lock for all: a call at a time, and each takes 140 ms."""

    def __init__(self, inner: Repository, random: Random) -> None:
        super().__init__(inner, random)
        self.lock = asyncio.Lock()

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        async with self.lock:
            return await super().call(method, *arguments)


class Pooled(Jittery):
    """Two connections, for which calls wait; each call is delayed at random."""

    def __init__(self, inner: Repository, random: Random) -> None:
        super().__init__(inner, random)
        self.connections = asyncio.Semaphore(2)

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        async with self.connections:
            return await super().call(method, *arguments)


class Reserving(Jittery):
    """Keeps a new token for a write in flight, and refuses it to another one meanwhile."""

    inner: Honest

    def __init__(self, inner: Honest, random: Random) -> None:
        super().__init__(inner, random)
        self.tokens: list[IdempotencyToken] = []

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        self.inner.check()
        token = arguments[-1]
        if not isinstance(token, IdempotencyToken) or self.inner.find(token):
            return await super().call(method, *arguments)
        if any(
            (other.value == token.value and other.fingerprint != token.fingerprint)
            for other in self.tokens
        ):
            raise TokenReusedError("another write in flight has the token")
        self.tokens.append(token)
        try:
            return await super().call(method, *arguments)
        finally:
            self.tokens.remove(token)


class Unstoppable(Wrapped):
    """The server makes a call whose caller was cancelled, and is sometimes busy before it does."""

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.shield(self._serve(method, *arguments))

    async def _serve(self, method: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0.001 if self.random.random() < 0.9 else 0.06)
        return await method(*arguments)


class Rows(Sequence[Item]):
    """A page as a driver may have it: a sequence and nothing more, without slices."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = tuple(items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise TypeError("rows cannot be sliced")
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


SHAPES: list[type[Sequence[Any]]] = [list, tuple, deque, Rows]


class Sequences(Wrapped):
    """Returns pages of every shape that a sequence may have."""

    shapes = SHAPES

    def page(self, items: Sequence[Item]) -> Sequence[Item]:
        shape: Any = self.random.choice(self.shapes)
        made: Sequence[Item] = shape(items)
        return made


class RandomGaps(Honest):
    """Leaves out up to 10,000 ids each time, as a server does that has lost those in its cache."""

    random: Random

    def choose_id(self) -> int:
        above = super().choose_id()
        return max(above, min(above + self.random.randrange(10_000), MAX_ID))


class Quadrillions(Honest):
    """Begins at 10^15."""

    def choose_id(self) -> int:
        return max(super().choose_id(), 10**15)


class NearTheEnd(Honest):
    """Begins where 5,000 ids are left."""

    def choose_id(self) -> int:
        return max(super().choose_id(), MAX_ID - 5000)


class Descending(Honest):
    """Takes blocks of 64 ids and assigns each of them from its end."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.block: list[int] = []

    def choose_id(self) -> int:
        self.block = [id_ for id_ in self.block if id_ > self.store.restored]
        if not self.block:
            first = super().choose_id()
            self.block = list(range(first, max(first + 1, min(first + 64, MAX_ID + 1))))
            self.store.last_id = self.block[-1]
        return self.block.pop()


class Purging(Honest):
    """Deletes all expired records with each call that has a token."""

    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        if token is not None:
            old = [v for v, (known, _) in self.store.records.items() if known.until <= token.now]
            for value in old:
                del self.store.records[value]
        return super().find(token)


WRAPPERS: list[type[Wrapped]] = [
    Jittery,
    Distant,
    FarAway,
    Locked,
    Pooled,
    Reserving,
    Unstoppable,
    Sequences,
]
REPOSITORIES: list[type[Honest]] = [RandomGaps, Quadrillions, NearTheEnd, Descending, Purging]
ODD = [class_.__name__ for class_ in (*WRAPPERS, *REPOSITORIES)]


def wrapped(inner: Backend, wrapper: type[Wrapped], seed: int) -> Backend:
    """Return a backend whose repositories are those of another one in a wrapper."""
    random = Random(seed)  # noqa: S311 - delays, not secrets

    @asynccontextmanager
    async def open_(settings: Any) -> AsyncIterator[Wrapped]:
        async with inner.open(settings) as repository:
            yield wrapper(repository, random)

    return msgspec.structs.replace(inner, open=open_)


def odd(name: str, seed: int) -> Backend:
    """Return one of `ODD`, shared and durable within this process.

    seed -- that of its delays and gaps
    """
    for wrapper in WRAPPERS:
        if wrapper.__name__ == name:
            return wrapped(backend(Honest), wrapper, seed)
    (repository,) = (class_ for class_ in REPOSITORIES if class_.__name__ == name)
    random = Random(seed)  # noqa: S311 - gaps, not secrets
    return backend(type(name, (repository,), {"random": random}))
