"""Show whether SQLite's waits for a cold disk hold up other requests.

Run: .venv/bin/python -m benchmarks.cold [--pets N] [--seconds N] [--callers N] [--folder FOLDER]

Fills a file (a minute for ten million pets) and serves it on the first core. From the second one,
connections get random pets and filtered pages, without a pause; one more asks for /livez every five
milliseconds, another creates pets. First the file is warm; then it is taken out of the page cache
fifty times a second. Milliseconds, and CPU microseconds of the service.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import apsw
from petstore_sqlite import SqliteSettings, open_sqlite

from benchmarks.subjects import BUILD, KEY, PETSTORE, SERVE, Running, Subject
from benchmarks.turns import keep
from petstore.contract import Expected

FILL = """WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < ?)
    INSERT INTO pets SELECT id, printf('pet%05d', id % 100000), id % 10,
        CASE id % 3 WHEN 0 THEN 'available' WHEN 1 THEN 'pending' ELSE 'sold' END FROM ids"""
PET = b'{"name":"pet01234","categoryId":7,"status":"available"}'


async def fill(path: str, pets: int) -> None:
    """Create a store with so many pets."""
    async with open_sqlite(SqliteSettings(path), Expected()):
        connection = apsw.Connection(path)
        connection.execute(FILL, (pets,))
        connection.close()


async def keep_calling(
    port: int, target: Callable[[], str], pause: float, times: list[float]
) -> None:
    """Send requests over one connection; add what each took, in milliseconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n".encode()
    post = head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(PET) + PET
    while True:
        line = target().encode() + b" "
        begin = time.perf_counter()
        writer.write(line + (post if line.startswith(b"POST") else head + b"\r\n"))
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(part for part in answer.lower().split(b"\r\n") if b"content-length" in part)
        await reader.readexactly(int(length.partition(b":")[2]))
        times.append((time.perf_counter() - begin) * 1000)
        if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise RuntimeError(answer)
        await asyncio.sleep(pause)


async def measure(
    server: Running, path: str, options: argparse.Namespace, *, cold: bool
) -> dict[str, float]:
    """Print a row for each kind of request; return the p99 of each."""

    def anywhere() -> int:
        return random.randrange(1, options.pets)

    kinds: dict[str, tuple[Callable[[], str], float, int]] = {
        "livez": (lambda: "GET /livez", 0.005, 1),
        "create": (lambda: "POST /v1/pets", 0.005, 1),
        "get": (lambda: f"GET /v1/pets/{anywhere()}", 0, options.callers),
        "filtered": (
            lambda: f"GET /v1/pets?status=sold&cursor=p{anywhere():014x}",
            0,
            options.callers,
        ),
    }
    times = defaultdict[str, list[float]](list)
    cpu = server.cpu_seconds()
    tasks = [
        asyncio.create_task(keep_calling(server.port, target, pause, times[kind]))
        for kind, (target, pause, callers) in kinds.items()
        for _ in range(callers)
    ]
    file = os.open(path, os.O_RDONLY)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        if cold:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        await asyncio.sleep(0.02)
    os.close(file)
    cpu = server.cpu_seconds() - cpu
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
    reads = len(times["get"]) + len(times["filtered"])
    each = cpu / sum(map(len, times.values())) * 1e6
    print(f"{'cold' if cold else 'warm'}: {reads / options.seconds:,.0f} reads per second,", end="")
    print(f" {each:.0f} us of CPU per request\n{'':>10}     p50     p99     max")
    p99 = {}
    for kind in kinds:
        kept = sorted(times[kind])
        middle, p99[kind] = kept[len(kept) // 2], kept[len(kept) * 99 // 100]
        print(f"{kind:>10}{middle:8.1f}{p99[kind]:8.1f}{kept[-1]:8.1f}", flush=True)
    return p99


def main() -> None:
    """Fill a file and measure it warm and cold."""
    parser = argparse.ArgumentParser(prog="benchmarks.cold", description=__doc__)
    parser.add_argument("--pets", type=int, default=3_000_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--callers", type=int, default=8, help="of each kind of read")
    parser.add_argument("--folder", help="where the file is created; not in memory")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(dir=options.folder or BUILD) as folder:
        path = str(Path(folder) / "pets.sqlite")
        asyncio.run(fill(path, options.pets))
        environ = {"PETSTORE_BACKEND": "sqlite", "PETSTORE_SQLITE_PATH": path}
        environ = PETSTORE | environ | {"PETSTORE_LOG": "off"}
        with Running(Subject("petstore-cold", "", SERVE, environ=environ)) as server:
            server.wait()
            asyncio.run(measure(server, path, options, cold=False))
            keep("cold", asyncio.run(measure(server, path, options, cold=True)))


if __name__ == "__main__":
    main()
