"""What the figures of a run are: where they were measured, medians, ratios, tables of them."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from math import isinf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.subjects import BUILD, ROOT

DEFAULT = "petstore-log"
NAME = "petstore"
OBSERVED = "petstore-observed"
RAW = "raw"
Raw = dict[str, Any]


def kept(name: str) -> Raw | None:
    """Return the figures that a benchmark has kept in build/bench, if it has."""
    path = BUILD / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def about() -> dict[str, str]:
    """Return the date, commit and machine of the measurements."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": f"{datetime.now(UTC):%d %B %Y}".lstrip("0"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}",
        "python": platform.python_version(),
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
    """Return the median of the ratios of two (subject, operation), round by round."""
    first, second = (raw["figures"].get(name, {}).get(op) for name, op in (one, other))
    if not first or not second:
        return None
    return float(median(a[what] / b[what] for a, b in zip(first, second, strict=True)))


def ordered(raw: Raw, operation: str) -> list[str]:
    """Return the subjects: the service as it is by default, then the others by their CPU."""
    cpu = {name: middle(raw, name, operation, "cpu") or 0 for name in raw["figures"]}
    return sorted(cpu, key=lambda name: (name != DEFAULT, cpu[name]))


def cell(value: float | None, form: str = ".2f") -> str:
    """Return the text of a table cell."""
    if value is None:
        return ""
    return "not held" if isinf(value) else format(value, form)


def table(*rows: list[str]) -> str:
    """Return a Markdown table; the first row is its header."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])
