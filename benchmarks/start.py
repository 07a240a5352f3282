"""Show the cost of a start, and the size of the service.

Run: .venv/bin/python -m benchmarks.start

`petstore --help`, and from the command to the first response with --dev: CPU and wall time,
medians. Resident size of the service on memory: empty, and per pet that was added over HTTP. Needs
wrk and taskset.
"""

import os
import sys
import time
from http.client import HTTPConnection
from statistics import median

from benchmarks.load import Load
from benchmarks.subjects import KEY, PETSTORE, SERVE, Running, Subject
from benchmarks.turns import keep

HELPS = 10
STARTS = 5
DEV = {name: text for name, text in PETSTORE.items() if name != "PETSTORE_BACKEND"}
SECONDS = 5
ENOUGH = 100_000


def show_help() -> tuple[float, float]:
    """Return CPU and wall seconds of `petstore --help`."""
    command = [sys.executable, "-m", "petstore", "--help"]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, nowhere, 1)]
    begin = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - begin
    os.close(nowhere)
    if status:
        raise RuntimeError("petstore --help fails")
    return usage.ru_utime + usage.ru_stime, wall


def request(port: int) -> None:
    """Send a request that needs the key and the storage."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/v1/pets", headers={"Authorization": f"Bearer {KEY}"})
    if connection.getresponse().status != 200:
        raise RuntimeError("the first request failed")
    connection.close()


def first_response() -> tuple[float, float]:
    """Return CPU and wall seconds until a fresh service has sent its first response."""
    subject = Subject("petstore-dev", "petstore serve --dev", [*SERVE, "--dev"], "", DEV)
    begin = time.perf_counter()
    with Running(subject) as server:
        server.wait()
        request(server.port)
        return server.cpu_seconds(), time.perf_counter() - begin


def sizes() -> tuple[float, float, int]:
    """Return the resident size of an empty store in MB, bytes per pet, and the number of pets."""
    environ = PETSTORE | {"PETSTORE_LOG": "off"}
    with Running(Subject("petstore", "petstore", SERVE, "", environ)) as server:
        server.wait()
        request(server.port)
        empty = server.resident_bytes()
        load = Load(SECONDS)
        load(server, "create", 1)  # so that connection buffers do not count as pets
        before, first_id = server.resident_bytes(), last_id(server.port)
        count = 0
        while count < ENOUGH:
            load(server, "create")
            count = last_id(server.port) - first_id
        return empty / 1e6, (server.resident_bytes() - before) / count, count


def last_id(port: int) -> int:
    """Add a pet and return its id."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    body = b'{"name":"pet01234","categoryId":7,"status":"available"}'
    connection.request("POST", "/v1/pets", body, headers)
    location = connection.getresponse().headers["location"]
    connection.close()
    return int(location.rpartition("/")[2])


def main() -> None:
    """Print the figures."""
    print(f"petstore --help, {HELPS} times", file=sys.stderr)
    helps = [show_help() for _ in range(HELPS)]
    print(f"petstore serve --dev, {STARTS} times", file=sys.stderr)
    starts = [first_response() for _ in range(STARTS)]
    print(f"resident size, adding {ENOUGH:,} pets", file=sys.stderr)
    empty, each, count = sizes()
    figures = {"empty": empty, "pet": each}
    for name, runs in (("help", helps), ("first", starts)):
        figures[name], wall = (median(column) for column in zip(*runs, strict=True))
        print(f"{name:>6}: {figures[name]:.2f} s of CPU, {wall:.2f} s")
    print(f"resident: {empty:.0f} MB empty, {each:.0f} bytes for each of {count:,} pets")
    keep("start", figures)


if __name__ == "__main__":
    main()
