"""An honest backend that several processes share, and that outlives them: a pickled file.

Each call locks the file, loads the store, calls an honest repository and saves the store.
"""

import asyncio
import fcntl
import os
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from conformance.tests.honest import Honest, LocationSettings, Store
from conformance.tests.odd import Wrapped
from petstore.contract import Backend, ChangeNeededError, Expected, WrongStoreError


class Filed(Wrapped):
    """A repository on a file; a saboteur changes when it locks, loads or saves."""

    def __init__(self, path: Path) -> None:
        self.honest = Honest(Store())
        super().__init__(self.honest, Random(0))  # noqa: S311 - no secret
        self.path = path
        self.turn = asyncio.Lock()

    async def begin(self, expected: Expected) -> None:
        """Find the store in the file, or make it."""
        async with self.locked():
            if self.path.exists():
                self.load()
            elif not expected.create:
                raise ChangeNeededError("there is no file")
            elif expected.store is None:
                self.save()
            self.store = self.honest.data.identity
            if expected.store not in (None, self.store):
                raise WrongStoreError("the file has another store, or there is none")

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        async with self.turn, self.locked():
            self.load()
            if self.honest.data.identity != self.store:
                raise WrongStoreError("the file has another store")
            try:
                return await method(*arguments, **named)
            finally:
                self.save()

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        try:
            file = self.path.with_suffix(".lock").open("a")
        except FileNotFoundError:
            raise WrongStoreError("the directory was removed") from None
        with file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            yield

    def load(self) -> None:
        try:
            self.honest.data = pickle.loads(self.path.read_bytes())  # noqa: S301 - our own file
        except FileNotFoundError:
            raise WrongStoreError("the file was removed") from None

    def save(self) -> None:
        new = self.path.with_suffix(f".{os.getpid()}-{id(self)}")
        new.write_bytes(pickle.dumps(self.honest.data))
        new.replace(self.path)

    def close(self) -> None:
        self.honest.close()


@asynccontextmanager
async def scratch_filed(_: LocationSettings) -> AsyncIterator[LocationSettings]:
    """Yield the settings of a new file."""
    with TemporaryDirectory() as directory:
        yield LocationSettings(f"{directory}/store")


@asynccontextmanager
async def opened(
    kind: type[Filed], settings: LocationSettings, expected: Expected
) -> AsyncIterator[Filed]:
    """Open a file with a kind of repository."""
    repository = kind(Path(settings.location))
    await repository.begin(expected)
    try:
        yield repository
    finally:
        repository.close()


def filed(kind: type[Filed]) -> Backend:
    """Return a backend of a kind, which another process must be able to import by its name."""
    return Backend(
        contract=2,
        settings=LocationSettings,
        open=partial(opened, kind),
        scratch=scratch_filed,
        shared=True,
        durable=True,
    )


FILED = filed(Filed)
