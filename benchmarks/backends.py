"""Show what each backend adds to a request.

Run: .venv/bin/python -m benchmarks.backends [--seconds N] [--rounds N]

Needs wrk. The service on each backend takes turns, as in `benchmarks.peers`. The servers of Redis
and PostgreSQL, which sync each commit, run wherever there is room.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from backends.postgres.tests.servers import Server
from backends.postgres.tests.servers import single as postgres_server
from backends.redis.tests.servers import AOF, single
from backends.redis.tests.servers import Server as RedisServer
from benchmarks.load import GOOD, WRITES, Load
from benchmarks.subjects import PETSTORE, SERVE, Running, Subject, cpu_seconds, prepare
from benchmarks.turns import Cases, compare, keep


def service(name: str, title: str, **settings: str) -> Subject:
    """Return the service with some settings."""
    environ = PETSTORE | {"PETSTORE_LOG": "off"}
    environ |= {f"PETSTORE_{setting}": text for setting, text in settings.items()}
    return Subject(f"petstore-{name}", title, SERVE, "", environ)


class Databases(NamedTuple):
    """Where SQLite's files go, and the servers of Redis and PostgreSQL, which sync each commit."""

    directory: Path
    redis: RedisServer
    postgres: Server

    def services(self) -> list[Subject]:
        """Return the service on each backend."""
        path = str(self.directory / "pets.sqlite")
        redis = f"redis://127.0.0.1:{self.redis.port}"
        postgres = self.postgres.url(sslmode="disable")
        return [
            service("memory", "memory"),
            service("sqlite", "SQLite", BACKEND="sqlite", SQLITE_PATH=path),
            service("redis", "Redis", BACKEND="redis", REDIS_URL=redis),
            service("postgres", "PostgreSQL", BACKEND="postgres", POSTGRES_URL=postgres),
        ]

    def cpu_seconds(self, subject: str) -> float:
        """Return the CPU time that the server of a service's storage has used, if it has one."""
        servers = {"petstore-redis": self.redis.process, "petstore-postgres": self.postgres.process}
        process = servers.get(subject)
        return cpu_seconds(process.pid) if process else 0.0


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
    load = Load(options.seconds)
    with databases() as data:

        def turn(server: Running, operation: str) -> dict[str, float]:
            before = data.cpu_seconds(server.subject.name)
            found = load(server, operation)
            used = data.cpu_seconds(server.subject.name) - before
            return found | {"server": used / found["requests"] * 1e6}

        cases: Cases = {name: partial(turn, operation=name) for name in GOOD | WRITES}
        raw = compare(*prepare(data.services()), cases, options.rounds)
    keep("backends", raw)


if __name__ == "__main__":
    main()
