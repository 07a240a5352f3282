"""The export and import commands: find source and target, transfer, report the result."""

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, BinaryIO, Final

from petstore.config.errors import ConfigurationError, shorten
from petstore.config.loading import Configuration, configure
from petstore.config.settings import Settings, gather
from petstore.contract import Order, Pet, RefusedError, Repository
from petstore.transfer import ndjson
from petstore.transfer.calls import Calls
from petstore.transfer.ndjson import InvalidLineError
from petstore.transfer.progress import Progress, report
from petstore.transfer.sources import (
    ItemType,
    ServiceSource,
    Source,
    StorageSource,
    highest,
)

INTERRUPTED: Final = 130

NOT_WRITTEN: Final = 74
"""The exit status if the reader of an export is gone (EX_IOERR)."""

BATCH_ITEMS: Final = 500
"""The maximum number of items that are stored together."""

BATCH_BYTES: Final = 2**20
"""A batch ends with the line that reaches this number of bytes."""

ITEM_TYPES: Final[tuple[ItemType, ItemType]] = (Pet, Order)

Batch = list[tuple[int, Pet | Order]]
"""Items, each with the number of its line."""


def export(file: str, url: str | None) -> int:
    """Write all pets and orders to a file or standard output (``-``). Return the exit status.

    url -- a running service to read from, instead of the configured storage

    Raises `ConfigurationError` and `UnavailableError`.
    """
    try:
        if url is not None:
            keys = Settings.read(gather(os.environ, {}).values).keys
            if not keys:
                raise ConfigurationError("PETSTORE_API_KEYS is not set: --from needs an API key")
            service = ServiceSource(url, keys[0])
            try:
                _export(service, file)
            finally:
                service.close()
        else:
            configuration = _configured(
                "there is nothing to export. Read from the running service: --from URL"
            )
            with _opened(configuration) as (calls, repository):
                _export(StorageSource(calls, repository), file)
    except KeyboardInterrupt:
        report("interrupted; the export is incomplete")
        return INTERRUPTED
    except BrokenPipeError:
        report("the reader of the pipe has closed it; the export is incomplete")
        return NOT_WRITTEN
    return 0


def import_(file: str) -> int:
    """Store all pets and orders of a file or standard input (``-``). Return the exit status.

    Raises `InvalidLineError`, `ConfigurationError` and `UnavailableError`.
    """
    configuration = _configured("everything would be lost at the end")
    max_line = max(ndjson.MAX_LINE, configuration.settings.max_body_bytes + 1024)
    try:
        with _input(file) as (opened, name):
            size = _size(opened)
            if size is not None:
                _check(opened, name, max_line, size)
            with _opened(configuration) as (calls, repository):
                _import(opened, name, max_line, size, _Target(calls, repository, name))
    except KeyboardInterrupt:
        report("interrupted; run it again to continue")
        return INTERRUPTED
    return 0


def _configured(why: str) -> Configuration:
    configuration = configure(os.environ, {}, keyless=True)
    for warning in configuration.warnings:
        report(f"warning: {warning}")
    if not configuration.plugin.backend.durable:
        name = configuration.plugin.name
        raise ConfigurationError(f"the backend '{name}' keeps its data only in the process: {why}")
    return configuration


@contextmanager
def _opened(configuration: Configuration) -> Iterator[tuple[Calls, Repository]]:
    """Open the storage. Only its calls run in the event loop, so that files may block."""
    with Calls() as calls:
        stack = AsyncExitStack()
        backend = configuration.plugin.backend
        try:
            yield calls, calls.run(stack.enter_async_context(backend.open(configuration.storage)))
        finally:
            calls.run(stack.aclose())


def _export(source: Source, file: str) -> None:
    ends = [highest(source, type_) for type_ in ITEM_TYPES]
    with _output(file) as output, Progress("exported", sum(ends)) as progress:
        before = 0
        for type_, end in zip(ITEM_TYPES, ends, strict=True):
            for page in source.pages(type_):
                output.write(b"".join(map(ndjson.encode, page)))
                for item in page:
                    progress.count(item)
                progress.update(before + page[-1].id)
            before += end
        output.flush()
        progress.finish()


