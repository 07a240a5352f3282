"""Compare the service with a raw function, other servers and frameworks, Node.js and Go.

Run: .venv/bin/python -m benchmarks.peers [--quick] [--seconds N] [--rounds N] [NAME ...]

Needs wrk and taskset. All do the same work. Servers are pinned to the first core, wrk to the
second, 48 connections are kept alive. All must pass `benchmarks.smoke`; then they take turns at
each operation, round by round. The raw figures go to build/bench; `benchmarks.report` writes the
report.
"""

import argparse
from functools import partial

from benchmarks.load import CONNECTIONS, GOOD, Load
from benchmarks.report import write
from benchmarks.subjects import ALL, QUICK, named, prepare
from benchmarks.turns import compare, keep


def main() -> None:
    """Measure, keep the figures, and write the report."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few subjects, one short round")
    parser.add_argument("--seconds", type=int, default=2, help="how long a turn takes")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("names", nargs="*", metavar="NAME", help="subjects; default: all")
    options = parser.parse_args()
    quick = options.quick
    names = tuple(options.names) or (QUICK if quick else tuple(c.name for c in ALL))
    load = Load(options.seconds)
    raw = compare(
        *prepare(named(names)),
        {operation: partial(load, operation=operation) for operation in GOOD},
        options.rounds or (1 if quick else 5),
    )
    raw |= {"seconds": load.seconds, "connections": CONNECTIONS}
    keep("quick" if quick else "peers", raw)
    write(quick=quick)


if __name__ == "__main__":
    main()
