"""Export, import and verify beside the engine's own dump and load, for `benchmarks.growth`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import redis

from backends.postgres.tests.binaries import NEW, reachable
from benchmarks.curves import Case, Figures
from benchmarks.measures import LIBRARIES, MIB, peak_bytes
from benchmarks.stores import DURABLE, Location, filled, location

MOST: Final = {"sqlite": 3_000_000, "redis": 1_000_000, "postgres": 3_000_000}
Command = Sequence[str | Path]
Moved = Callable[[], tuple[Location, Path]]


def moving(most: int, _: int) -> Iterator[Case]:
    """Show what export, import and verify take, beside the engine's own dump and load."""
    for backend in DURABLE:
        with ExitStack() as stack:
            count = min(most, MOST[backend])
            moved = cache(partial(exported, stack, backend, count))
            for command in ("export", "dump", "import", "load", "verify"):
                yield backend, command, partial(counted, moved, command, count)


def counted(moved: Moved, command: str, count: int) -> Figures:
    """Return what a command takes for so many pets."""
    return {"pets": float(count), **move(moved, command)}


def exported(stack: ExitStack, backend: str, count: int) -> tuple[Location, Path]:
    """Return a store, and its export."""
    where, _ = stack.enter_context(filled(backend, count))
    file = where.directory.with_suffix(".exported")
    where.transfer("export", file)
    stack.callback(file.unlink)
    return where, file


def move(moved: Moved, command: str) -> Figures:
    """Run one of the service's commands, or its like of the engine."""
    where, file = moved()
    ours = [sys.executable, "-m", "petstore", command]
    with ExitStack() as stack:
        if command in ("export", "verify"):
            return run([*ours, file], where)
        other = stack.enter_context(location(where.backend))
        if command == "import":
            return run([*ours, file], other)
        dump, load, dumped = engine(where, other)
        if command == "load" and dumped.exists():
            return run(load, other, dumped)
        figures = run(dump, where)
        return figures if command == "dump" else run(load, other, dumped)


def engine(where: Location, other: Location) -> tuple[Command, Command, Path]:
    """Return the engine's commands that dump a store and load it elsewhere, and the dump."""
    file = where.directory / "dump"
    if where.backend == "sqlite":
        return ["sqlite3", where.url, f".output {file}", ".dump"], ["sqlite3", other.url], file
    if where.backend == "postgres":
        programs = reachable(NEW)
        saving: Command = [programs / "pg_dump", "-f", file, where.url]
        return saving, [programs / "psql", "-q", "-o", os.devnull, other.url], file
    port = urlsplit(where.url).port or 0
    with redis.Redis(port=port) as client:
        client.config_set("aof-use-rdb-preamble", "no")  # commands, as --pipe wants them
        client.bgrewriteaof()
        while client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.1)
    commands = next((where.directory / str(port) / "appendonlydir").glob("*.base.aof"))
    dump = ["redis-cli", "-u", where.url, "--rdb", str(file)]
    return dump, ["redis-cli", "-u", other.url, "--pipe"], commands


def run(command: Command, where: Location, source: Path = Path(os.devnull)) -> Figures:
    """Run a command on a store; return its CPU and the server's, its time and peak memory."""
    before, begin, peak = where.server_seconds(), time.monotonic(), 0
    environ = os.environ | where.environ | LIBRARIES
    with source.open("rb") as standard_input:
        process = subprocess.Popen(
            command, stdin=standard_input, stdout=subprocess.DEVNULL, env=environ
        )
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, peak_bytes(process.pid))
            time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode:
        raise RuntimeError(f"{command}: {process.returncode}")
    server = where.server_seconds() - before
    own = ended[2].ru_utime + ended[2].ru_stime
    return {"CPU s": [own, server], "s": time.monotonic() - begin, "peak MiB": peak / MIB}
