"""The export and import commands: find source and target, transfer, report the result."""

import errno
import logging
import os
import sqlite3
import stat
import sys
import time
from asyncio import Runner
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from secrets import token_hex
from typing import IO, BinaryIO, Final

from msgspec.structs import replace

from petstore import exit_status
from petstore.config.errors import ConfigurationError
from petstore.config.loading import Configuration, configure
from petstore.contract import Access, Expected, Order, Pet, RefusedError, Repository, TokenRecord
from petstore.observability.logs import report
from petstore.text.phrases import count, shorten
from petstore.transfer import ndjson
from petstore.transfer.differences import SortedRecords, differences
from petstore.transfer.ndjson import InvalidLineError, Transferred
from petstore.transfer.progress import Progress
from petstore.transfer.sources import Source

MAX_SHOWN: Final = 100
"""How many differences are shown."""

READING: Final = Expected(access=Access.READ)
"""What an export expects: it makes no empty store at a wrong location, and changes nothing."""

BATCH_ITEMS: Final = 500
"""The maximum number of items that are stored together."""

BATCH_BYTES: Final = 2**20
"""A batch ends with the line that reaches this number of bytes."""

_RETRIED: Final = "; without records of idempotency keys, a retry after the move takes effect again"
_MOMENT: Final = "; it shows one moment only if nobody wrote meanwhile (see PETSTORE_READ_ONLY)"

_Numbered = tuple[int, Transferred]
"""An item, and the number of its line."""


def export(file: str) -> int:
    """Write everything to a file or standard output (``-``). Return the exit status.

    Raises `ConfigurationError` and `UnavailableError`.
    """
    configuration = _configured("there is nothing to export")
    remark = "" if configuration.plugin.backend.snapshots else _MOMENT
    try:
        with _opened(configuration, READING) as (runner, repository):
            _export(Source(runner, repository), file, remark)
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
    try:
        with _input(file, configuration) as lines:
            if lines.size is not None:
                lines.check()
            with _opened(configuration, Expected()) as (runner, repository):
                _import(lines, runner, repository)
    except KeyboardInterrupt:
        report("interrupted; run it again to continue")
        return exit_status.INTERRUPTED
    return 0


def verify(file: str) -> int:
    """Compare a file or standard input (``-``) with the store. Return the exit status.

    Raises `InvalidLineError`, `ConfigurationError` and `UnavailableError`.
    """
    configuration = _configured("there is nothing to compare")
    try:
        with (
            _input(file, configuration) as lines,
            _opened(configuration, READING) as (runner, repository),
            Progress("compared", lines.size) as progress,
        ):
            items, source = lines.watched(progress), Source(runner, repository)
            found = differences(items, lines.records, lines.name, source, int(time.time()))
            shown = list(islice(found, MAX_SHOWN))
            more = sum(1 for _ in found)
            progress.finish("" if shown else "; all are equal")
    except KeyboardInterrupt:
        report("interrupted")
        return exit_status.INTERRUPTED
    for line in [*shown, *([f"and {count(more, 'more difference')}"] if more else [])]:
        print(line)
    return exit_status.DIFFERENT if shown else 0


def _configured(why: str) -> Configuration:
    configuration = configure(os.environ, {}, keyless=True)
    for warning in configuration.warnings:
        report(warning, logging.WARNING)
    if not configuration.plugin.backend.durable:
        name = configuration.plugin.name
        raise ConfigurationError(f"the backend '{name}' keeps its data only in the process: {why}")
    return configuration


@contextmanager
def _opened(
    configuration: Configuration, expected: Expected
) -> Iterator[tuple[Runner, Repository]]:
    """Open the storage. Only its calls run in the event loop, so that files may block."""
    backend = configuration.plugin.backend
    snapshot = expected is READING and backend.snapshots
    expected = replace(expected, store=configuration.settings.store, snapshot=snapshot)
    with Runner() as runner:
        stack = AsyncExitStack()
        opened = backend.open(configuration.storage, expected)
        try:
            yield runner, runner.run(stack.enter_async_context(opened))
        finally:
            runner.run(stack.aclose())


def _export(source: Source, file: str, remark: str) -> None:
    now = int(time.time())
    with _output(file) as output, Progress("exported", None) as progress:
        for items in chain(source.pages(Pet), source.pages(Order), source.tokens(now)):
            output.write(b"".join(map(ndjson.encode, items)))
            progress.add(items)
        output.write(ndjson.encode_end(progress.counts))
        output.flush()
        progress.finish(remark)


@contextmanager
def _output(file: str) -> Iterator[IO[bytes]]:
    """Yield the output: standard output, or a file that appears when it is complete."""
    path = Path(os.path.realpath(file))
    try:
        if file == "-":
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
            _sync_name(path)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        if file == "-":  # `petstore.cli` reports it, as for every command
            raise
        if error.filename is None or error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(errno.EIO, error.strerror, file) from None  # for `petstore.cli`, too
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from None


