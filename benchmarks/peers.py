"""Compare the service with a raw ASGI function, other frameworks, Node.js and Go.

Run: .venv/bin/python -m benchmarks.peers [--quick] [--seconds N] [--rounds N] [NAME ...]

Needs wrk and taskset. All do the same work. Servers are pinned to the first core, wrk to the
second, 48 connections are kept alive. All must pass `benchmarks.smoke`; then they take turns at
each operation, round by round. The raw figures go to build/bench; `benchmarks.report` writes the
report.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import smoke
from benchmarks.contestants import ALL, BUILD, QUICK, Running, prepare
from benchmarks.load import CONNECTIONS, GOOD, REFUSED, Load
from benchmarks.report import about, write


def turns(servers: list[Running], rounds: int) -> Iterator[tuple[int, str, Running]]:
    """Yield round, operation and server of each turn; those compared are close in time."""
    for number in range(1, rounds + 1):
        for operation in GOOD | REFUSED:
            for server in servers if number % 2 else reversed(servers):
                if operation in GOOD or server.contestant.name == "petstore":
                    yield number, operation, server


def start(stack: ExitStack, names: tuple[str, ...], load: Load) -> tuple[list[Running], list[str]]:
    """Start, check and warm up the contestants; return them, and a line for each left out."""
    contestants, left_out = prepare(names)
    servers = []
    for contestant in contestants:
        print(f"starting and checking: {contestant.title}", file=sys.stderr)
        server = stack.enter_context(Running(contestant))
        try:
            server.wait()
            if contestant.is_petstore:
                smoke.fill(server.port)
            smoke.check(server.port)
            load(server, "get", 1)
        except (RuntimeError, OSError) as error:
            left_out.append(f"{contestant.title} is left out: {error}")
        else:
            servers.append(server)
    return servers, left_out


def measure(names: tuple[str, ...], rounds: int, load: Load) -> dict[str, Any]:
    """Return all figures: contestant -> operation -> one set of figures for each round."""
    with ExitStack() as stack:
        servers, left_out = start(stack, names, load)
        for line in left_out:
            print(line, file=sys.stderr)
        figures: dict[str, dict[str, list[dict[str, float]]]] = {
            server.contestant.name: {} for server in servers
        }
        plan = list(turns(servers, rounds))
        begin = time.monotonic()
        for done, (number, operation, server) in enumerate(plan):
            passed = time.monotonic() - begin
            left = int(passed / done * (len(plan) - done) if done else len(plan) * load.seconds)
            print(
                f"{done / len(plan):4.0%}  {left // 60}:{left % 60:02} left  "
                f"round {number}: {operation}, {server.contestant.title}",
                file=sys.stderr,
            )
            results = figures[server.contestant.name].setdefault(operation, [])
            results.append(load(server, operation))
    return {
        "about": about(),
        "seconds": load.seconds,
        "rounds": rounds,
        "connections": CONNECTIONS,
        "refused": [*REFUSED],
        "left out": left_out,
        "titles": {c.name: c.title for c in ALL if c.name in figures},
        "figures": figures,
    }


def main() -> None:
    """Measure, keep the figures, and write the report."""
    if shutil.which("wrk") is None or shutil.which("taskset") is None:
        raise SystemExit("this benchmark needs wrk and taskset (apt-get install wrk util-linux)")
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few contestants, one short round")
    parser.add_argument("--seconds", type=int, help="how long a turn takes")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("names", nargs="*", metavar="NAME", help="contestants; default: all")
    options = parser.parse_args()
    quick = options.quick
    names = tuple(options.names) or (QUICK if quick else tuple(c.name for c in ALL))
    load = Load(options.seconds or 2)
    raw = measure(names, options.rounds or (1 if quick else 5), load)
    kept = BUILD / ("quick.json" if quick else "peers.json")
    kept.write_text(json.dumps(raw, indent=1))
    print(f"The figures are in {kept.relative_to(Path.cwd())}", file=sys.stderr)
    write(quick=quick)


if __name__ == "__main__":
    main()
