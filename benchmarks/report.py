"""Put the measurements into tables and a plot: RESULTS.md and results.svg.

Run: .venv/bin/python -m benchmarks.report [--quick | --release VERSION]

It reads the output of the other benchmarks in build/bench and measures nothing itself. The report
of a quick run stays there; that of a full run goes beside this file. With --release the figures of
the last full run are recorded in history.json as those of this version.
"""

import argparse
import json
import textwrap
from collections.abc import Iterable
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
from benchmarks.subjects import ALL, BUILD, ROOT
from benchmarks.targets import targets

HISTORY = ROOT / "benchmarks" / "history.json"
PARTS = {
    "stages": "## Stages of a request",
    "start": "## Start-up and memory",
    "pages": "## Pages in small and large stores",
    "shares": "## Connections of the fuller of two workers",
    "cold": "## SQLite on a cold disk",
}
CAVEATS = """\
- **Read CPU and ratios.** Other work shared this machine, and both cores may be threads of one.
  Requests per second and latencies vary with that far more than CPU per request. A ratio is the
  median over the rounds, so it may differ a little from the ratio of two medians.
- Latencies are those of 48 connections that never pause: they show the queue, not one request.
  Those of requests that need not wait are under "Latency".
- petstore stands first as it is by default: with a log line for each request.
- Frameworks run with their defaults (`pip install "uvicorn[standard]"`, access log off), but on
  petstore's version of uvloop, as the raw function. The newer 0.23 writes a response with two
  system calls instead of one, so petstore pins 0.22.
- Peers do the work that is compared and no more: no safe retries, no limits on bodies and
  connections, no drain. FastAPI takes the last of a repeated query parameter, Node.js 1.0 for 1.
  nginx responds with a constant, the same to every request."""

HEAD = "In each cell: get / list 20 / filtered list / create."

FORMS = (("cpu", ".1f"), ("p50", ".2f"), ("p99", ".2f"))
TITLES = {subject.name: subject.title for subject in ALL}


def operations(raw: Raw) -> list[str]:
    """Return the operations that all subjects perform."""
    names = dict.fromkeys(op for ops in raw["figures"].values() for op in ops)
    return [name for name in names if name not in raw["refused"]]


def overview(raw: Raw) -> str:
    """Return the table of CPU per request, with the ratio to the raw function."""
    rows = [["subject", *operations(raw)]]
    for name in ordered(raw, operations(raw)[0]):
        cells = []
        for op in operations(raw):
            over = ratio(raw, "cpu", (name, op), (RAW, op))
            cpu = cell(middle(raw, name, op, "cpu"), ".1f")
            cells.append(cpu if over is None else f"{cpu} ({over:.2f})")
        mark = "**" if name == DEFAULT else ""
        rows.append([f"{mark}{raw['titles'][name]}{mark}", *cells])
    return table(*rows)


def details(raw: Raw, op: str) -> str:
    """Return the table of one operation."""
    heads = ["subject", "requests/s", "CPU us", "p50 ms", "p99 ms"]
    heads += ["CPU over raw", "CPU over petstore by default", "its requests/s over these"]
    return table(
        heads, *(detail(raw, op, name) for name in ordered(raw, op) if op in raw["figures"][name])
    )


def detail(raw: Raw, op: str, name: str) -> list[str]:
    """Return the row of one subject at one operation."""
    return [
        raw["titles"][name],
        cell(middle(raw, name, op, "rate"), ",.0f"),
        *(cell(middle(raw, name, op, what), form) for what, form in FORMS),
        cell(ratio(raw, "cpu", (name, op), (RAW, op))),
        cell(ratio(raw, "cpu", (name, op), (DEFAULT, op))),
        cell(ratio(raw, "rate", (DEFAULT, op), (name, op))),
    ]


def errors(raw: Raw) -> str:
    """Return the table of error responses, each beside a good response of the same operation."""
    heads = ["subject", "response", "requests/s", "CPU us", "p99 ms"]
    rows = [[*heads, "CPU over the good response"]]
    for name in raw["figures"]:
        for op in raw["refused"]:
            good = "list 20" if op.startswith("400") else "get"
            if (rate := middle(raw, name, op, "rate")) is not None:
                cells = [raw["titles"][name], f"{op}, {good}", f"{rate:,.0f}"]
                cells += [cell(middle(raw, name, op, w), f) for w, f in (FORMS[0], FORMS[2])]
                rows.append([*cells, cell(ratio(raw, "cpu", (name, op), (name, good)))])
    return table(*rows)


