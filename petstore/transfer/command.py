"""The export and import commands: find source and target, transfer, report the result."""

import asyncio
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import IO, BinaryIO, Final

from msgspec.structs import replace

from petstore import exit_status
from petstore.config.errors import ConfigurationError, count, shorten
from petstore.config.loading import Configuration, configure
from petstore.config.settings import Settings, gather
from petstore.contract import MAX_ID, Expected, Order, Pet, RefusedError, Repository, TokenRecord
from petstore.interface import RECORD_SECONDS
from petstore.transfer import ndjson
from petstore.transfer.comparison import differences
from petstore.transfer.ndjson import InvalidLineError, Transferred
from petstore.transfer.progress import Progress, report
from petstore.transfer.records import Records
from petstore.transfer.runner import Calls
from petstore.transfer.sources import ItemType, ServiceSource, Source, StorageSource, highest

MAX_SHOWN: Final = 100
"""How many differences are shown."""

READING: Final = Expected(create=False, upgrade=False, writes=False)
"""What an export expects: it makes no empty store at a wrong location, and changes nothing."""

BATCH_ITEMS: Final = 500
"""The maximum number of items that are stored together."""

BATCH_BYTES: Final = 2**20
"""A batch ends with the line that reaches this number of bytes."""

_RETRIED: Final = "without records of idempotency keys, a retry after the move takes effect again"

ITEM_TYPES: Final[tuple[ItemType, ItemType]] = (Pet, Order)

FEW_IDS: Final = 2**40
"""How many ids must be left for new items, or a warning says how many there are."""

MAX_TOKEN_SECONDS: Final = 2 * RECORD_SECONDS
"""How long a record may last: a day, and another one for clocks that differ."""

Batch = list[tuple[int, Transferred]]
"""Items, each with the number of its line."""


def export(file: str, url: str | None) -> int:
    """Write everything to a file or standard output (``-``). Return the exit status.

    url -- a running service to read from, instead of the configured storage

    Raises `ConfigurationError` and `UnavailableError`.
    """
    try:
        if url is not None:
            keys = Settings.read(gather(os.environ, {}).values).keys
            if not keys:
                raise ConfigurationError("PETSTORE_API_KEYS is not set: --from needs an API key")
            with closing(ServiceSource(url, keys[0])) as service:
                _export(service, file)
        else:
            configuration = _configured(
                "there is nothing to export. Read from the running service: --from URL"
            )
            with _opened(configuration, READING) as (calls, repository):
                _export(StorageSource(calls, repository), file)
    except KeyboardInterrupt:
        report("interrupted; the export is incomplete")
        return exit_status.INTERRUPTED
    except BrokenPipeError:
        report("the reader of the pipe has closed it; the export is incomplete")
        return exit_status.NOT_WRITTEN
    return 0


def import_(file: str) -> int:
    """Store everything that a file or standard input (``-``) has. Return the exit status.

    Raises `InvalidLineError`, `ConfigurationError` and `UnavailableError`.
    """
    configuration = _configured("everything would be lost at the end")
    max_line = max(ndjson.MAX_LINE, configuration.settings.max_body_bytes + 1024)
    try:
        with _input(file) as (opened, name):
            size = _size(opened)
            if size is not None:
                _check(opened, name, max_line, size)
            with _opened(configuration, Expected()) as (calls, repository):
                _import(opened, name, max_line, size, _Target(calls, repository, name))
    except KeyboardInterrupt:
        report("interrupted; run it again to continue")
        return exit_status.INTERRUPTED
    return 0


def verify(file: str) -> int:
    """Compare a file or standard input (``-``) with the store. Return the exit status.

    Raises `InvalidLineError`, `ConfigurationError` and `UnavailableError`.
    """
    configuration = _configured("there is nothing to compare")
    max_line = max(ndjson.MAX_LINE, configuration.settings.max_body_bytes + 1024)
    try:
        with (
            _input(file) as (opened, name),
            _opened(configuration, READING) as (calls, repository),
            Progress("compared", _size(opened)) as progress,
        ):
            lines = _watched(_read(opened, name, max_line), progress)
            source = StorageSource(calls, repository)
            found = differences(lines, name, source, int(time.time()))
            shown = list(islice(found, MAX_SHOWN))
            more = sum(1 for _ in found)
            progress.finish("" if shown else "; all are equal")
    except KeyboardInterrupt:
        report("interrupted")
        return exit_status.INTERRUPTED
    for line in [*shown, *([f"and {count(more, 'more difference')}"] if more else [])]:
        print(line)
    return exit_status.DIFFERENT if shown else 0


def _watched(
    lines: Iterator[tuple[int, bytes, Transferred]], progress: Progress
) -> Iterator[tuple[int, Transferred]]:
    """Yield the numbers and items of lines, and show how many bytes were read."""
    done = 0
    for number, line, item in lines:
        done += len(line)
        progress.count([item])
        progress.update(done)
        yield number, item


def _configured(why: str) -> Configuration:
    configuration = configure(os.environ, {}, keyless=True)
    for warning in configuration.warnings:
        report(f"warning: {warning}")
    if not configuration.plugin.backend.durable:
        name = configuration.plugin.name
        raise ConfigurationError(f"the backend '{name}' keeps its data only in the process: {why}")
    return configuration


