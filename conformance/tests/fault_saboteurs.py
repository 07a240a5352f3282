"""Backends that only fault injection can tell from honest ones, and honest ones like them.

Each keeps its pets and orders in a file. Some have a server, too, without which they do nothing.
"""

import asyncio
import fcntl
import os
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct
from petstore_conformance.harness.forwarding import Forwarding

from conformance.tests.honest import Honest, Store, Token
from petstore.contract import (
    Backend,
    ChangeNeededError,
    Expected,
    Order,
    Pet,
    Receipt,
    UnavailableError,
    WrongStoreError,
)


class FileSettings(Struct, frozen=True):
    """The file of a store; a server that must reply; a file that is there while it is down."""

    path: str
    url: str = ""
    down: str = ""


class Saved(Forwarding, Honest):
    """Honest: each write is in the file before it returns. For one process.

    careful -- whether it opens no other store than the expected one
    """

    careful = True

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(load(settings))
        self.settings = settings

    async def forward(self, method: str, *arguments: Any, **named: Any) -> Any:
        return await self.call(getattr(Honest, method), *arguments, **named)

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        before = pickle.dumps(self.data)
        result = await method(self, *arguments, **named)
        self.saved(before)
        return result

    def saved(self, before: bytes) -> None:  # noqa: ARG002 - for LosesTheLastWrite
        """Save what a call has changed."""
        self.save(pickle.dumps(self.data))

    def save(self, content: bytes) -> None:
        new = Path(f"{self.settings.path}.new")
        new.write_bytes(content)
        new.replace(self.settings.path)

    def close(self) -> None:
        super().close()
        self.save(pickle.dumps(self.data))


class AcknowledgesFirst(Saved):
    """Saves a moment after a write has returned."""

    def saved(self, before: bytes) -> None:  # noqa: ARG002 - for LosesTheLastWrite
        asyncio.get_running_loop().call_later(0.2, self.save, pickle.dumps(self.data))


class LosesTheLastWrite(Saved):
    """Saves a write when the next call has come."""

    def saved(self, before: bytes) -> None:
        self.save(before)


class ForgetsTokens(Saved):
    """Saves the records of tokens only when it is closed."""

    def saved(self, before: bytes) -> None:  # noqa: ARG002 - for LosesTheLastWrite
        store = pickle.loads(pickle.dumps(self.data))  # noqa: S301 - its own
        store.records.clear()
        self.save(pickle.dumps(store))


class Slow(Saved):
    """Honest: every call takes 30 ms."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0.015)
        result = await super().call(method, *arguments, **named)
        await asyncio.sleep(0.015)
        return result


class Shared(Saved):
    """Honest: for several processes, of which one at a time may use the file."""

    def __init__(self, settings: FileSettings) -> None:
        super().__init__(settings)
        self.lock = asyncio.Lock()

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        async with self.lock:
            with self.file():
                return await super().call(method, *arguments, **named)

    @contextmanager
    def file(self) -> Iterator[None]:
        with Path(f"{self.settings.path}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.data = load(self.settings)
            yield

    def close(self) -> None:
        Honest.close(self)


class MakesAnother(Shared):
    """Opens whichever store there is, and makes one if there is none."""

    careful = False


class SellsTwice(Shared):
    """Checks and orders under a lock that holds only in its process."""

    trusting = False

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        async with self.lock:
            with self.file():
                if (pet := self.data.pets.get(pet_id)) and not self.find(token):
                    self.check_available(pet)
            await asyncio.sleep(0.05)
            with self.file():
                self.trusting = True
                try:
                    receipt: Receipt = await Saved.call(self, Honest.place_order, pet_id, at, token)
                finally:
                    self.trusting = False
                return receipt

    def check_available(self, pet: Pet) -> None:
        if not self.trusting:
            super().check_available(pet)


class Served(Saved):
    """Honest: a call asks the server first, and waits for a limited time."""

    seconds = 0.5

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if os.path.exists(self.settings.down):  # noqa: ASYNC240, PTH110 - at once
            self.refuse()
        await self.ask()
        return await super().call(method, *arguments, **named)

    def refuse(self) -> None:
        raise UnavailableError("the server is starting")

    async def ask(self) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                await self.exchange()
        except (OSError, EOFError) as error:
            raise UnavailableError("no reply") from error

    async def exchange(self) -> None:
        if not self.settings.url:
            return
        host, _, port = self.settings.url.removeprefix("tcp://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(b"?")
            await reader.readexactly(1)
        finally:
            writer.close()


class FailsWhileStarting(Served):
    """Passes on the error of its driver while the server is starting."""

    def refuse(self) -> None:
        raise ConnectionResetError("the database system is starting up")


class Hangs(Served):
    """Waits for the server without a limit."""

    async def ask(self) -> None:
        with suppress(OSError, EOFError):
            await self.exchange()


class HangsWhenCut(Served):
    """Waits forever for the reply of a connection that was closed."""

    async def ask(self) -> None:
        try:
            await super().ask()
        except UnavailableError as error:
            if isinstance(error.__cause__, EOFError):
                await asyncio.Event().wait()
            raise


class ReadsNoOrderAgain(Served):
    """Reads orders over a connection of their own, which it opens once."""

    lost = False

    async def get_order(self, order_id: int) -> Order | None:
        if self.lost:
            raise UnavailableError("no connection")
        try:
            order: Order | None = await super().get_order(order_id)
        except UnavailableError:
            self.lost = True
            raise
        return order


class Stubborn(Served):
    """Does not let a call be cancelled that waits for the server."""

    seconds = 1.5

    async def ask(self) -> None:
        asking = asyncio.ensure_future(super().ask())
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait([asking])
            raise


class SendsTwice(Served):
    """Asks the server after a write, and writes once more if there is no reply."""

    async def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = await Saved.call(self, method, *arguments, **named)
        try:
            await self.ask()
        except UnavailableError:
            result = await super().call(method, *arguments, **named)
        return result


def load(settings: FileSettings) -> Store:
    """Return the store in the file."""
    try:
        store: Store = pickle.loads(Path(settings.path).read_bytes())  # noqa: S301 - its own
    except FileNotFoundError:
        raise WrongStoreError("the file was removed") from None
    return store


def prepare(settings: FileSettings, expected: Expected) -> None:
    """Make a store if the file has none and that is allowed; see whether it is the expected one."""
    path = Path(settings.path)
    if not path.exists() and expected.store is None:
        if not expected.create:
            raise ChangeNeededError("there is no file")
        path.write_bytes(pickle.dumps(Store()))
    if expected.store not in (None, load(settings).identity):
        raise WrongStoreError("the file has another store")


@asynccontextmanager
async def scratch(settings: FileSettings) -> AsyncIterator[FileSettings]:
    """Yield settings of a file in a directory of its own."""
    with TemporaryDirectory() as directory:
        yield msgspec.structs.replace(settings, path=f"{directory}/pets")


def backend(repository: type[Saved]) -> Backend:
    """Return a backend that opens repositories of this class."""

    @asynccontextmanager
    async def open_(settings: FileSettings, expected: Expected) -> AsyncIterator[Saved]:
        prepare(settings, expected if repository.careful else Expected())
        opened = repository(settings)
        try:
            if isinstance(opened, Served):
                await opened.ask()
            yield opened
        finally:
            opened.close()

    return Backend(
        contract=2,
        settings=FileSettings,
        open=open_,
        scratch=scratch,
        shared=issubclass(repository, Shared),
        durable=True,
    )
