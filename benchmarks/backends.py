"""Compare the service on SQLite and on Redis with the service on memory, at 48 connections.

Run: .venv/bin/python -m benchmarks.backends [SECONDS]    (needs wrk; default: 4 seconds per figure)

One server process on the first core, wrk on the second, and the Redis server wherever there is
room; 10,000 pets, request lines off. The backends take turns in three rounds. The table shows
medians: requests per second, CPU microseconds per request (of the service), and the ratio to
memory.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import httpx

from backends.redis.tests.servers import single

BACKENDS = ("memory", "sqlite", "redis")
ROUNDS = 3
PETS = 10_000
KEY = "benchmark"
HEADERS = {"Authorization": f"Bearer {KEY}"}

SCRIPTS = {
    "get": "request = function() return wrk.format('GET', '/v1/pets/' .. math.random({n})) end",
    "list 20": "request = function() return wrk.format('GET', '/v1/pets?cursor=p' .. "
    "string.format('%014x', math.random({n}))) end",
    "filtered list": "request = function() return wrk.format('GET', "
    "'/v1/pets?status=sold&cursor=p' .. string.format('%014x', math.random({n}))) end",
    "create": "wrk.method = 'POST'; wrk.headers['Content-Type'] = 'application/json'; "
    'wrk.body = \'{{"name":"Rex","categoryId":7,"status":"available"}}\'',
}


def serve(backend: str, directory: Path, redis: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a service on the first core; return its process and address."""
    settings = {
        "BACKEND": backend,
        "API_KEYS": KEY,
        "LISTEN": "127.0.0.1:0",
        "LOG": "off",
        "DRAIN_SECONDS": "0",
    }
    settings |= {
        "sqlite": {"SQLITE_PATH": str(directory / "pets.sqlite")},
        "redis": {"REDIS_URL": redis},
    }.get(backend, {})
    log = directory / f"{backend}.log"
    process = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, "-m", "petstore", "serve"],  # noqa: S607 - from the PATH
        env=os.environ | {f"PETSTORE_{name}": text for name, text in settings.items()},
        stderr=log.open("wb"),
    )
    while (match := re.search(r"serving on (http://[^/]+)/", log.read_text())) is None:
        time.sleep(0.05)
        if process.poll() is not None:
            raise SystemExit(log.read_text())
    return process, match[1]


def fill(url: str) -> None:
    """Add the pets, a third of each status."""
    with httpx.Client(base_url=url, headers=HEADERS) as client:
        for number in range(PETS):
            status = ("available", "pending", "sold")[number % 3]
            body = {"name": f"pet{number:05}", "categoryId": number % 10, "status": status}
            client.post("/v1/pets", json=body).raise_for_status()


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(url: str, script: Path, seconds: int) -> int:
    """Run wrk on the second core; return the number of requests, all of which succeeded."""
    command = ["taskset", "-c", "1", "wrk", "-t1", "-c48", f"-d{seconds}s", "-s", str(script)]
    run = subprocess.run(
        [*command, "-H", f"Authorization: Bearer {KEY}", url],
        capture_output=True,
        text=True,
        check=True,
    )
    if "Non-2xx" in run.stdout or "Socket errors" in run.stdout:
        raise SystemExit(run.stdout)
    found = re.search(r"(\d+) requests in", run.stdout)
    return int(found[1]) if found else 0


def main(seconds: int) -> None:
    """Print the table."""
    if shutil.which("wrk") is None or shutil.which("taskset") is None:
        raise SystemExit("this benchmark needs wrk and taskset (apt-get install wrk util-linux)")
    rates, costs = defaultdict[tuple[str, str], list[float]](list), defaultdict(list)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(single(directory, "appendonly yes", "appendfsync always"))
        redis = f"redis://127.0.0.1:{server.port}"
        services = {backend: serve(backend, directory, redis) for backend in BACKENDS}
        for _, url in services.values():
            fill(url)
        for turn in range(ROUNDS):
            for kind, text in SCRIPTS.items():
                script = directory / "load.lua"
                script.write_text(text.format(n=PETS))
                for backend, (process, url) in services.items():
                    print(f"round {turn + 1}: {kind}, {backend}", file=sys.stderr)
                    begin, cpu = time.perf_counter(), cpu_seconds(process)
                    completed = load(url + "/v1/pets", script, seconds)
                    rates[kind, backend].append(completed / (time.perf_counter() - begin))
                    costs[kind, backend].append((cpu_seconds(process) - cpu) / completed * 1e6)
        for process, _ in services.values():
            process.terminate()
            process.wait()
    print("| operation |" + "".join(f" {b} /s | CPU us | ratio |" for b in BACKENDS))
    print("|---|" + "---|---|---|" * len(BACKENDS))
    for kind in SCRIPTS:
        row = [f"| {kind}"]
        for backend in BACKENDS:
            rate, cost = (statistics.median(t[kind, backend]) for t in (rates, costs))
            pairs = zip(rates[kind, backend], rates[kind, "memory"], strict=True)
            ratio = statistics.median(rate / memory for rate, memory in pairs)
            row.append(f"{rate:,.0f} | {cost:.1f} | {ratio:.2f}")
        print(" | ".join(row), "|")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
