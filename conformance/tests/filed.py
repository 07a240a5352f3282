"""A correct backend on a pickled file, which outlives its process.

Each call locks the file, loads the store, calls a correct repository and saves the store.
"""

import asyncio
import fcntl
import os
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from msgspec.structs import replace
from petstore_conformance.harness.forwarding import Forwarding

from conformance.tests.correct import Correct, LocationSettings, Store
from petstore.contract import Access, Backend, ChangeNeededError, Expected, Notes, WrongStoreError


class FileSettings(LocationSettings, frozen=True):
    """The file of a store; a server that must reply; a file that is there while it is down."""

    url: str = ""
    down: str = ""


class Filed(Forwarding, Correct):
    """Correct. A saboteur changes when it locks, loads or saves.

    shared -- whether several processes may open the file
    notes -- what they know of it
    """

    shared: ClassVar[bool] = True
    notes: Notes | None = None
    lost = False

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(Store())
        self.settings = settings
        self.path = Path(settings.location)

    async def begin(self, expected: Expected) -> None:
        """Find the store in the file, or make it."""
        async with self.locked():
            if expected.store is None and not self.path.exists():
                if expected.access is not Access.CREATE:
                    raise ChangeNeededError("there is no file")
                self.write(self.data)
            self.data = self.read()
            self.store = self.data.identity
            self.notes = expected.notes
            self.load()
            if expected.store not in (None, self.store):
                raise WrongStoreError("the file has another store")

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        return await self.call(getattr(Correct, method), *arguments, **named)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        async with self.lock, self.locked():
            self.load()
            try:
                return await method(self, *arguments, **named)
            finally:
                self.save()

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        lock = Path(f"{self.path}.lock")
        if not lock.parent.exists():
            raise WrongStoreError("the directory was removed")
        with lock.open("a") as file:  # noqa: ASYNC230 - an empty file of this machine
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            yield

    def load(self) -> None:
        self.data = self.read()
        self.lost = self.lost or self.data.identity != self.store
        if self.lost:
            raise WrongStoreError("the file has another store, or had one")
        if self.notes and self.changes() < max(map(int, self.notes.read()), default=0):
            raise WrongStoreError("the file has an older copy")

    def changes(self) -> int:
        """Return how often the store has been saved."""
        return int(self.data.extra.get("changes", 0))

    def save(self) -> None:
        self.data.extra["changes"] = self.changes() + 1
        self.write(self.data)
        if self.notes:
            self.notes.write(b"%d" % self.changes())

    def read(self) -> Store:
        try:
            store: Store = pickle.loads(self.path.read_bytes())  # noqa: S301 - our own file
        except FileNotFoundError:
            raise WrongStoreError("the file was removed") from None
        return store

    def write(self, store: Store) -> None:
        new = Path(f"{self.path}.{os.getpid()}-{id(self)}")
        new.write_bytes(pickle.dumps(store))
        new.replace(self.path)


@asynccontextmanager
async def scratch_filed(settings: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Yield the settings of a file in a directory of its own."""
    with TemporaryDirectory() as directory:
        Path(directory, "store.lock").touch()  # noqa: ASYNC240 - an empty file
        yield replace(settings, location=f"{directory}/store")


@asynccontextmanager
async def scratch_at(path: Path) -> AsyncIterator[LocationSettings]:
    """Yield the settings of a file; remove it, and those whose names begin with its name."""
    try:
        yield LocationSettings(str(path))
    finally:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink(missing_ok=True)


@asynccontextmanager
async def opened(
    kind: type[Filed], settings: FileSettings, expected: Expected
) -> AsyncIterator[Filed]:
    """Open a file with a kind of repository."""
    repository = kind(settings)
    await repository.begin(expected)
    try:
        yield repository
    finally:
        repository.close()


def backend(kind: type[Filed]) -> Backend:
    """Return a backend of a kind, which another process must be able to import by its name."""
    return Backend(
        contract=2,
        settings=FileSettings,
        open=partial(opened, kind),
        scratch=scratch_filed,
        shared=kind.shared,
        durable=True,
    )


FILED = backend(Filed)
