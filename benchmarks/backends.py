"""Show what databases add to a request, and what further workers serve.

Run: .venv/bin/python -m benchmarks.backends [--seconds N] [--rounds N]

Needs wrk, pgbench and redis-benchmark. These take turns as in `benchmarks.peers`: the service on
each backend, the raw ASGI function, peers on PostgreSQL, and databases without a service. The
servers of Redis and PostgreSQL, which sync each commit, run wherever there is room. One to eight
workers on SQLite share both cores with wrk.
"""

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from backends.postgres.tests.servers import Server
from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from benchmarks import floors
from benchmarks.floors import floor
from benchmarks.load import GOOD, WRITES, Load
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

RAW_POSTGRES = [sys.executable, str(PEERS / "raw_postgres.py"), "{port}"]


def service(name: str, title: str, cores: str = "0", **settings: str) -> Subject:
    """Return the service with some settings."""
    environ = PETSTORE | {"PETSTORE_LOG": "off"}
    environ |= {f"PETSTORE_{setting}": text for setting, text in settings.items()}
    return Subject(f"petstore-{name}", f"petstore, {title}", SERVE, "", environ, cores=cores)


def services(directory: Path, redis: str, postgres: str) -> list[Subject]:
    """Return the raw function and the services.

    directory -- where SQLite's files go
    redis -- the address of a Redis server
    postgres -- that of a PostgreSQL server
    """
    sqlite = partial(service, BACKEND="sqlite")
    return [
        *named(("petstore-log", "raw")),
        service("memory", "memory"),
        sqlite("sqlite", "SQLite", SQLITE_PATH=str(directory / "0")),
        service("redis", "Redis", BACKEND="redis", REDIS_URL=redis),
        service("postgres", "PostgreSQL", BACKEND="postgres", POSTGRES_URL=postgres),
        *(
            sqlite(
                f"workers-{count}",
                f"SQLite, workers: {count}",
                "0,1",
                SQLITE_PATH=str(directory / count),
                WORKERS=count,
            )
            for count in ("1", "2", "4", "8")
        ),
    ]


def filled(server: Server, name: str) -> str:
    """Create a database with a plain table of pets; return its URL."""
    url = f"postgresql://postgres@{server.host}:{server.port}/{name}"
    server.fetch(f"CREATE DATABASE {name}")
    for statement in floors.FILLED:
        server.fetch_from(url, statement.format("bigserial PRIMARY KEY"))
    return url


def on_postgres(server: Server) -> list[Subject]:
    """Return the peers, each on its own database."""
    (raw,), (fastify,) = named(("raw",)), named(("fastify",))
    peers = (
        replace(raw, title="raw ASGI function + asyncpg", command=RAW_POSTGRES),
        replace(stock("litestar_postgres", "Litestar + Advanced Alchemy"), name="litestar"),
        replace(stock("fastapi_postgres", "FastAPI + SQLAlchemy"), name="fastapi"),
        replace(fastify, title="Fastify + pg (Node.js)"),
    )
    return [
        replace(
            peer,
            name=f"{peer.name}-postgres",
            environ=peer.environ | {"DATABASE_URL": filled(server, peer.name)},
            only=("get", "create"),
        )
        for peer in peers
    ]


def without_service(directory: Path, redis: int, server: Server, seconds: int) -> list[Floor]:
    """Return the databases alone.

    redis -- the port of a Redis server
    server -- a PostgreSQL server
    """
    plain, own = filled(server, "plain"), server.url()
    functions, pgbench = floors.functions, partial(floors.pgbench, seconds)
    sqlite = floors.sqlite(directory / "plain.sqlite", seconds)
    return [
        floor("postgres-plain", "PostgreSQL alone: plain", pgbench(plain, floors.PLAIN)),
        floor(
            "postgres-functions",
            "PostgreSQL alone: petstore's functions",
            pgbench(own, functions(1)),
        ),
        floor(
            "postgres-functions-16", "the same, 16 at once", pgbench(own, functions(16), items=16)
        ),
        floor("redis-plain", "Redis alone: plain", floors.redis_benchmark(redis)),
        floor("sqlite-plain", "SQLite alone: plain, apsw", sqlite),
    ]


def main() -> None:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.backends", description=__doc__)
    parser.add_argument("--seconds", type=int, default=2, help="how long a turn takes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not shutil.which("pgbench") or not shutil.which("redis-benchmark"):
        raise SystemExit("this benchmark needs pgbench and redis-benchmark")
    load = Load(options.seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        single(Path(folder), *AOF) as redis,
        postgres_server() as postgres,
    ):

        def server_cpu(name: str) -> float:
            used = (("redis", redis.process), ("postgres", postgres.process))
            return sum(cpu_seconds(one.pid) for word, one in used if one and word in name)

        def turn(one: Running | Floor, operation: str) -> dict[str, float]:
            before = server_cpu(one.subject.name)
            found = one.measure(operation) if isinstance(one, Floor) else load(one, operation)
            used = server_cpu(one.subject.name) - before
            return found | {"server": used / found["requests"] * 1e6}

        urls = f"redis://127.0.0.1:{redis.port}", postgres.url(sslmode="disable")
        raw = compare(
            *prepare([*services(Path(folder), *urls), *on_postgres(postgres)]),
            {operation: partial(turn, operation=operation) for operation in GOOD | WRITES},
            options.rounds,
            lambda operation, one: (
                (one.cores == "0" or operation in {"list 20", "create"})
                and (one.is_petstore or operation in GOOD)
            ),
            others=without_service(Path(folder), redis.port, postgres, options.seconds),
        )
    keep("backends", raw)


if __name__ == "__main__":
    main()
