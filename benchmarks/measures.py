"""What `benchmarks.growth` measures: CPU of a request, latencies, memory, time on the loop."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from backends.postgres.tests.binaries import NEW
from benchmarks.load import (
    COMPLETE,
    CONNECTIONS,
    DONE,
    GOOD,
    MOST,
    NUMBERED,
    ORDER,
    PET,
    RATE,
    listed,
    wrk,
)
from benchmarks.stores import DURABLE, RARE, Location, available
from benchmarks.subjects import BUILD, KEY, Running, tree

MIB: Final = 2**20
LIBRARIES: Final = {"LD_LIBRARY_PATH": str(NEW.parent / "lib")}  # of PostgreSQL's own programs
HEADERS: Final = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
GROW: Final = """
local n = 0
wrk.headers['Content-Type'], wrk.method = 'application/json', 'POST'
request = function()
  n = n + 1
  if n == {count} then print('DONE 0') os.exit(0) end  -- wrk itself would go on until the end
  return wrk.format(nil, nil, nil, ('{{"name":"pet%05d","categoryId":7,"status":"%s"}}'):format(
    n % 1e5, n % {rare} == 0 and 'pending' or 'available'))
end
"""


def get(pets: int) -> str:
    """Return the arguments of wrk.format for a get of a random pet."""
    return f"'GET', '/v1/pets/' .. math.random({pets})"


def page(pets: int, query: str = "") -> str:
    """Return the arguments of wrk.format for a page of 20 that begins at one of the first pets."""
    return f"'GET', '/v1/pets?limit=20{query}&cursor=p' .. ('%014x'):format(math.random({pets}))"


def script(arguments: str) -> str:
    """Return a wrk script that sends the same request, but for what is random in it."""
    return f"request = function() return wrk.format({arguments}) end"


def reads(pets: int) -> dict[str, str]:
    """Return a wrk script for each way to read."""
    return {
        "get": script(get(pets)),
        "first page": script("'GET', '/v1/pets?limit=20'"),
        "deep page": script(page(pets - 30)),
        "rare status": script(page(pets // 10, "&status=pending")),
    }


def some(pets: int) -> dict[str, str]:
    """Return a wrk script for each of the requests that most questions measure."""
    chosen = {name: reads(pets)[name] for name in ("get", "deep page")}
    return chosen | {"create": GOOD["create"], "create with key": with_key()}


def numbered(arguments: str, ids: Sequence[object] = (), *, key: bool = False) -> str:
    """Return a wrk script whose requests have these ids, one after the other, and perhaps a key."""
    path = BUILD / "ids.txt"
    path.write_text("\n".join(map(str, ids)))
    prefix = f"'{time.time_ns()}-' .. n" if key else "nil"
    text = NUMBERED.replace("FIRST", "0").replace("IDS", str(path)).replace("KEY", prefix)
    return text.replace("REQUEST", arguments)


def with_key() -> str:
    """Return a wrk script of creates, each with a key of its own."""
    return numbered(f"'POST', nil, nil, '{PET}'", key=True)


def writes(running: Running, where: Location, pets: int) -> Iterator[tuple[str, str]]:
    """Yield a wrk script for each write. Each finds what those before it have made."""
    yield "create", GOOD["create"]
    yield "create with key", with_key()
    if where.backend != "memory" and pets >= MOST * 2:
        ids: Sequence[object] = random.sample(available(pets), MOST)  # anywhere in the store
    else:
        ids = listed(running, "/v1/pets?status=available", MOST)
    yield "order", numbered(ORDER, ids)
    yield "complete", numbered(COMPLETE, listed(running, "/v1/store/orders?status=placed", MOST))


def cost(
    running: Sequence[Running],
    where: Location,
    text: str,
    seconds: int = 1,
    connections: int = CONNECTIONS,
) -> list[float]:
    """Return the CPU of a request in microseconds: of the services, and of the store's servers.

    connections -- of clients of each service
    """

    def used() -> tuple[float, float]:
        return sum(one.cpu_seconds() for one in running), where.server_seconds()

    before = used()
    with ThreadPoolExecutor(len(running)) as threads:
        found = list(threads.map(lambda one: wrk(one, text + DONE, connections, seconds), running))
    if wrong := sum(refused + broken for _, _, refused, broken, *_ in found):
        raise RuntimeError(f"{wrong:.0f} unexpected responses: {text}")
    completed = sum(figures[0] for figures in found)
    return [(b - a) / completed * 1e6 for a, b in zip(before, used(), strict=True)]


def established(where: Location) -> int:
    """Return how many connections the servers of a store have."""
    ports = tuple(f":{int(port):04X}" for port in re.findall(r"127.0.0.1:(\d+)", where.url))
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(local.endswith(ports) and state == "01" for _, local, _, state, *_ in lines)


def costs(
    running: Sequence[Running], where: Location, texts: dict[str, str], seconds: int
) -> dict[str, list[float] | float]:
    """Return the CPU of a request for each script."""
    return {name: cost(running, where, text, seconds) for name, text in texts.items()}


def mib(running: Running) -> float:
    """Return the resident size of a service's processes."""
    return running.resident_bytes() / MIB


