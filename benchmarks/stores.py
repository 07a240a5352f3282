"""Stores of any size for `benchmarks.growth`: where they are, and what they hold."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import redis

from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from benchmarks.backends import service
from benchmarks.subjects import Running
from petstore.contract import Order, OrderStatus, Pet, PetStatus, TokenRecord
from petstore.transfer.ndjson import MEMBERS, Transferred, encode, encode_end

DURABLE: Final = ("sqlite", "redis", "postgres")
RARE: Final = 40
"""One pet in so many is pending: of 1,000 pets, that still fills a page of 20."""
LONGEST: Final = 65_000
"""About the bytes of the longest name: a body has at most 65,536."""
DAY: Final = 86_000
NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)


class Location(NamedTuple):
    """Where a store is: its backend's settings, its size in bytes, its server, its folder."""

    backend: str
    settings: dict[str, str]
    stored: Callable[[], int]
    server: int | None
    directory: Path

    @property
    def url(self) -> str:
        """The path of the file, or the URL of the server."""
        return next(iter(self.settings.values()), "")

    @property
    def environ(self) -> dict[str, str]:
        """The settings as environment variables."""
        chosen = {"BACKEND": self.backend, **self.settings}
        return {f"PETSTORE_{name}": value for name, value in chosen.items()}

    def service(self, number: int = 1, **settings: str) -> Running:
        """Start a service on it."""
        title = f"{self.backend}-{number}"
        return Running(service(title, title, BACKEND=self.backend, **self.settings, **settings))

    def transfer(self, command: str, file: Path) -> None:
        """Run `petstore export`, `import` or `verify`."""
        subprocess.run(
            [sys.executable, "-m", "petstore", command, str(file)],
            env=os.environ | self.environ,
            check=True,
            capture_output=True,
        )


def file_bytes(directory: Path) -> int:
    """Return the size of the files in a directory."""
    return sum(file.stat().st_size for file in directory.iterdir())


@contextmanager
def location(backend: str) -> Iterator[Location]:
    """Yield an empty location."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if backend == "memory":
            yield Location(backend, {}, lambda: 0, None, directory)
        elif backend == "sqlite":
            file = {"SQLITE_PATH": str(directory / "pets.sqlite")}
            yield Location(backend, file, lambda: file_bytes(directory), None, directory)
        elif backend == "redis":
            server = stack.enter_context(single(directory, *AOF))
            assert server.process is not None  # noqa: S101 - it is running
            client = stack.enter_context(redis.Redis(port=server.port))
            yield Location(
                backend,
                {"REDIS_URL": f"redis://127.0.0.1:{server.port}"},
                lambda: int(client.info("memory")["used_memory"]),
                server.process.pid,
                directory,
            )
        else:
            postgres = stack.enter_context(postgres_server("shared_buffers = 256MB"))
            assert postgres.process is not None  # noqa: S101 - it is running
            yield Location(
                backend,
                {"POSTGRES_URL": postgres.url(sslmode="disable")},
                lambda: int(postgres.fetch("SELECT pg_database_size(current_database())")[0][0]),
                postgres.process.pid,
                directory,
            )


def few(pets: int) -> range:
    """Return the ids of the pets that are sold, each in an order: the first tenth."""
    return range(1, pets // 10 + 1)


def available(pets: int) -> list[int]:
    """Return the ids of the pets that can be ordered."""
    return [id_ for id_ in range(pets // 10 + 1, pets + 1) if id_ % RARE]


def animals(pets: int) -> Iterator[Pet]:
    """Yield pets with names of eight characters."""
    sold = few(pets)
    for id_ in range(1, pets + 1):
        other = PetStatus.AVAILABLE if id_ % RARE else PetStatus.PENDING
        status = PetStatus.SOLD if id_ in sold else other
        yield Pet(id_, f"pet{id_ % 100_000:05}", id_ % 10, status)


def long_named(first: int, count: int) -> Iterator[Pet]:
    """Return pets with the longest name."""
    name, status = "x" * LONGEST, PetStatus.AVAILABLE
    return (Pet(id_, name, 7, status) for id_ in range(first, first + count))


def orders(pets: int) -> Iterator[Order]:
    """Yield a completed order for each sold pet."""
    for id_ in few(pets):
        yield Order(id_, id_, OrderStatus.COMPLETED, NOW + timedelta(microseconds=id_))


def records(count: int, until: int) -> Iterator[TokenRecord]:
    """Yield records of tokens that expire at some time."""
    for id_ in range(1, count + 1):
        digest = sha256(b"%d" % id_).digest()
        yield TokenRecord(digest, digest, until, id_)


def put(where: Location, items: Iterable[Transferred]) -> tuple[float, float]:
    """Import items; return the bytes that each takes, and the seconds."""
    file = where.directory.with_suffix(".ndjson")
    counts = dict.fromkeys(MEMBERS, 0)
    with file.open("wb") as output:
        for item in items:
            output.write(encode(item))
            counts[type(item)] += 1
        output.write(encode_end(counts))
    before, begin = where.stored(), time.monotonic()
    where.transfer("import", file)
    seconds = time.monotonic() - begin
    file.unlink()
    return (where.stored() - before) / max(1, sum(counts.values())), seconds


@contextmanager
def filled(backend: str, pets: int) -> Iterator[tuple[Location, dict[str, float]]]:
    """Yield a store with pets, a tenth as many orders and records, and what each of them takes."""
    with location(backend) as where:
        found = dict[str, float]()
        if backend != "memory":
            found["bytes a pet"], seconds = put(where, animals(pets))
            found["imported/s"] = pets / seconds
            found["bytes an order"], _ = put(where, orders(pets))
            found["bytes a record"], _ = put(where, records(pets // 10, int(time.time()) + DAY))
            found["MiB stored"] = where.stored() / 2**20
        yield where, found