def _sync_name(path: Path) -> None:
    """Sync the name of a file, if the user may read its folder and the file system can do it."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL):
            raise


class _Lines:
    """What is imported or compared.

    name -- that of the file, in messages
    size -- how many bytes of a regular file are left to read; None for other inputs
    records -- the records of tokens that were read
    """

    def __init__(self, opened: BinaryIO, name: str, max_line: int) -> None:
        self._opened = opened
        self._max_line = max_line
        self.name = name
        self.size = _size(opened)
        self.records = SortedRecords()

    def check(self) -> None:
        """Check all lines before the first is stored, then rewind."""
        begin = self._opened.tell()
        with Progress("checked", self.size) as progress:
            for _ in self.watched(progress):
                pass
        self._opened.seek(begin)

    def watched(self, progress: Progress) -> Iterator[_Numbered]:
        """Yield the items, and show how many bytes were read."""
        for number, line, item in self.read():
            progress.add([item], len(line))
            yield number, item

    def read(self) -> Iterator[tuple[int, bytes, Transferred]]:
        """Yield what `ndjson.read` does.

        Raises `InvalidLineError` also for a record that contradicts an earlier one of its token.
        """
        for number, line, item in ndjson.read(self._opened, self.name, self._max_line):
            if isinstance(item, TokenRecord) and not self.records.add(item, number):
                raise InvalidLineError(
                    f"{self.name}, line {number}: an earlier line has another record of its token"
                )
            yield number, line, item


@contextmanager
def _input(file: str, configuration: Configuration) -> Iterator[_Lines]:
    max_line = max(ndjson.MAX_LINE, configuration.settings.max_body_bytes + 1024)
    with ExitStack() as stack:
        if file != "-":
            try:
                opened: BinaryIO = stack.enter_context(Path(file).open("rb"))
            except OSError as error:
                raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
        elif sys.stdin is None:
            raise ConfigurationError("standard input is closed")
        else:
            opened, file = sys.stdin.buffer, "standard input"
        lines = _Lines(opened, file, max_line)
        stack.callback(lines.records.close)
        try:
            yield lines
        except sqlite3.OperationalError as error:  # of `SortedRecords`
            raise OSError(errno.EIO, str(error), "a temporary file") from None


def _size(opened: BinaryIO) -> int | None:
    try:
        status = os.fstat(opened.fileno())
        if stat.S_ISREG(status.st_mode):
            return max(0, status.st_size - opened.tell())
    except OSError:
        pass
    return None


def _import(lines: _Lines, runner: Runner, repository: Repository) -> None:
    now, expired = int(time.time()), 0
    with Progress("imported", lines.size) as progress:
        size = 0  # of the lines of the batch
        batch: list[_Numbered] = []

        def store() -> None:
            nonlocal expired
            living = [
                (number, item)
                for number, item in batch
                if not (isinstance(item, TokenRecord) and item.until <= now)
            ]
            expired += len(batch) - len(living)
            _restore(living, lines.name, runner, repository)
            progress.add((item for _, item in batch), size)
            batch.clear()

        try:
            for number, line, item in lines.read():
                batch.append((number, item))
                size += len(line)
                if len(batch) == BATCH_ITEMS or size >= BATCH_BYTES:
                    store()
                    size = 0
        except InvalidLineError as error:
            if lines.size is None:
                store()
                raise InvalidLineError(f"{error}. The lines before it are stored") from None
            raise
        store()
        remark = f"; {count(expired, 'record')} of them had expired" if expired else ""
        if sum(progress.counts.values()) and not progress.counts[TokenRecord]:
            remark += _RETRIED
        progress.finish(remark)


def _restore(batch: list[_Numbered], name: str, runner: Runner, repository: Repository) -> None:
    """Store items together.

    Raises `InvalidLineError` with the line of a refused item, which is found by storing them again,
    one by one.
    """
    try:
        runner.run(repository.restore([item for _, item in batch]))
    except RefusedError:
        for number, item in batch:
            try:
                runner.run(repository.restore([item]))
            except RefusedError as refusal:
                reason = _reason(item, refusal, runner, repository)
                raise InvalidLineError(
                    f"{name}, line {number}: {reason}. All lines before it are stored, and some"
                    " after it may be; it is safe to run the import again"
                ) from None


def _reason(
    item: Transferred, refusal: RefusedError, runner: Runner, repository: Repository
) -> str:
    found: Pet | Order | None = None
    if isinstance(item, Pet):
        found = runner.run(repository.get_pet(item.id))
    elif isinstance(item, Order):
        found = runner.run(repository.get_order(item.id))
    if found is None:
        return f"the {ndjson.MEMBERS[type(item)]} with id {item.id} is refused: {refusal}"
    return f"a different item is stored: {shorten(ndjson.encode(found).decode().strip(), 200)}"