def paced(running: Running, arguments: str, rate: int, connections: int = 48) -> list[float]:
    """Return p50 and p99 in milliseconds of requests at a fixed rate, during a second."""
    slots = {"first": rate // 2, "last": rate // 2 + rate - 1}
    text = RATE.format(rate=rate, number=0, request=arguments, **slots)
    broken, p50, p99, _ = wrk(running, text, connections, 2)
    if broken:
        raise RuntimeError(f"{broken:.0f} errors at {rate} a second")
    return [p50 / 1000, p99 / 1000]


def grow(running: Running, pets: int) -> float:
    """Create pets over HTTP; return the bytes of memory that each takes."""
    before = running.resident_bytes()
    wrk(running, GROW.format(count=pets + CONNECTIONS, rare=RARE), CONNECTIONS, 600)
    return (running.resident_bytes() - before) / pets


def first_response(running: Running) -> None:
    """Wait until a service has responded to a request that needs the store."""
    running.wait()
    send(HTTPConnection("127.0.0.1", running.port, timeout=60), "GET", "/v1/pets")


def send(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = HEADERS,
) -> int:
    """Send a request; return the status of its response."""
    connection.request(method, path, body, {**HEADERS, **headers})
    response = connection.getresponse()
    response.read()
    return response.status


def stop(running: Running) -> float:
    """Return how many seconds a stop takes."""
    begin = time.monotonic()
    running.process.terminate()
    running.process.wait(60)
    return time.monotonic() - begin


def replace(running: Running) -> float:
    """Kill one of two workers; return how many seconds pass until another serves in its place."""
    started = tree(running.process.pid)[1:]
    one, other = (
        pid for pid in started if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(other, signal.SIGSTOP)  # so that only the new one can respond
    os.kill(one, signal.SIGKILL)
    begin, status = time.monotonic(), 0
    while status != 200:
        with suppress(OSError):
            status = send(HTTPConnection("127.0.0.1", running.port, timeout=0.1), "GET", "/v1/pets")
    os.kill(other, signal.SIGCONT)
    return time.monotonic() - begin


def peak_bytes(pid: int) -> int:
    """Return the largest resident size that a process has had, or 0 once it has ended."""
    text = Path(f"/proc/{pid}/status").read_text()
    _, _, rest = text.partition("VmHWM:")
    return int(rest.split()[0]) * 1024 if rest else 0


def scheduled_ms(pid: int, *, main: bool = False) -> float:
    """Return how long a process and its descendants have been on a CPU, to the nanosecond.

    main -- only its main thread, which runs the event loop
    """
    found = [pid] if main else tree(pid)
    tasks = (task for one in found for task in Path(f"/proc/{one}/task").iterdir())
    chosen = (task for task in tasks if not main or task.name == str(pid))
    return sum(int((task / "schedstat").read_text().split()[0]) for task in chosen) / 1e6


@contextmanager
def beside(where: Location, case: str) -> Iterator[None]:
    """Let something read the whole store again and again until the block exits."""
    postgres, copy = f"LD_LIBRARY_PATH={NEW.parent}/lib {NEW}", where.directory / "copy"
    slow = "SELECT count(*) FROM"
    export = dict.fromkeys(DURABLE, f"{sys.executable} -m petstore export")
    backup = {
        "sqlite": f"sqlite3 {where.url} \"VACUUM INTO '{copy}'\" && rm {copy}",
        "redis": f"redis-cli -u {where.url} BGSAVE",
        "postgres": f"{postgres}/pg_dump '{where.url}'",
    }
    reader = {
        "sqlite": f"(echo 'BEGIN; {slow} pets;'; sleep 600) | sqlite3 {where.url}",
        "postgres": f"{postgres}/psql '{where.url}' -c 'BEGIN ISOLATION LEVEL REPEATABLE READ;"
        f" {slow} petstore.pets; SELECT pg_sleep(600)'",
    }
    commands = {"an export": export, "a backup": backup, "a long reader": reader}
    loop = ["sh", "-c", f"while {commands[case][where.backend]}; do sleep 0.1; done"]
    environ, nowhere = os.environ | where.environ, subprocess.DEVNULL
    process = subprocess.Popen(loop, stdout=nowhere, env=environ, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
