"""Show what SQLite, Redis and PostgreSQL add to a request, and what a second worker serves.

Run: .venv/bin/python -m benchmarks.backends [--seconds N] [--rounds N]    (needs wrk)

The service on each backend, and the raw ASGI function, take turns as in `benchmarks.peers`. The
servers of Redis and PostgreSQL, which sync each commit, run wherever there is room. One and two
workers on SQLite share both cores with wrk.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from benchmarks.contestants import ALL, BUILD, PETSTORE, SERVE, Contestant
from benchmarks.load import GOOD, Load
from benchmarks.turns import compare, keep


def service(name: str, title: str, cores: str = "0", **settings: str) -> Contestant:
    """Return the service with some settings."""
    environ = PETSTORE | {"PETSTORE_LOG": "off"}
    environ |= {f"PETSTORE_{setting}": text for setting, text in settings.items()}
    return Contestant(f"petstore-{name}", title, SERVE, environ=environ, cores=cores)


def contestants(directory: Path, redis: str, postgres: str) -> list[Contestant]:
    """Return the raw function and the services.

    directory -- where SQLite's files go
    redis -- the address of a Redis server
    postgres -- that of a PostgreSQL server
    """
    sqlite = partial(service, BACKEND="sqlite")
    return [
        ALL[0],
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
            for count in ("1", "2")
        ),
    ]


def main() -> None:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.backends", description=__doc__)
    parser.add_argument("--seconds", type=int, default=2, help="how long a turn takes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    load = Load(options.seconds)
    BUILD.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as name,
        single(Path(name), *AOF) as server,
        postgres_server() as postgres,
    ):
        raw = compare(
            contestants(
                Path(name),
                f"redis://127.0.0.1:{server.port}",
                postgres.url(sslmode="disable"),
            ),
            [],
            {operation: partial(load, operation=operation) for operation in GOOD},
            options.rounds,
            lambda operation, one: one.cores == "0" or operation == "list 20",
        )
    keep("backends", raw)


if __name__ == "__main__":
    main()
