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

from backends.postgres.tests.pgbouncers import pgbouncer
from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from backends.redis.tests.topologies import cluster
from benchmarks.backends import service
from benchmarks.subjects import Running, cpu_seconds
from petstore.contract import Order, OrderStatus, Pet, PetStatus, TokenRecord
from petstore.transfer.ndjson import MEMBERS, Transferred, encode, encode_end

DURABLE: Final = ("sqlite", "redis", "postgres")
RARE: Final = 40  # one pet in so many is pending: of 1,000 pets, that still fills a page of 20
LONGEST: Final = 65_000  # about the bytes of the longest name: a body has at most 65,536
DAY: Final = 86_000
NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)


class Location(NamedTuple):
    """Where a store is: its backend's settings, its size in bytes, its servers, its folder."""

    backend: str
    settings: dict[str, str]
    stored: Callable[[], int]
    servers: set[int]
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

    def server_seconds(self) -> float:
        """Return the CPU time that its servers have used."""
        return sum(map(cpu_seconds, self.servers))

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


def children() -> set[int]:
    """Return the processes that the main thread has started."""
    pid = os.getpid()
    return {*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())}


def file_bytes(directory: Path) -> int:
    """Return the size of the files in a directory."""
    return sum(file.stat().st_size for file in directory.iterdir())


@contextmanager
def location(kind: str) -> Iterator[Location]:
    """Yield an empty location: of a backend, behind `pgbouncer`, or in a Cluster.

    `cluster-2` has two partitions, and four masters, so that each partition has one of its own.
    """
    before = children()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if kind == "memory":
            yield Location(kind, {}, lambda: 0, set(), directory)
        elif kind == "sqlite":
            file = {"SQLITE_PATH": str(directory / "pets.sqlite")}
            yield Location(kind, file, lambda: file_bytes(directory), set(), directory)
        elif kind in {"postgres", "pgbouncer"}:
            postgres = stack.enter_context(postgres_server("shared_buffers = 256MB"))
            settings = {"POSTGRES_URL": postgres.url(sslmode="disable")}
            if kind == "pgbouncer":
                url = stack.enter_context(pgbouncer(postgres, size=20))
                settings = {"POSTGRES_URL": url, "POSTGRES_PGBOUNCER": "true"}
            size = "SELECT pg_database_size(current_database())"
            yield Location(
                "postgres",
                settings,
                lambda: int(postgres.fetch(size)[0][0]),
                children() - before,
                directory,
            )
        else:
            if kind == "redis":
                nodes = [stack.enter_context(single(directory, *AOF))]
            else:
                nodes = [*stack.enter_context(cluster(directory, *AOF, masters=4)).nodes]
            _, _, partitions = kind.partition("-")
            hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
            settings = {"REDIS_URL": f"redis{'+cluster' * bool(partitions)}://{hosts}"}
            settings["REDIS_PARTITIONS"] = partitions or "1"
            clients = [stack.enter_context(redis.Redis(port=node.port)) for node in nodes]
            yield Location(
                "redis",
                settings,
                lambda: sum(int(one.info("memory")["used_memory"]) for one in clients),
                children() - before,
                directory,
            )


def few(pets: int) -> range:
    """Return the ids of the pets that are sold, each in an order: the first tenth."""
    return range(1, pets // 10 + 1)


def available(pets: int) -> list[int]:
    """Return the ids of the pets that can be ordered."""
    return [id_ for id_ in range(pets // 10 + 1, pets + 1) if id_ % RARE]


def short_named(pets: int) -> Iterator[Pet]:
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
def filled(kind: str, pets: int) -> Iterator[tuple[Location, dict[str, float]]]:
    """Yield a store with pets, a tenth as many orders and records, and what each of them takes."""
    with location(kind) as where:
        found = dict[str, float]()
        if kind != "memory":
            found["bytes a pet"], seconds = put(where, short_named(pets))
            found["imported/s"] = pets / seconds
            found["bytes an order"], _ = put(where, orders(pets))
            found["bytes a record"], _ = put(where, records(pets // 10, int(time.time()) + DAY))
            found["MiB stored"] = where.stored() / 2**20
        yield where, found
