"""Put the measurements into tables and a plot: RESULTS.md and results.svg.

Run: .venv/bin/python -m benchmarks.report [--quick | --release VERSION]

It reads the output of the other benchmarks in build/bench and measures nothing itself. The report
of a quick run stays there; that of a full run goes beside this file. With --release the figures of
the last full run are recorded in history.json as those of this version.
"""

import argparse
import json
import textwrap
from collections.abc import Iterable, Sequence
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
from benchmarks.load import WRITES
from benchmarks.subjects import BUILD, ROOT
from benchmarks.targets import bar

HISTORY = ROOT / "benchmarks" / "history.json"
CAVEATS = """\
- **Read CPU and ratios.** Other work shared this machine, and both cores may be threads of one.
  Requests per second and latencies vary with that far more than CPU per request. A ratio is the
  median over the rounds, so it may differ a little from the ratio of two medians.
- petstore stands first as it is by default: with a log line for each request.
- Frameworks run with their defaults (`pip install "uvicorn[standard]"`, access log off), but on
  petstore's version of uvloop, as the raw function. The newer 0.23 writes a response with two
  system calls instead of one, so petstore pins 0.22.
- Peers do the work that is compared and no more: no safe retries, no limits on bodies and
  connections, no drain. FastAPI takes the last of a repeated query parameter, Node.js 1.0 for 1.
  nginx responds with a constant, the same to every request."""

HEAD = "In each cell: get / list 20 / filtered list / create."


def operations(raw: Raw) -> list[str]:
    """Return the operations that are compared; errors are measured, but not in the report."""
    names = dict.fromkeys(op for ops in raw["figures"].values() for op in ops)
    return [name for name in names if name not in raw["refused"]]


def overview(raw: Raw, what: str, form: str, base: str) -> str:
    """Return the table of a figure of each operation, with its ratio to that of a subject."""
    rows = [["subject", *operations(raw)]]
    for name in ordered(raw, operations(raw)[0]):
        cells = []
        for op in operations(raw):
            over = ratio(raw, what, (name, op), (base, op))
            figure = cell(middle(raw, name, op, what), form)
            cells.append(figure if over is None else f"{figure} ({over:.2f})")
        mark = "**" if name == DEFAULT else ""
        rows.append([f"{mark}{raw['titles'][name]}{mark}", *cells])
    return table(*rows)


def text(raw: Raw, picture: str, holds: str) -> str:
    """Return the report of one run of `benchmarks.peers`; `holds` is the bar."""
    facts = raw["about"]
    turns = (
        turn for cases in raw["figures"].values() for turns in cases.values() for turn in turns
    )
    others = max(0.0, median(turn["others"] for turn in turns))  # clocks tick
    where = (
        f"{facts['date']}, commit {facts['commit']}, Python {facts['python']}, {facts['machine']}; "
        f"others used {others:.2f} of them in the median turn. "
        "Server on the first core, wrk with "
        f"{raw['connections']} connections on the second; 10,000 pets; {raw['rounds']} "
        f"interleaved rounds, {raw['seconds']} s per turn, 1 s more for creates; medians. "
        "Written by `make bench`."
    )
    return "\n\n".join(
        [
            "# Results",
            textwrap.fill(where, 100),
            f"```text\n{holds}\n```",
            "\n".join([CAVEATS, *(f"- {line}." for line in raw["left out"])]),
            f"![CPU per request]({picture})",
            "## CPU microseconds per request (in brackets: over the raw ASGI function)",
            overview(raw, "cpu", ".1f", RAW),
            "## Requests per second (in brackets: over petstore by default)",
            overview(raw, "rate", ",.0f", DEFAULT),
        ]
    )