def text(raw: Raw, picture: str, more: list[str]) -> str:
    """Return the report of one run of `benchmarks.peers`; `more` stands below the picture."""
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
        f"interleaved rounds, {raw['seconds']} s per turn; medians. Written by `make bench`."
    )
    by_operation = [[f"## {op.capitalize()}", details(raw, op)] for op in operations(raw)]
    return "\n\n".join(
        [
            "# Results",
            textwrap.fill(where, 100),
            "\n".join([CAVEATS, *(f"- {line}." for line in raw["left out"])]),
            f"![CPU per request]({picture})",
            *more,
            "## CPU microseconds per request (in brackets: over the raw ASGI function)",
            overview(raw),
            *(part for parts in by_operation for part in parts),
            "## Errors",
            errors(raw),
        ]
    )


def latency(raw: Raw) -> str:
    """Return a table for each number of connections of a run of `benchmarks.latency`."""
    names = ("p50", "p99", "p999")
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
    return "\n\n".join(parts)


def backends(raw: Raw) -> str:
    """Return the tables of a run of `benchmarks.backends`."""

    def heads(ops: Iterable[str]) -> list[str]:
        return [word for op in ops for word in (f"{op}: requests/s", "CPU us")]

    def cells(name: str, ops: Iterable[str]) -> list[str]:
        found = []
        for op in ops:
            rate, cpu, server = (middle(raw, name, op, what) for what in ("rate", "cpu", "server"))
            cpus = [cell(one, ".1f") for one in (cpu, server) if one is None or one >= 0.05]
            found += [cell(rate, ",.0f"), " + ".join(filter(None, cpus))]
        return found

    all_have, some_have = raw["figures"][RAW], ("list 20", "create")
    rows, workers = [["", *heads(all_have)]], [["workers on SQLite", *heads(some_have)]]
    writes = [["", *heads(WRITES)]]
    for name, title in raw["titles"].items():
        if "workers" in name:
            workers.append([name[-1], *cells(name, some_have)])
            continue
        rows.append([title, *cells(name, all_have)])
        if WRITES.keys() <= raw["figures"][name].keys():
            writes.append([title, *cells(name, WRITES)])
    note = (
        "CPU is that of the service (or of the load generator, if there is no service) + that of "
        "the database's server. Creates are durable on all but memory. PostgreSQL alone has 8 "
        "connections, as petstore; Redis alone 48, SQLite one. The workers share two cores with "
        "wrk."
    )
    parts = ["## Backends over HTTP", textwrap.fill(note, 100), table(*rows)]
    parts += [table(*writes), table(*workers)]
    return "\n\n".join(parts)


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


def others() -> list[str]:
    """Return the output of the other benchmarks, each with its title."""
    found = []
    for name, render in (("latency", latency), ("backends", backends)):
        if raw := kept(name):
            found.append(render(raw))
    for name, title in PARTS.items():
        path = BUILD / f"{name}.txt"
        if path.is_file():
            printed = path.read_text().strip()
            if not printed.startswith("|"):
                printed = f"```text\n{printed}\n```"
            found += [title, printed]
    return found


def write(*, quick: bool) -> None:
    """Write the report and print where it is."""
    raw = kept("quick" if quick else "peers")
    if raw is None:
        raise SystemExit("there are no figures: run benchmarks.peers first")
    directory = BUILD if quick else ROOT / "benchmarks"
    report = directory / ("quick.md" if quick else "RESULTS.md")
    picture = directory / ("quick.svg" if quick else "results.svg")
    more = [] if quick else ["## Targets", targets(raw, TITLES), "## Releases", HEAD, history(raw)]
    parts = [text(raw, picture.name, more), *([] if quick else others())]
    report.write_text("\n\n".join(parts) + "\n")
    figures = {
        raw["titles"][name]: [middle(raw, name, op, "cpu") or 0.0 for op in operations(raw)]
        for name in ordered(raw, operations(raw)[0])
        if {*operations(raw)} <= raw["figures"][name].keys()
    }
    picture.write_text(plot.draw(figures, operations(raw), raw["titles"].get(DEFAULT, "")))
    print(overview(raw), errors(raw), *more, sep="\n\n")
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
