"""Show what databases add to a request, and what further workers serve.

Run: .venv/bin/python -m benchmarks.backends [--seconds N] [--rounds N]

Needs wrk, pgbench and redis-benchmark. These take turns as in `benchmarks.peers`: the service on
each backend, the raw ASGI function, peers on PostgreSQL, and databases without a service. The
servers of Redis and PostgreSQL, which sync each commit, run wherever there is room. One to eight
workers on SQLite share both cores with wrk.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from petstore_postgres import PostgresSettings, open_postgres

from backends.postgres.tests.servers import Server
from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from backends.redis.tests.servers import Server as RedisServer
from benchmarks import floors
from benchmarks.floors import floor
from benchmarks.load import GOOD, WRITES, Load
from benchmarks.pages import fill
from benchmarks.smoke import PETS
from benchmarks.subjects import (
    PEERS,
    PETSTORE,
    SERVE,
    Running,
    Subject,
    cpu_seconds,
    named,
    prepare,
    stock,
)
from benchmarks.turns import Floor, compare, keep
from petstore.contract import Expected

RAW_POSTGRES = [sys.executable, str(PEERS / "raw_postgres.py"), "{port}"]


def service(name: str, title: str, cores: str = "0", **settings: str) -> Subject:
    """Return the service with some settings."""
    environ = PETSTORE | {"PETSTORE_LOG": "off"}
    environ |= {f"PETSTORE_{setting}": text for setting, text in settings.items()}
    return Subject(f"petstore-{name}", f"petstore, {title}", SERVE, "", environ, cores=cores)


class Databases(NamedTuple):
    """Where SQLite's files go, and the servers of Redis and PostgreSQL, which sync each commit."""

    directory: Path
    redis: RedisServer
    postgres: Server

    def services(self) -> list[Subject]:
        """Return the service on each backend."""
        redis = f"redis://127.0.0.1:{self.redis.port}"
        postgres = self.postgres.url(sslmode="disable")
        return [
            service("memory", "memory"),
            self.on_sqlite("sqlite", "SQLite"),
            service("redis", "Redis", BACKEND="redis", REDIS_URL=redis),
            service("postgres", "PostgreSQL", BACKEND="postgres", POSTGRES_URL=postgres),
        ]

    def on_sqlite(self, name: str, title: str, cores: str = "0", **settings: str) -> Subject:
        """Return the service on a file of SQLite."""
        path = str(self.directory / name)
        return service(name, title, cores, BACKEND="sqlite", SQLITE_PATH=path, **settings)

    def workers(self) -> list[Subject]:
        """Return the service with more and more workers on SQLite."""
        return [
            self.on_sqlite(f"workers-{count}", f"SQLite, workers: {count}", "0,1", WORKERS=count)
            for count in ("1", "2", "4", "8")
        ]

    def peers(self) -> list[Subject]:
        """Return the peers, each on its own database of PostgreSQL."""
        (raw,), (fastify,) = named(("raw",)), named(("fastify",))
        fastapi = replace(stock("fastapi_postgres", "FastAPI + SQLAlchemy"), name="fastapi")
        peers = (
            replace(raw, title="raw ASGI function + asyncpg", command=RAW_POSTGRES),
            fastapi,
            replace(fastify, title="Fastify + pg (Node.js)"),
        )
        return [
            replace(
                peer,
                name=f"{peer.name}-postgres",
                environ=peer.environ | {"DATABASE_URL": self.plain(peer.name)},
                only=("get", "create", "order"),
            )
            for peer in peers
        ]

    def database(self, name: str) -> str:
        """Create an empty database of PostgreSQL; return its URL."""
        self.postgres.fetch(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@{self.postgres.host}:{self.postgres.port}/{name}"

    def plain(self, name: str) -> str:
        """Create a database with plain tables and the pets; return its URL."""
        url = self.database(name)
        for statement in floors.FILLED:
            self.postgres.fetch_from(url, statement.format("bigserial PRIMARY KEY"))
        return url

    def own(self, name: str) -> str:
        """Create a database with petstore's schema and the pets; return its URL."""
        url = self.database(name)

        async def create() -> None:
            settings = PostgresSettings(f"{url}?sslmode=disable", timeout_seconds=10)
            async with open_postgres(settings, Expected()) as repository:
                await fill(repository, PETS)

        asyncio.run(create())
        return url

    def floors(self, seconds: int) -> list[Floor]:
        """Return the databases without a service."""
        own, pgbench = self.own("own"), partial(floors.pgbench, seconds)

        def first() -> int:
            used = "SELECT coalesce(max(pet_id), $1) + 1 FROM petstore.orders"
            return int(self.postgres.fetch_from(own, used, PETS)[0][0])

        one, many = (
            pgbench(own, floors.functions(count), items=count, first=first) for count in (1, 16)
        )
        sqlite = floors.sqlite(self.directory / "plain.sqlite", seconds)
        return [
            floor(
                "postgres-plain",
                "PostgreSQL alone: plain",
                pgbench(self.plain("plain"), floors.PLAIN),
            ),
            floor("postgres-functions", "PostgreSQL alone: petstore's functions", one),
            floor("postgres-functions-16", "the same, 16 at once", many),
            floor("redis-plain", "Redis alone: plain", floors.redis_benchmark(self.redis.port)),
            floor("sqlite-plain", "SQLite alone: plain, apsw", sqlite),
        ]


@contextmanager
def databases() -> Iterator[Databases]:
    """Run the servers until the block exits."""
    with (
        tempfile.TemporaryDirectory() as folder,
        single(Path(folder), *AOF) as redis,
        postgres_server() as postgres,
    ):
        yield Databases(Path(folder), redis, postgres)


def main() -> None:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.backends", description=__doc__)
    parser.add_argument("--seconds", type=int, default=2, help="how long a turn takes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not shutil.which("pgbench") or not shutil.which("redis-benchmark"):
        raise SystemExit("this benchmark needs pgbench and redis-benchmark")
    load = Load(options.seconds)
    with databases() as data:

        def server_cpu(name: str) -> float:
            used = (("redis", data.redis.process), ("postgres", data.postgres.process))
            return sum(cpu_seconds(one.pid) for word, one in used if one and word in name)

        def turn(one: Running | Floor, operation: str) -> dict[str, float]:
            before = server_cpu(one.subject.name)
            found = one.measure(operation) if isinstance(one, Floor) else load(one, operation)
            used = server_cpu(one.subject.name) - before
            return found | {"server": used / found["requests"] * 1e6}

        subjects = [*named(("petstore-log", "raw")), *data.services(), *data.workers()]
        raw = compare(
            *prepare([*subjects, *data.peers()]),
            {operation: partial(turn, operation=operation) for operation in GOOD | WRITES},
            options.rounds,
            lambda operation, one: (
                (one.cores == "0" or operation in {"list 20", "create"})
                and (one.is_petstore or bool(one.only) or operation in GOOD)
            ),
            others=data.floors(options.seconds),
        )
    keep("backends", raw)


if __name__ == "__main__":
    main()
