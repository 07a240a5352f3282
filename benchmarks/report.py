"""Put the measurements into tables and a plot: RESULTS.md and results.svg.

Run: .venv/bin/python -m benchmarks.report [--quick | --release VERSION]

It reads the output of the other benchmarks in build/bench and measures nothing itself. The report
of a quick run stays there; that of a full run goes beside this file. With --release the figures of
the last full run are recorded in history.json as those of this version.
"""

import argparse
import json
import textwrap
from statistics import median

from benchmarks import plot
from benchmarks.figures import (
    DEFAULT,
    NAME,
    OBSERVED,
    RAW,
    Raw,
    cell,
    kept,
    middle,
    ordered,
    ratio,
    table,
)
from benchmarks.subjects import BUILD, ROOT

HISTORY = ROOT / "benchmarks" / "history.json"


def operations(raw: Raw) -> list[str]:
    """Return the operations of a run."""
    return [*dict.fromkeys(op for ops in raw["figures"].values() for op in ops)]


def subjects(raw: Raw) -> str:
    """Return the table of a run of `benchmarks.peers`."""
    rows = [["CPU us of a request (over raw)", *operations(raw), "gets/s"]]
    for name in ordered(raw, operations(raw)[0]):
        cells = []
        for op in operations(raw):
            over = ratio(raw, "cpu", (name, op), (RAW, op))
            figure = cell(middle(raw, name, op, "cpu"), ".1f")
            cells.append(figure if over is None else f"{figure} ({over:.2f})")
        mark = "**" if name == DEFAULT else ""
        rate = cell(middle(raw, name, "get", "rate"), ",.0f")
        rows.append([f"{mark}{raw['titles'][name]}{mark}", *cells, rate])
    return table(*rows)


def about(raw: Raw) -> str:
    """Return where, when and how a run was measured."""
    facts = raw["about"]
    turns = (turn for ops in raw["figures"].values() for turns in ops.values() for turn in turns)
    others = max(0.0, median(turn["others"] for turn in turns))  # clocks tick
    text = (
        f"{facts['date']}, commit {facts['commit']}, Python {facts['python']}, {facts['machine']}; "
        f"others used {others:.2f} of them in the median turn. Server on the first core, wrk with "
        f"{raw['connections']} connections on the second; 10,000 pets; {raw['rounds']} "
        f"interleaved rounds, {raw['seconds']} s per turn, 1 s more for creates; medians. "
        "`benchmarks/README.md` says what is compared."
    )
    return "\n".join([textwrap.fill(text, 100), *(f"- {line}." for line in raw["left out"])])


def latency(raw: Raw) -> str:
    """Return the table of the gets in a run of `benchmarks.latency`."""
    counts = operations(raw)
    heads = [f"{p}, {int(count):,} connections" for count in counts for p in ("p50", "p99")]
    rows = [[f"ms of a get, {raw['rate']:,}/s", *heads]]
    for name in ordered(kept("peers") or raw, "get"):
        if name in raw["figures"]:
            cells = [cell(middle(raw, name, count, p)) for count in counts for p in ("p50", "p99")]
            rows.append([raw["titles"][name], *cells])
    return table(*rows)


def backends(raw: Raw) -> str:
    """Return the table of a run of `benchmarks.backends`, with the orders of `benchmarks.latency`.

    CPU of the service + that of the server of its storage.
    """
    slow = kept("latency")
    heads = ["CPU us of a request: service + server", *operations(raw)]
    rows = [[*heads, *([f"ms of an order, {slow['order rate']:,}/s: p50, p99"] if slow else [])]]
    for name, title in raw["titles"].items():
        row = [f"petstore, {title}"]
        for op in operations(raw):
            cpus = (middle(raw, name, op, what) for what in ("cpu", "server"))
            row.append(" + ".join(cell(one, ".1f") for one in cpus if one))
        if slow:
            found = (middle(slow["orders"], name, "order", p) for p in ("p50", "p99"))
            row.append(", ".join(map(cell, found)))
        rows.append(row)
    return table(*rows)


def start(raw: Raw) -> str:
    """Return the line of a run of `benchmarks.start`."""
    text = (
        f"`petstore --help` takes {raw['help']:.2f} s of CPU, a start until the first response "
        f"{raw['first']:.2f} s. The empty service takes {raw['empty']:.0f} MB, a pet on memory "
        f"{raw['pet']:.0f} bytes; [docs/size.md](../docs/size.md) has the other backends."
    )
    return textwrap.fill(text, 100)


def release(raw: Raw) -> dict[str, list[float]]:
    """Return what the history keeps of a run: the service's CPU over raw at each operation."""
    found = {}
    for name in (NAME, OBSERVED):
        cells = [ratio(raw, "cpu", (name, op), (RAW, op)) for op in operations(raw)]
        found[name] = [round(value, 2) for value in cells if value is not None]
    return found


def history(raw: Raw) -> str:
    """Return the table of all releases and, unless it has become one, the last run."""
    rows = json.loads(HISTORY.read_text())
    last = release(raw)
    if last not in rows.values():
        rows["unreleased"] = last
    body = (
        [version, *(" / ".join(f"{x:.2f}" for x in row[name]) for name in (NAME, OBSERVED))]
        for version, row in rows.items()
    )
    heads = [f"CPU over raw: {' / '.join(operations(raw))}", "log off", "log and metrics on"]
    return table(heads, *body)


PARTS = (("latency", latency), ("backends", backends), ("start", start))


def write(*, quick: bool) -> None:
    """Write the report, and print it."""
    raw = kept("quick" if quick else "peers")
    if raw is None:
        raise SystemExit("there are no figures: run benchmarks.peers first")
    directory = BUILD if quick else ROOT / "benchmarks"
    report = directory / ("quick.md" if quick else "RESULTS.md")
    picture = directory / ("quick.svg" if quick else "results.svg")
    parts = ["# Results", about(raw), f"![CPU per request]({picture.name})", subjects(raw)]
    if not quick:
        parts += [render(found) for name, render in PARTS if (found := kept(name))]
        parts += [history(raw)]
    text = "\n\n".join(parts)
    report.write_text(f"{text}\n")
    figures = {
        raw["titles"][name]: [middle(raw, name, op, "cpu") or 0.0 for op in operations(raw)]
        for name in ordered(raw, operations(raw)[0])
        if {*operations(raw)} <= raw["figures"][name].keys()
    }
    picture.write_text(plot.draw(figures, operations(raw), raw["titles"].get(DEFAULT, "")))
    print(f"{text}\n\nThis is {report.relative_to(ROOT)}; the plot is beside it.")


def main() -> None:
    """Write the report, and record a release."""
    parser = argparse.ArgumentParser(prog="benchmarks.report", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="of the last quick run")
    parser.add_argument("--release", metavar="VERSION", help="record the last full run as its")
    options = parser.parse_args()
    if options.release and (raw := kept("peers")):
        rows = json.loads(HISTORY.read_text()) | {options.release: release(raw)}
        lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        HISTORY.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    write(quick=options.quick)


if __name__ == "__main__":
    main()
