"""Put the measurements into tables and a plot: RESULTS.md and results.svg.

Run: .venv/bin/python -m benchmarks.report [--quick]

It reads the output of the other benchmarks in build/bench and measures nothing itself. The report
of a quick run stays there; that of a full run goes beside this file.
"""

import json
import os
import platform
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import plot
from benchmarks.contestants import BUILD, ROOT

NAME = "petstore"
RAW = "raw"
PARTS = {
    "stages": "## Stages of a request",
    "start": "## Start-up and memory",
    "backends": "## Backends over HTTP",
    "pages": "## Pages in small and large stores",
}
CAVEATS = """\
- **Read CPU and ratios.** Other work shared this machine, and both cores may be threads of one.
  Requests per second and latencies vary with that far more than CPU per request. A ratio is the
  median over the rounds, so it may differ a little from the ratio of two medians.
- Latencies are those of 48 connections that never pause: they show the queue, not one request.
- Frameworks run with their defaults (`pip install "uvicorn[standard]"`, access log off), on uvloop
  0.23, which writes a response with two system calls. petstore and the raw function pin uvloop
  0.22, which needs one.
- Peers do the work that is compared and no more: no safe retries, no limits on bodies and
  connections, no drain. FastAPI takes the last of a repeated query parameter, Node.js 1.0 for 1."""

FORMS = (("cpu", ".1f"), ("p50", ".2f"), ("p99", ".2f"))
Raw = dict[str, Any]


def about() -> dict[str, str]:
    """Return the date, commit and machine of the measurements."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": f"{datetime.now(UTC):%d %B %Y}".lstrip("0"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}",
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def commit() -> str:
    """Return the measured commit, and whether the working tree differs from it."""

    def git(*words: str) -> str:
        run = subprocess.run(
            ["git", *words],  # noqa: S607 - from the PATH
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return run.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "petstore", "backends")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + " with changes" * bool(changed)


def middle(raw: Raw, name: str, operation: str, what: str) -> float | None:
    """Return the median over the rounds, or None if it was not measured."""
    turns = raw["figures"].get(name, {}).get(operation)
    return float(median(turn[what] for turn in turns)) if turns else None


def ratio(raw: Raw, what: str, one: tuple[str, str], other: tuple[str, str]) -> float | None:
    """Return the median of the ratios of two (contestant, operation), round by round."""
    first, second = (raw["figures"].get(name, {}).get(op) for name, op in (one, other))
    if not first or not second:
        return None
    return float(median(a[what] / b[what] for a, b in zip(first, second, strict=True)))


def cell(value: float | None, form: str = ".2f") -> str:
    """Return the text of a table cell."""
    return "" if value is None else format(value, form)


def table(*rows: list[str]) -> str:
    """Return a Markdown table; the first row is its header."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def operations(raw: Raw) -> list[str]:
    """Return the operations that all contestants perform."""
    names = dict.fromkeys(op for ops in raw["figures"].values() for op in ops)
    return [name for name in names if name not in raw["refused"]]


def ordered(raw: Raw) -> list[str]:
    """Return the contestants, the cheapest first."""
    first = operations(raw)[0]
    return sorted(raw["figures"], key=lambda name: middle(raw, name, first, "cpu") or 0)


def overview(raw: Raw) -> str:
    """Return the table of CPU per request, with the ratio to the raw function."""
    rows = [["contestant", *operations(raw)]]
    for name in ordered(raw):
        cells = []
        for op in operations(raw):
            over = ratio(raw, "cpu", (name, op), (RAW, op))
            cpu = cell(middle(raw, name, op, "cpu"), ".1f")
            cells.append(cpu if over is None else f"{cpu} ({over:.2f})")
        mark = "**" if name == NAME else ""
        rows.append([f"{mark}{raw['titles'][name]}{mark}", *cells])
    return table(*rows)


def details(raw: Raw, op: str) -> str:
    """Return the table of one operation."""
    heads = ["contestant", "requests/s", "CPU us", "p50 ms", "p99 ms"]
    heads += ["CPU over raw", "CPU over petstore", "petstore's requests/s over its"]
    return table(heads, *(detail(raw, op, name) for name in ordered(raw)))


def detail(raw: Raw, op: str, name: str) -> list[str]:
    """Return the row of one contestant at one operation."""
    return [
        raw["titles"][name],
        cell(middle(raw, name, op, "rate"), ",.0f"),
        *(cell(middle(raw, name, op, what), form) for what, form in FORMS),
        cell(ratio(raw, "cpu", (name, op), (RAW, op))),
        cell(ratio(raw, "cpu", (name, op), (NAME, op))),
        cell(ratio(raw, "rate", (NAME, op), (name, op))),
    ]


def errors(raw: Raw) -> str:
    """Return the table of error responses, each beside a good response of the same operation."""
    heads = ["contestant", "response", "requests/s", "CPU us", "p99 ms"]
    rows = [[*heads, "CPU over the good response"]]
    for name in raw["figures"]:
        for op in raw["refused"]:
            good = "list 20" if op.startswith("400") else "get"
            if (rate := middle(raw, name, op, "rate")) is not None:
                cells = [raw["titles"][name], f"{op}, {good}", f"{rate:,.0f}"]
                cells += [cell(middle(raw, name, op, w), f) for w, f in (FORMS[0], FORMS[2])]
                rows.append([*cells, cell(ratio(raw, "cpu", (name, op), (name, good)))])
    return table(*rows)


def text(raw: Raw, picture: str) -> str:
    """Return the report of one run of `benchmarks.peers`."""
    facts = raw["about"]
    where = (
        f"{facts['date']}, commit {facts['commit']}, Python {facts['python']}, {facts['machine']}; "
        f"load {facts['load']} at the start. Server on the first core, wrk with "
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
            "## CPU microseconds per request (in brackets: over the raw ASGI function)",
            overview(raw),
            *(part for parts in by_operation for part in parts),
            "## Errors",
            errors(raw),
        ]
    )


def others() -> list[str]:
    """Return the output of the other benchmarks, each with its title."""
    found = []
    for name, title in PARTS.items():
        kept = BUILD / f"{name}.txt"
        if kept.is_file():
            printed = kept.read_text().strip()
            if not printed.startswith("|"):
                printed = f"```text\n{printed}\n```"
            found += [title, printed]
    return found


def write(*, quick: bool) -> None:
    """Write the report and print where it is."""
    raw = json.loads((BUILD / ("quick.json" if quick else "peers.json")).read_text())
    directory = BUILD if quick else ROOT / "benchmarks"
    report = directory / ("quick.md" if quick else "RESULTS.md")
    picture = directory / ("quick.svg" if quick else "results.svg")
    parts = [text(raw, picture.name), *([] if quick else others())]
    report.write_text("\n\n".join(parts) + "\n")
    figures = {
        raw["titles"][name]: [middle(raw, name, op, "cpu") or 0.0 for op in operations(raw)]
        for name in ordered(raw)
    }
    picture.write_text(plot.draw(figures, operations(raw), raw["titles"].get(NAME, "")))
    if quick:
        print(overview(raw), errors(raw), sep="\n\n")
    print(f"\nThe tables are in {report.relative_to(ROOT)}, the plot beside it.")


if __name__ == "__main__":
    write(quick="--quick" in sys.argv)
