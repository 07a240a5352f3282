"""An honest backend that several processes share, and that outlives them: a pickled file.

Each call locks the file, loads the store, calls an honest repository and saves the store.
"""

import asyncio
import fcntl
import os
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from petstore.contract import Backend
from tests.support.honest import Honest, PlaceSettings, Store
from tests.support.odd import Wrapped


class Filed(Wrapped):
    """A repository on a file; a saboteur changes when it locks, loads or saves."""

    def __init__(self, path: Path) -> None:
        self.honest = Honest(Store())
        super().__init__(self.honest, Random(0))  # noqa: S311 - no secret
        self.path = path
        self.turn = asyncio.Lock()

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        async with self.turn, self.locked():
            self.load()
            try:
                return await method(*arguments)
            finally:
                self.save()

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        with self.path.with_suffix(".lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            yield

    def load(self) -> None:
        if self.path.exists():
            self.honest.store = pickle.loads(self.path.read_bytes())  # noqa: S301 - our own file

    def save(self) -> None:
        new = self.path.with_suffix(f".{os.getpid()}-{id(self)}")
        new.write_bytes(pickle.dumps(self.honest.store))
        new.replace(self.path)

    def close(self) -> None:
        self.honest.close()


@asynccontextmanager
async def scratch_filed(_: PlaceSettings) -> AsyncIterator[PlaceSettings]:
    """Yield the settings of a new file."""
    with TemporaryDirectory() as directory:
        yield PlaceSettings(f"{directory}/store")


@asynccontextmanager
async def open_filed(settings: PlaceSettings) -> AsyncIterator[Filed]:
    """Open a file."""
    async with opened(Filed, settings) as repository:
        yield repository


@asynccontextmanager
async def opened(kind: type[Filed], settings: PlaceSettings) -> AsyncIterator[Filed]:
    """Open a file with a kind of repository."""
    repository = kind(Path(settings.place))
    try:
        yield repository
    finally:
        repository.close()


def filed(open_: Callable[[Any], Any]) -> Backend:
    """Return a backend; another process must be able to import `open_` by its name."""
    return Backend(
        contract=1,
        settings=PlaceSettings,
        open=open_,
        scratch=scratch_filed,
        shared=True,
        durable=True,
    )


FILED = filed(open_filed)