@contextmanager
def _output(file: str) -> Iterator[IO[bytes]]:
    """Yield the output: standard output, or a file that appears when it is complete."""
    path = Path(os.path.realpath(file))
    try:
        if file == "-":
            if sys.stdout is None:
                raise ConfigurationError("standard output is closed")
            yield sys.stdout.buffer
            return
        if path.exists() and not path.is_file():  # a device, a named pipe
            with path.open("wb") as opened:
                yield opened
            return
        part = path.with_name(f".{path.name[:200]}.{token_hex(4)}.part")
        try:
            with part.open("xb") as opened:
                yield opened
                opened.flush()
                os.fsync(opened.fileno())
            part.replace(path)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        if file == "-":  # `petstore.cli` reports it, as for every command
            raise
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from None


@contextmanager
def _input(file: str) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the input and its name in messages."""
    if file == "-":
        if sys.stdin is None:
            raise ConfigurationError("standard input is closed")
        yield sys.stdin.buffer, "standard input"
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - errors while reading are handled elsewhere
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    with opened:
        yield opened, file


def _size(opened: BinaryIO) -> int | None:
    """Return how many bytes of a regular file are left to read; None for other inputs."""
    try:
        status = os.fstat(opened.fileno())
        if stat.S_ISREG(status.st_mode):
            return max(0, status.st_size - opened.tell())
    except OSError:
        pass
    return None


def _check(opened: BinaryIO, name: str, max_line: int, size: int) -> None:
    """Check all lines before the first is stored, then rewind."""
    begin, done = opened.tell(), 0
    with Progress("checked", size) as progress:
        for _, line, item in ndjson.read(opened, name, max_line):
            done += len(line)
            progress.count(item)
            progress.update(done)
    opened.seek(begin)


def _import(
    opened: BinaryIO, name: str, max_line: int, size: int | None, target: "_Target"
) -> None:
    with Progress("imported", size) as progress:
        done = 0  # bytes that were read
        begin = 0  # where the batch begins
        batch: Batch = []
        nothing_new = True

        def store() -> None:
            nonlocal nothing_new
            nothing_new = nothing_new and target.has(batch)  # an import of new items asks once
            target.store(batch)
            for _, item in batch:
                progress.count(item)
            progress.update(done)
            batch.clear()

        try:
            for number, line, item in ndjson.read(opened, name, max_line):
                batch.append((number, item))
                done += len(line)
                if len(batch) == BATCH_ITEMS or done - begin >= BATCH_BYTES:
                    store()
                    begin = done
        except InvalidLineError as error:
            if size is None:
                store()
                raise InvalidLineError(f"{error}. The lines before it are stored") from None
            raise
        store()
        progress.finish("; all of them were stored already" if nothing_new and done else "")


class _Target:
    """The storage into which items are imported."""

    def __init__(self, calls: Calls, repository: Repository, name: str) -> None:
        self._calls = calls
        self._repository = repository
        self._name = name

    def has(self, batch: Batch) -> bool:
        """Return whether all items of a batch are stored, by their ids."""

        async def look_up() -> list[Pet | Order | None]:
            return await asyncio.gather(*(self._find(item) for _, item in batch))

        return None not in self._calls.run(look_up())

    def store(self, batch: Batch) -> None:
        """Store items together. Raises `InvalidLineError` with the line of a refused item.

        The refused item is found by storing them again, one by one.
        """
        try:
            self._calls.run(self._repository.restore([item for _, item in batch]))
        except RefusedError:
            for number, item in batch:
                try:
                    self._calls.run(self._repository.restore([item]))
                except RefusedError as refusal:
                    raise InvalidLineError(
                        f"{self._name}, line {number}: {self._reason(item, refusal)}."
                        " All lines before it are stored, and some after it may be; it is safe"
                        " to run the import again"
                    ) from None

    async def _find(self, item: Pet | Order) -> Pet | Order | None:
        """Return what is stored under the id of an item."""
        if isinstance(item, Pet):
            return await self._repository.get_pet(item.id)
        return await self._repository.get_order(item.id)

    def _reason(self, item: Pet | Order, refusal: RefusedError) -> str:
        found = self._calls.run(self._find(item))
        if found is None:
            return str(refusal)
        return f"a different item is stored: {shorten(ndjson.encode(found).decode().strip(), 200)}"
