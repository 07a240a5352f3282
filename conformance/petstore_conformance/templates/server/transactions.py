"""Optimistic transactions: read, write on the condition that nothing read has changed, repeat.

Every request has one more condition: that the store is still the one that was opened.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import uniform
from typing import Final, TypeVar

from petstore.contract import Notes, StorageError, UnavailableError, WrongStoreError
from petstore_conformance.templates.server.client import (
    CLIENT_ERRORS,
    KeyRange,
    KeyValue,
    ServerReply,
    StandInClient,
    Values,
    only,
)

IDENTITY: Final = "store"  # the key of the store's identity

_Result = TypeVar("_Result")


class Transaction:
    """What a call has read, and what it will write if all of that is still so.

    read -- the keys that were read, and their values; None for an absent one
    writes -- the keys to be written, and their values; None to remove one
    """

    def __init__(self, store: "GuardedStore") -> None:
        self._store = store
        self.read: dict[str, bytes | None] = {}
        self.writes: dict[str, bytes | None] = {}

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, as this transaction leaves it."""
        if key in self.writes:
            return self.writes[key]
        if key not in self.read:
            await self.scan(only(key))
        return self.read.setdefault(key, None)

    async def scan(self, keys: KeyRange) -> list[KeyValue]:
        """Return the items in a range, without what this transaction writes."""
        found = (await self._store.request(keys, {}, {})).found
        self.read = {**dict(found), **self.read}  # what was read first is what counts
        return found


class GuardedStore:
    """Sends requests to the store that was opened, and limits the time of calls.

    store -- the identity of the store
    seconds -- how long a call may take, with all its waiting
    requests -- how many calls the server gets at once; the others wait
    notes -- how far other processes have seen the store, if there are others
    """

    def __init__(
        self, client: StandInClient, store: str, seconds: float, requests: int, notes: Notes | None
    ) -> None:
        self._client = client
        self.store = store
        self._seconds = seconds
        self._free = asyncio.Semaphore(requests)
        self._turn = asyncio.Lock()
        self._notes = notes
        self._revision = 0
        self._lost = ""

    async def read(self, keys: KeyRange) -> list[KeyValue]:
        """Return the items in a range, all at one moment."""
        async with self._limited(self._free):
            return (await self.request(keys, {}, {})).found

    async def run(self, work: Callable[[Transaction], Awaitable[_Result]]) -> _Result:
        """Make a transaction, again and again until it is not in conflict with others.

        What the work raises is raised if it has read nothing that had changed. The transactions of
        a process take turns: every create changes the same counter.
        """
        async with self._limited(self._turn):
            while True:
                transaction, refusal = Transaction(self), None
                try:
                    result = await work(transaction)
                except UnavailableError:
                    raise
                except StorageError as error:
                    refusal = error
                    transaction.writes.clear()
                if (await self.request(None, transaction.read, transaction.writes)).held:
                    if refusal:
                        raise refusal
                    return result
                # Others end theirs meanwhile.
                await asyncio.sleep(uniform(0, 0.01))  # noqa: S311 - no secret

    async def request(self, keys: KeyRange | None, read: Values, writes: Values) -> ServerReply:
        """Send a request to the store that was opened. Raises `WrongStoreError` if it is another.

        A server that has not even seen what any process knew of it before is an older copy. REPLACE
        the revision by the counters of the ids if the server has none.
        """
        if self._lost:
            raise WrongStoreError(self._lost)
        known = max([self._revision, *map(int, self._notes.read() if self._notes else [])])
        reply = await self._client.request(keys, {IDENTITY: self.store.encode(), **read}, writes)
        if not reply.held and not read:  # what has read something is repeated, and reads first
            self._lost = f"the store was not {self.store} any more"
        elif reply.revision < known:
            self._lost = f"the store was an older copy: at {reply.revision}, not at {known}"
        if self._lost:
            raise WrongStoreError(self._lost)
        if reply.held and reply.revision > self._revision:
            self._revision = reply.revision
            if self._notes:
                self._notes.write(b"%d" % reply.revision)
        return reply

    @asynccontextmanager
    async def _limited(self, waiting: asyncio.Semaphore | asyncio.Lock) -> AsyncIterator[None]:
        """Limit the time of a call.

        REPLACE: if it is cancelled in the middle of a request, close or reset the connection.
        """
        with translated():
            async with asyncio.timeout(self._seconds), waiting:
                yield


@contextmanager
def translated() -> Iterator[None]:
    """Raise `UnavailableError` for what may pass, a `TimeoutError` among it: at this one point.

    Do not repeat a request whose reply is lost: it may have taken effect.
    """
    try:
        yield
    except CLIENT_ERRORS as error:
        raise UnavailableError(f"the server cannot be reached: {error!r}") from error
