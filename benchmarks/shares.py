"""Show which share of new connections the fuller of two workers gets.

Run: .venv/bin/python -m benchmarks.shares [--bursts N]

Two workers on SQLite share both cores with this client. It opens connections in bursts, sends a
request on each of them, and tells the workers apart by their request ids.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from benchmarks.figures import table
from benchmarks.subjects import PETSTORE, SERVE, Running, Subject
from benchmarks.turns import keep

COUNTS = (4, 8, 16, 48, 1000)
REQUEST = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"


async def share(port: int, count: int) -> float:
    """Open so many connections at once; return the share of the worker that has most of them."""
    opening = (asyncio.open_connection("127.0.0.1", port) for _ in range(count))
    connections = await asyncio.gather(*opening)
    workers = Counter[bytes]()
    for reader, writer in connections:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        id_ = next(line for line in head.split(b"\r\n") if line.startswith(b"x-request-id"))
        workers[id_.rpartition(b"-")[0]] += 1
    for _, writer in connections:
        writer.close()
    await asyncio.sleep(0.1)  # the workers notice
    return max(workers.values()) / count


async def measure(port: int, bursts: int) -> dict[str, float]:
    """Print a row for each number of connections; return the medians."""
    rows, medians = [["connections", "median", "most"]], {}
    for count in COUNTS:
        shares = [await share(port, count) for _ in range(bursts)]
        medians[str(count)] = median(shares)
        rows.append([f"{count:,}", f"{median(shares):.0%}", f"{max(shares):.0%}"])
    print(table(*rows))
    return medians


def main() -> None:
    """Serve with two workers and measure."""
    parser = argparse.ArgumentParser(prog="benchmarks.shares", description=__doc__)
    parser.add_argument("--bursts", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        own = {"BACKEND": "sqlite", "SQLITE_PATH": str(Path(folder, "s")), "WORKERS": "2"}
        environ = PETSTORE | {f"PETSTORE_{name}": text for name, text in own.items()}
        two = Subject("petstore-shares", "", SERVE, environ=environ, keep_log=False, cores="0,1")
        with Running(two) as server:
            server.wait()
            time.sleep(2)  # both workers have started
            keep("shares", asyncio.run(measure(server.port, options.bursts)))


if __name__ == "__main__":
    main()
