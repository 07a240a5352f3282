"""What the commands do: find source and target, move, and say how it ended."""

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, BinaryIO, Final

from petstore.configuration import Configuration, configure
from petstore.contract import Order, Pet, RefusedError, Repository
from petstore.moving import lines
from petstore.moving.progress import Progress, say
from petstore.moving.sources import Kind, Service, Source, Storage, highest
from petstore.settings import ConfigurationError, Settings, gather, shorten

INTERRUPTED: Final = 130

CHUNK: Final = 500
"""How many items are stored together at most."""

CHUNK_BYTES: Final = 2**20
"""How many bytes of lines they have, but for the last of them."""

KINDS: Final[tuple[Kind, Kind]] = (Pet, Order)

Chunk = list[tuple[int, Pet | Order]]


def export(file: str, url: str | None) -> int:
    """Write all animals and orders to a file, or to standard output (``-``); return a status.

    url -- the running service that they are read from, instead of the configured storage
    Raises `ConfigurationError` and `UnavailableError`.
    """
    try:
        if url is not None:
            keys = Settings.read(gather(os.environ, {}).values).keys
            if not keys:
                raise ConfigurationError("PETSTORE_API_KEYS is not set: --from needs an API key")
            service = Service(url, keys[0])
            try:
                _export(service, file)
            finally:
                service.close()
        else:
            configuration = _configured(
                "it has nothing to export. Read the running service: --from URL"
            )
            with _opened(configuration) as (runner, repository):
                _export(Storage(runner, repository), file)
    except KeyboardInterrupt:
        say("interrupted; the export is not complete")
        return INTERRUPTED
    return 0


def import_(file: str) -> int:
    """Store all animals and orders of a file, or of standard input (``-``); return a status.

    Raises `ConfigurationError` for a line that is malformed or refused, and `UnavailableError`.
    """
    configuration = _configured("all would be gone at the end")
    max_line = max(lines.MAX_LINE, configuration.settings.max_body_bytes + 1024)
    try:
        with _source(file) as (opened, name):
            size = _size(opened)
            if size is not None:
                _check(opened, name, max_line, size)
            with _opened(configuration) as (runner, repository):
                _import(opened, name, max_line, size, _Target(runner, repository, name))
    except KeyboardInterrupt:
        say("interrupted; run it again, and it goes on")
        return INTERRUPTED
    return 0


def _configured(why: str) -> Configuration:
    configuration = configure(os.environ, {}, keyless=True)
    for warning in configuration.warnings:
        say(f"warning: {warning}")
    if not configuration.plugin.backend.durable:
        name = configuration.plugin.name
        raise ConfigurationError(f"the backend '{name}' ends with its process: {why}")
    return configuration


@contextmanager
def _opened(configuration: Configuration) -> Iterator[tuple[asyncio.Runner, Repository]]:
    """Open the storage. Only its calls run in the event loop: pipes and keys are waited for."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def enter() -> Repository:
            backend = configuration.plugin.backend
            return await stack.enter_async_context(backend.open(configuration.storage))

        try:
            yield runner, runner.run(enter())
        finally:
            runner.run(stack.aclose())


def _export(source: Source, file: str) -> None:
    ends = [highest(source, kind) for kind in KINDS]
    with _target(file) as target, Progress("exported", sum(ends)) as progress:
        before = 0
        for kind, end in zip(KINDS, ends, strict=True):
            for page in source.pages(kind):
                target.write(b"".join(map(lines.encode, page)))
                for item in page:
                    progress.count(item)
                    place = before + item.id
                progress.at(place)
            before += end
        target.flush()
        progress.finish()


@contextmanager
def _target(file: str) -> Iterator[IO[bytes]]:
    """Yield what is written to: standard output, or a file that appears when it is complete."""
    if file == "-":
        yield sys.stdout.buffer
        return
    path = Path(os.path.realpath(file))
    try:
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
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from None


@contextmanager
def _source(file: str) -> Iterator[tuple[BinaryIO, str]]:
    """Yield what is read, and its name."""
    if file == "-":
        if sys.stdin is None:
            raise ConfigurationError("standard input is closed")
        yield sys.stdin.buffer, "standard input"
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - what is read later has errors of its own
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    with opened:
        yield opened, file


def _size(opened: BinaryIO) -> int | None:
    """Return the size of a regular file from where it is read; None for what flows by."""
    try:
        status = os.fstat(opened.fileno())
        if stat.S_ISREG(status.st_mode):
            return max(0, status.st_size - opened.tell())
    except OSError:
        pass
    return None


def _check(opened: BinaryIO, name: str, max_line: int, size: int) -> None:
    """Read all lines before the first is stored, then go back."""
    begin, place = opened.tell(), 0
    with Progress("checked", size) as progress:
        for _, line, item in lines.read(opened, name, max_line):
            place += len(line)
            progress.count(item)
            progress.at(place)
    opened.seek(begin)


def _import(
    opened: BinaryIO, name: str, max_line: int, size: int | None, target: "_Target"
) -> None:
    with Progress("imported", size) as progress:
        place = 0
        begin = 0
        chunk: Chunk = []

        def store() -> None:
            target.store(chunk)
            for _, item in chunk:
                progress.count(item)
            progress.at(place)
            chunk.clear()

        try:
            for number, line, item in lines.read(opened, name, max_line):
                chunk.append((number, item))
                place += len(line)
                if len(chunk) == CHUNK or place - begin >= CHUNK_BYTES:
                    store()
                    begin = place
        except ConfigurationError as error:
            if size is None:
                store()
                raise ConfigurationError(f"{error}. The lines before it are stored") from None
            raise
        store()
        progress.finish()


class _Target:
    """The storage that is imported into."""

    def __init__(self, runner: asyncio.Runner, repository: Repository, name: str) -> None:
        self._runner = runner
        self._repository = repository
        self._name = name

    def store(self, chunk: Chunk) -> None:
        """Store items together. Raises `ConfigurationError` that names the line of a refused one.

        Which one was refused is found by storing them again, one by one.
        """
        try:
            self._runner.run(self._repository.restore([item for _, item in chunk]))
        except RefusedError:
            for number, item in chunk:
                try:
                    self._runner.run(self._repository.restore([item]))
                except RefusedError as refusal:
                    raise ConfigurationError(
                        f"{self._name}, line {number}: {self._reason(item, refusal)}."
                        " All lines before it are stored, some after it may be; to run it again"
                        " is safe"
                    ) from None

    def _reason(self, item: Pet | Order, refusal: RefusedError) -> str:
        async def find() -> Pet | Order | None:
            if isinstance(item, Pet):
                return await self._repository.get_pet(item.id)
            return await self._repository.get_order(item.id)

        found = self._runner.run(find())
        if found is None:
            return str(refusal)
        return f"another is stored: {shorten(lines.encode(found).decode().strip(), 200)}"
