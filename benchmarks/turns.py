"""Subjects take turns, round by round, so that those compared are close in time."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import smoke
from benchmarks.figures import about
from benchmarks.load import Load
from benchmarks.subjects import BUILD, Running, Subject, cpu_seconds

Cases = dict[str, Callable[[Running], dict[str, float]]]
"""For each case, what measures one turn of a server."""


def start(stack: ExitStack, subjects: list[Subject], left_out: list[str]) -> list[Running]:
    """Start, check and warm up subjects; a line for each that fails goes to `left_out`."""
    if shutil.which("wrk") is None or shutil.which("taskset") is None:
        raise SystemExit("this benchmark needs wrk and taskset (apt-get install wrk util-linux)")
    servers: list[Running] = []
    for subject in subjects:
        print(f"starting and checking: {subject.title}", file=sys.stderr)
        server = stack.enter_context(Running(subject))
        try:
            server.wait()
            if subject.is_petstore:
                smoke.fill(server.port)
            smoke.check(server.port, subject)
            Load(1)(server, "get")
        except (RuntimeError, OSError) as error:
            left_out.append(f"{subject.title} is left out: {error}")
        else:
            servers.append(server)
    for line in left_out:
        print(line, file=sys.stderr)
    return servers


def others_seconds() -> float:
    """Return the CPU time that other processes of the machine have used."""
    user, nice, system, _, _, *more = map(int, Path("/proc/stat").read_text().split()[1:9])
    busy = (user + nice + system + sum(more)) / os.sysconf("SC_CLK_TCK")
    return busy - cpu_seconds(os.getpid())


def compare(
    subjects: list[Subject], left_out: list[str], cases: Cases, rounds: int
) -> dict[str, Any]:
    """Return all figures: subject -> case -> one set of figures for each round."""
    with ExitStack() as stack:
        servers = start(stack, subjects, left_out)
        plan = [
            (number, case, server)
            for number in range(1, rounds + 1)
            for case in cases
            for server in (servers if number % 2 else reversed(servers))
            if not server.subject.only or case in server.subject.only
        ]
        figures: dict[str, Any] = {server.subject.name: {} for server in servers}
        begin = time.monotonic()
        for done, (number, case, server) in enumerate(plan):
            passed = time.monotonic() - begin
            left = int(passed / done * (len(plan) - done)) if done else 0
            print(
                f"{done / len(plan):4.0%}  {left // 60}:{left % 60:02} left  "
                f"round {number}: {case}, {server.subject.title}",
                file=sys.stderr,
            )
            turns = figures[server.subject.name].setdefault(case, [])
            before, at = others_seconds(), time.monotonic()
            turns.append(cases[case](server))
            turns[-1]["others"] = (others_seconds() - before) / (time.monotonic() - at)
    return {
        "about": about(),
        "rounds": rounds,
        "left out": left_out,
        "titles": {one.subject.name: one.subject.title for one in servers},
        "figures": figures,
    }


def keep(name: str, raw: dict[str, Any]) -> None:
    """Keep figures in build/bench."""
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / f"{name}.json"
    kept.write_text(json.dumps(raw, indent=1))
    print(f"The figures are in {kept}", file=sys.stderr)