@contextmanager
def _opened(configuration: Configuration, expected: Expected) -> Iterator[tuple[Calls, Repository]]:
    """Open the storage. Only its calls run in the event loop, so that files may block."""
    backend = configuration.plugin.backend
    snapshot = expected is READING and backend.snapshots
    expected = replace(expected, store=configuration.settings.store, snapshot=snapshot)
    with Calls() as calls:
        stack = AsyncExitStack()
        opened = backend.open(configuration.storage, expected)
        try:
            yield calls, calls.run(stack.enter_async_context(opened))
        finally:
            calls.run(stack.aclose())


def _export(source: Source, file: str) -> None:
    ends = [highest(source, type_) for type_ in ITEM_TYPES]
    with _output(file) as output, Progress("exported", sum(ends)) as progress:
        before = 0
        for type_, end in zip(ITEM_TYPES, ends, strict=True):
            for page in source.pages(type_):
                output.write(b"".join(map(ndjson.encode, page)))
                progress.count(page)
                progress.update(before + page[-1].id)
            before += end
        tokens = source.tokens(int(time.time()))
        for records in tokens or ():
            output.write(b"".join(map(ndjson.encode, records)))
            progress.count(records)
        output.flush()
        remark = "" if tokens else f"; {_RETRIED}"
        if [highest(source, type_) for type_ in ITEM_TYPES] != ends:
            remark += "; it was written to meanwhile, so this is not one moment (see"
            remark += " PETSTORE_READ_ONLY)"
        progress.finish(remark)


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
    begin = opened.tell()
    with Progress("checked", size) as progress:
        for _ in _watched(_read(opened, name, max_line, warn=True), progress):
            pass
    opened.seek(begin)


def _read(
    opened: BinaryIO, name: str, max_line: int, *, warn: bool = False
) -> Iterator[tuple[int, bytes, Transferred]]:
    """Yield what `ndjson.read` does.

    warn -- whether to warn at the end if few ids are left: new ones follow the highest

    Raises `InvalidLineError` also for a record of a token that lasts too long, or that contradicts
    an earlier one.
    """
    latest = int(time.time()) + MAX_TOKEN_SECONDS
    highest = dict.fromkeys(ndjson.MEMBERS, 0)
    with closing(Records()) as records:
        for number, line, item in ndjson.read(opened, name, max_line):
            if isinstance(item, TokenRecord):
                where = f"{name}, line {number}"
                if item.until > latest:
                    raise InvalidLineError(
                        f"{where}: until: a record lasts for a day, not for longer"
                    )
                if not records.add(item):
                    raise InvalidLineError(
                        f"{where}: an earlier line has another record of its token"
                    )
            highest[type(item)] = max(highest[type(item)], item.id)
            yield number, line, item
    for type_ in ITEM_TYPES:
        if warn and (left := MAX_ID - highest[type_]) < FEW_IDS:
            word = ndjson.MEMBERS[type_]
            report(
                f"warning: the highest {word} id in {name} is {highest[type_]}: it leaves"
                f" {count(left, 'id') if left else 'none'} for new {word}s. If that is too few,"
                f" give its {word}s lower ids, and import it into a new store"
            )


def _import(
    opened: BinaryIO, name: str, max_line: int, size: int | None, target: "_Target"
) -> None:
    with Progress("imported", size) as progress:
        done = 0  # bytes that were read
        begin = 0  # where the batch begins
        batch: Batch = []

        def store() -> None:
            target.store(batch)
            progress.count(item for _, item in batch)
            progress.update(done)
            batch.clear()

        try:
            for number, line, item in _read(opened, name, max_line, warn=size is None):
                done += len(line)
                batch.append((number, item))
                if len(batch) == BATCH_ITEMS or done - begin >= BATCH_BYTES:
                    store()
                    begin = done
        except InvalidLineError as error:
            if size is None:
                store()
                raise InvalidLineError(f"{error}. The lines before it are stored") from None
            raise
        store()
        progress.finish(target.remark() if done else "")


class _Target:
    """The storage into which items are imported."""

    def __init__(self, calls: Calls, repository: Repository, name: str) -> None:
        self._calls = calls
        self._repository = repository
        self._name = name
        self._now = int(time.time())
        self._nothing_new = True
        self._items = self._records = self._expired = 0

    def remark(self) -> str:
        """Return what to say in the end, besides the numbers."""
        known = self._nothing_new and self._items
        remark = "; all of them were stored already" if known else ""
        if self._expired:
            remark += f"; {count(self._expired, 'record')} of them had expired"
        if not self._records:
            remark += f"; {_RETRIED}"
        return remark

    def _has(self, batch: Batch) -> bool:
        """Return whether all pets and orders of a batch are stored, by their ids."""

        async def look_up() -> list[Pet | Order | None]:
            items = (item for _, item in batch if not isinstance(item, TokenRecord))
            return await asyncio.gather(*map(self._find, items))

        return None not in self._calls.run(look_up())

    def store(self, batch: Batch) -> None:
        """Store items together, without expired records.

        Raises `InvalidLineError` with the line of a refused item, which is found by storing them
        again, one by one.
        """
        records = [item for _, item in batch if isinstance(item, TokenRecord)]
        expired = [record for record in records if record.until <= self._now]
        self._items += len(batch) - len(records)
        self._records += len(records)
        self._expired += len(expired)
        batch = [(number, item) for number, item in batch if item not in expired]
        # An import of new items asks once.
        self._nothing_new = self._nothing_new and self._has(batch)
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

    def _reason(self, item: Transferred, refusal: RefusedError) -> str:
        found = None if isinstance(item, TokenRecord) else self._calls.run(self._find(item))
        if found is None:
            return str(refusal)
        return f"a different item is stored: {shorten(ndjson.encode(found).decode().strip(), 200)}"
