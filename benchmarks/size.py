"""Show what one worker takes, what an item takes in each store, and what a large store costs.

Run: .venv/bin/python -m benchmarks.size [--pets N] [--seconds N] [BACKEND ...]    (needs wrk)
(default: 1,000,000 pets in sqlite, redis and postgres, 2 seconds an operation)

For each backend, `petstore import` fills a store with pets, then with a tenth as many orders and
records of idempotency keys; the store's size is read after each. A service with one worker is then
started on it and asked at random places. docs/size.md has the tables that it prints.
"""

import argparse
import os
import socket
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
from benchmarks.figures import table
from benchmarks.load import DONE, PET, wrk
from benchmarks.subjects import BUILD, Running, cpu_seconds
from petstore.contract import Order, OrderStatus, Pet, PetStatus, TokenRecord
from petstore.transfer.ndjson import MEMBERS, Transferred, encode, encode_end

CONNECTIONS: Final = 1000
NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)


class Location(NamedTuple):
    """Where a store is: the settings that name it, its size in bytes, its server's process."""

    settings: dict[str, str]
    stored: Callable[[], int]
    server: int | None


def file_bytes(directory: Path) -> int:
    """Return the size of the files in a directory."""
    return sum(file.stat().st_size for file in directory.iterdir())


@contextmanager
def location(backend: str) -> Iterator[Location]:
    """Yield an empty location of a durable backend."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if backend == "sqlite":
            file = directory / "pets.sqlite"
            yield Location({"SQLITE_PATH": str(file)}, lambda: file_bytes(directory), None)
        elif backend == "redis":
            server = stack.enter_context(single(directory, *AOF))
            assert server.process is not None  # noqa: S101 - it is running
            client = stack.enter_context(redis.Redis(port=server.port))
            url = f"redis://127.0.0.1:{server.port}"
            yield Location(
                {"REDIS_URL": url},
                lambda: int(client.info("memory")["used_memory"]),
                server.process.pid,
            )
        else:
            postgres = stack.enter_context(postgres_server("shared_buffers = 256MB"))
            assert postgres.process is not None  # noqa: S101 - it is running
            yield Location(
                {"POSTGRES_URL": postgres.url(sslmode="disable")},
                lambda: int(postgres.fetch("SELECT pg_database_size(current_database())")[0][0]),
                postgres.process.pid,
            )


def parts(pets: int) -> Iterator[tuple[str, Iterable[Transferred]]]:
    """Yield what is imported: each kind, and its items. A tenth of the pets are ordered."""
    few = range(1, pets // 10 + 1)
    until = int(time.time()) + 86_000
    yield (
        "pet",
        (
            Pet(
                id_,
                f"pet{id_ % 100_000:05}",
                id_ % 10,
                PetStatus.SOLD if id_ in few else PetStatus.AVAILABLE,
            )
            for id_ in range(1, pets + 1)
        ),
    )
    at = (NOW + timedelta(microseconds=id_) for id_ in few)
    yield "order", (Order(i, i, OrderStatus.COMPLETED, t) for i, t in zip(few, at, strict=True))
    digests = (sha256(b"%d" % id_).digest() for id_ in few)
    yield "record", (TokenRecord(d, d, until, i) for i, d in zip(few, digests, strict=True))


def fill(backend: str, where: Location, pets: int) -> dict[str, float]:
    """Import everything; return the bytes of each kind, and the seconds for the pets."""
    figures = dict[str, float]()
    environ = {f"PETSTORE_{name}": value for name, value in where.settings.items()}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "items")
        for kind, items in parts(pets):
            with file.open("wb") as output:
                counts = dict.fromkeys(MEMBERS, 0)
                for item in items:
                    output.write(encode(item))
                    counts[type(item)] += 1
                output.write(encode_end(counts))
            before = where.stored()
            begin = time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "petstore", "import", str(file)],
                env=os.environ | environ | {"PETSTORE_BACKEND": backend},
                check=True,
            )
            figures.setdefault("seconds", time.monotonic() - begin)
            count = pets if kind == "pet" else pets // 10
            figures[kind] = (where.stored() - before) / count
    figures["total"] = where.stored()
    return figures


def operations(pets: int) -> dict[str, str]:
    """Return a wrk script for each operation, at random places of a store."""
    headers = "wrk.headers['Content-Type'] = 'application/json'; "
    cursor = f"string.format('%014x', math.random({pets - 30}))"
    return {
        "get": f"request = function() return wrk.format('GET', '/v1/pets/' .. math.random({pets}))"
        " end",
        "list 20": "request = function() return wrk.format('GET', '/v1/pets?limit=20&cursor=p' .. "
        f"{cursor}) end",
        "filtered": "request = function() return wrk.format('GET',"
        f" '/v1/pets?limit=20&status=available&cursor=p' .. {cursor}) end",
        "create": f"{headers}wrk.method = 'POST'; wrk.body = '{PET}'",
        # Each pet once, from the last one back: those at the beginning are sold.
        "order": f"{headers}local id = {pets}; request = function() id = id - 1; return"
        " wrk.format('POST', '/v1/store/orders', nil, '{\"petId\":' .. id .. '}') end",
    }


def cost(running: Running, where: Location, script: str, seconds: int) -> tuple[float, float]:
    """Return the CPU of a request in microseconds: of the service, and of its storage's server."""

    def used() -> tuple[float, float]:
        return running.cpu_seconds(), cpu_seconds(where.server) if where.server else 0

    before = used()
    completed, _, refused, broken, *_ = wrk(running, f"{script}\n{DONE}", 48, seconds)
    if refused or broken:
        raise RuntimeError(f"{refused:.0f} refused, {broken:.0f} broken: {script}")
    one, other = ((b - a) / completed * 1e6 for a, b in zip(before, used(), strict=True))
    return one, other