def latency(raw: Raw) -> str:
    """Return the tables of a run of `benchmarks.latency`."""
    names = ("p50", "p99", "p999")
    orders = raw["orders"]
    note = (
        f"Gets, in milliseconds: at {raw['rate']:,} a second, counted from when a request was due, "
        "and at saturation, where the queue is most of it. *Not held*: more than one in a hundred, "
        "or in a thousand, had no response half a second after the last was due."
    )
    parts = ["## Latency", textwrap.fill(note, 100)]
    for count in raw["counts"]:
        heads = ["subject", *(f"{name}, {raw['rate']:,}/s" for name in ("p50", "p99", "p99.9"))]
        heads += ["p50, saturated", "p99", "p99.9", "requests/s", "CPU us", "CPU over raw"]
        rows = []
        at, full = f"{count} at rate", str(count)
        for name in ordered(raw, full):
            cells = [cell(middle(raw, name, case, p)) for case in (at, full) for p in names]
            cells += [cell(middle(raw, name, full, "rate"), ",.0f")]
            cells += [cell(middle(raw, name, full, "cpu"), ".1f")]
            cells += [cell(ratio(raw, "cpu", (name, full), (RAW, full)))]
            rows.append([raw["titles"][name], *cells])
        parts += [f"### {count:,} connections", table(heads, *rows)]
    rows = [
        [title, *(cell(middle(orders, name, "order", p)) for p in names)]
        for name, title in orders["titles"].items()
    ]
    parts += [f"### Orders, {raw['order rate']:,}/s, durable on all but memory"]
    parts += [table(["subject", "p50", "p99", "p99.9"], *rows)]
    return "\n\n".join(parts)


def backends(raw: Raw) -> str:
    """Return the tables of a run of `benchmarks.backends`."""

    def rows(first: str, ops: Sequence[str], names: Iterable[tuple[str, str]]) -> str:
        body = []
        for name, title in names:
            cells = [title]
            for op in ops:
                cpus = (middle(raw, name, op, what) for what in ("cpu", "server"))
                shown = " + ".join(cell(one, ".1f") for one in cpus if one and one >= 0.05)
                cells += [cell(middle(raw, name, op, "rate"), ",.0f"), shown]
            if any(cells[1:]):
                body.append(cells)
        return table([first, *(word for op in ops for word in (op, "CPU"))], *body)

    ones = [item for item in raw["titles"].items() if "workers" not in item[0]]
    workers = [(name, name[-1]) for name in raw["titles"] if "workers" in name]
    note = (
        "Requests per second, and CPU microseconds of the service (or of the load generator, if "
        "there is no service) + those of the database's server. Writes are durable on all but "
        "memory. PostgreSQL alone has 8 connections, as petstore; Redis alone 48, SQLite one. The "
        "workers share two cores with wrk."
    )
    return "\n\n".join(
        [
            "## Backends over HTTP",
            textwrap.fill(note, 100),
            rows("reads", ("get", "list 20", "filtered list"), ones),
            rows("writes", ("create", *WRITES), ones),
            rows("workers on SQLite", ("list 20", "create"), workers),
        ]
    )


PARTS = (("latency", latency), ("backends", backends))


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
    return table(["release", "CPU over raw, log off", "CPU over raw, log and metrics on"], *body)


def write(*, quick: bool) -> None:
    """Write the report, and print the bar and where the report is."""
    raw = kept("quick" if quick else "peers")
    if raw is None:
        raise SystemExit("there are no figures: run benchmarks.peers first")
    directory = BUILD if quick else ROOT / "benchmarks"
    report = directory / ("quick.md" if quick else "RESULTS.md")
    picture = directory / ("quick.svg" if quick else "results.svg")
    holds, more = bar(raw, quick=quick), []
    if not quick:
        more = [render(found) for name, render in PARTS if (found := kept(name))]
        pages = BUILD / "pages.txt"
        if pages.is_file():
            title = "## Pages in small and large stores, microseconds"
            more += [title, f"```text\n{pages.read_text().rstrip()}\n```"]
        more += ["## Releases", HEAD, history(raw)]
    report.write_text("\n\n".join([text(raw, picture.name, holds), *more]) + "\n")
    figures = {
        raw["titles"][name]: [middle(raw, name, op, "cpu") or 0.0 for op in operations(raw)]
        for name in ordered(raw, operations(raw)[0])
        if {*operations(raw)} <= raw["figures"][name].keys()
    }
    picture.write_text(plot.draw(figures, operations(raw), raw["titles"].get(DEFAULT, "")))
    print(holds)
    print(f"\nThe tables are in {report.relative_to(ROOT)}, the plot beside it.")


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
