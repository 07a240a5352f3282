"""The store: open, checked once a second, and, once it is lost, refused by all workers together.

What a worker knows of the store, the others know, and the one that replaces it: all of them share
`SharedStore`. A store that is lost is served again if it is found as it was last noted.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from struct import Struct as Format
from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

from msgspec.structs import replace

from petstore.contract import (
    MAX_NOTE_BYTES,
    Expected,
    Repository,
    StorageError,
    UnavailableError,
    WrongStoreError,
)

if TYPE_CHECKING:
    from petstore.observability.metrics import Metrics

CHECK_SECONDS: Final = 1
"""How often the service checks whether its store is still the one that it opened."""

_REASON_BYTES: Final = 1024

_HEAD: Final = Format("<QII")  # number of the note, bytes, checksum
_SLOT: Final = _HEAD.size + MAX_NOTE_BYTES

_log = logging.getLogger("petstore")


def shared_store_bytes(workers: int) -> int:
    """Return the size of a `SharedStore`, of which little is ever touched."""
    return _REASON_BYTES + 2 * _SLOT * workers


class SharedStore:
    """What the workers know of their store, in shared memory: `petstore.contract.Notes`.

    Each worker has two slots and writes them in turn, so that the last note can always be read,
    also if a worker is killed while it writes.

    memory -- zeros, `shared_store_bytes` of them
    worker, workers -- which of how many workers this one is
    """

    def __init__(
        self, memory: "bytearray | memoryview[int]", worker: int = 0, workers: int = 1
    ) -> None:
        view = memoryview(memory).cast("B")
        self._lost = view[:_REASON_BYTES]
        begins = range(_REASON_BYTES, len(view), _SLOT)
        slots = [view[begin : begin + _SLOT] for begin in begins]
        self._rows = [(slots[2 * n], slots[2 * n + 1]) for n in range(workers)]
        self._own = self._rows[worker]
        self._number = max(self._parse(slot)[0] for slot in self._own)

    @property
    def lost(self) -> str:
        """Why the store is lost, as a worker has found; empty if it is not."""
        size = self._lost[0] << 8 | self._lost[1]
        return bytes(self._lost[2 : 2 + size]).decode(errors="ignore")

    @lost.setter
    def lost(self, reason: str) -> None:
        text = reason.encode()[: _REASON_BYTES - 2]
        self._lost[2 : 2 + len(text)] = text
        self._lost[:2] = len(text).to_bytes(2)

    def read(self) -> list[bytes]:
        """Return the last note of each worker that has written one."""
        notes = []
        for row in self._rows:
            number, note = max(map(self._parse, row))
            if number:
                notes.append(note)
        return notes

    def write(self, note: bytes) -> None:
        """Replace the note of this worker."""
        self._number += 1
        slot = self._own[self._number % 2]
        slot[_HEAD.size : _HEAD.size + len(note)] = note
        _HEAD.pack_into(slot, 0, self._number, len(note), crc32(note, self._number & 0xFFFFFFFF))

    @staticmethod
    def _parse(slot: memoryview) -> tuple[int, bytes]:
        """Return the number and the text of the note in a slot; 0 if there is none."""
        number, size, checksum = _HEAD.unpack_from(slot)
        note = bytes(slot[_HEAD.size : _HEAD.size + size])
        return (number, note) if crc32(note, number & 0xFFFFFFFF) == checksum else (0, b"")


class WatchedStore:
    """The open store of one worker.

    open_ -- opens the storage
    expected -- what it must find, without notes
    shared -- what the workers know together
    use -- called with the repository that serves from now on
    metrics -- shows when the store was last seen; None if metrics are off
    """

    def __init__(
        self,
        open_: Callable[[Expected], AbstractAsyncContextManager[Repository]],
        expected: Expected,
        shared: SharedStore,
        use: Callable[[Repository], None],
        metrics: "Metrics | None",
    ) -> None:
        self._open = open_
        self._expected = replace(expected, notes=shared, unchanged=bool(shared.lost))
        self._shared = shared
        self._use = use
        self._metrics = metrics
        self._suspected = asyncio.Event()
        self._opening = self._refusing = False

    def suspect(self) -> None:
        """Check the store at once: a call has found that it is lost."""
        self._suspected.set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the store, and keep watching it within the block.

        Raises the errors of `Backend.open`.
        """
        opened, stop = asyncio.Future[None](), asyncio.Future[None]()
        # In one task: what a backend opens, such as a task group, must be closed where it was.
        keeping = asyncio.create_task(self._keep(opened, stop))
        try:
            await asyncio.wait((opened, keeping), return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                yield
        finally:
            stop.set_result(None)
            if self._opening and keeping.cancel():
                await asyncio.wait((keeping,))
            else:
                await keeping

    async def _keep(self, opened: "asyncio.Future[None]", stop: "asyncio.Future[None]") -> None:
        """Serve the store until `stop`; while it is lost, try once a second to open it again."""
        while not stop.done():
            if self._expected.unchanged and not self._shared.read():
                if not opened.done():
                    raise WrongStoreError("the store was lost; restart the service")
                await stop
                return
            self._opening = True
            try:
                async with self._open(self._expected) as repository:
                    await self._use_until_lost(repository, opened, stop)
            except StorageError as error:
                if not opened.done():
                    raise
                self._use(cast("Repository", _Lost(str(error))))  # it may be back, but changed
            except Exception:
                if stop.done() or not opened.done():
                    raise
                _log.exception("the store could not be opened again")
            await asyncio.wait((stop,), timeout=CHECK_SECONDS)
            self._expected = replace(self._expected, unchanged=bool(self._shared.lost))

    async def _use_until_lost(
        self,
        repository: Repository,
        opened: "asyncio.Future[None]",
        stop: "asyncio.Future[None]",
    ) -> None:
        self._opening = False
        if self._expected.unchanged:  # else it may have been found lost since
            self._shared.lost = ""
        if opened.done():
            self._serve(repository)
        else:
            self._use(repository)
            opened.set_result(None)
        watching = asyncio.create_task(self._watch(repository))
        await asyncio.wait((watching, stop), return_when=asyncio.FIRST_COMPLETED)
        if watching.cancel():
            return
        self._refuse(str(watching.result()))
        self._expected = replace(
            self._expected, store=repository.store, create=False, upgrade=False
        )

    async def _watch(self, repository: Repository) -> WrongStoreError:
        """Check the store once a second until it is lost; return how it was found.

        While it is lost for another worker, this one keeps it open, but serves nothing.
        """
        told = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._suspected.wait()
            self._suspected.clear()
            if bool(self._shared.lost) != told:
                told = not told
                if told:
                    self._refuse(self._shared.lost)
                else:
                    self._serve(repository)
            try:
                await repository.check()
            except WrongStoreError as error:
                return error
            except UnavailableError:
                pass  # requests get this error, too, and it is logged for them
            except Exception:  # noqa: BLE001 - whatever a backend raises, check again
                _log.exception("the store could not be checked")
            else:
                if self._metrics is not None and not told:
                    self._metrics.storage_checked()

    def _serve(self, repository: Repository) -> None:
        """Serve a store that was refused."""
        self._refusing = False
        _log.info("the store is as it was; it is served again")
        self._use(repository)

    def _refuse(self, reason: str) -> None:
        """Let all workers refuse the store; log it once."""
        if self._refusing:
            return
        self._refusing, self._shared.lost = True, reason
        self._use(cast("Repository", _Lost(reason)))
        if self._shared.read():
            _log.error(
                "%s; nothing is served until it is as it was, or the service is restarted", reason
            )
        else:
            _log.error("%s; nothing is served until the service is restarted", reason)


class _Lost:
    """Stands for a repository whose store is lost: each of its methods raises the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, _: str) -> Any:
        return self._raise

    async def _raise(self, *_: object) -> None:
        raise WrongStoreError(self._reason)