def resources(running: Running) -> dict[str, float]:
    """Return the memory and descriptors of an idle worker, and of one more connection."""

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{running.process.pid}/fd"))  # noqa: PTH208 - they have no names

    figures = {"memory": running.resident_bytes(), "descriptors": float(descriptors())}
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", running.port))
            stack.enter_context(connection)
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.recv(1000)
        figures["connection"] = (running.resident_bytes() - figures["memory"]) / CONNECTIONS
        figures["descriptor"] = (descriptors() - figures["descriptors"]) / CONNECTIONS
    return figures


def measure(backend: str, pets: int, seconds: int) -> tuple[list[str], list[str], list[str]]:
    """Return a row of each table for one backend."""
    with location(backend) as chosen:
        filled = fill(backend, chosen, pets)
        settings = {"BACKEND": backend, **chosen.settings}
        begin = time.monotonic()
        with Running(service(backend, backend, **settings)) as running:
            running.wait()
            started = time.monotonic() - begin
            taken = resources(running)
            each = {}
            for name, script in operations(pets).items():
                print(f"{backend}: {name}", file=sys.stderr)
                each[name] = cost(running, chosen, script, seconds)
            loaded = running.resident_bytes()
    mib, kib = 2**20, 2**10
    return (
        [
            backend,
            *(f"{taken['memory'] / mib:.0f}", f"{loaded / mib:.0f}"),
            *(f"{taken['connection'] / kib:.1f}", f"{taken['descriptors']:.0f}"),
            *(f"{taken['descriptor']:.0f}", f"{started:.1f}"),
        ],
        [
            backend,
            *(f"{filled[kind]:.0f}" for kind in ("pet", "order", "record")),
            *(f"{filled['total'] / mib:,.0f}", f"{pets / filled['seconds']:,.0f}"),
        ],
        [backend, *(f"{one:.0f} + {other:.0f}" for one, other in each.values())],
    )


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.size", description=__doc__)
    parser.add_argument("backends", nargs="*", default=["sqlite", "redis", "postgres"])
    parser.add_argument("--pets", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=2, help="how long an operation is measured")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    rows = [measure(name, options.pets, options.seconds) for name in options.backends]
    worker, stored, cpu = (list(part) for part in zip(*rows, strict=True))
    head = "MiB idle", "MiB after load", "KiB a connection", "descriptors", "more a connection"
    print(table(["worker", *head, "start, s"], *worker), end="\n\n")
    head = "bytes a pet", "an order", "a record", "MiB in all", "pets imported a second"
    print(table(["store", *head], *stored), end="\n\n")
    print(table(["CPU, us: service + server", *operations(options.pets)], *cpu))


if __name__ == "__main__":
    main()
