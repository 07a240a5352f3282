"""What a torture did, how often, and what it found."""

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import msgspec

from backends.postgres.tests.binaries import NEW, environment
from backends.redis.tests.servers import VALKEY
from petstore import __version__

SHOWN = 20
"""How many different violations of a set-up the report shows; the count is of all."""


class Result(msgspec.Struct):
    """What was done in one set-up, how often, and what was violated."""

    what: str
    counts: dict[str, int]
    violations: list[str]
    seed: int

    def add(self, other: "Result") -> None:
        """Add what was done since in the same set-up."""
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.violations += other.violations

    def __str__(self) -> str:
        """Return it in one line."""
        done = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count)
        return f"{self.what}: {done or 'nothing'}; {len(self.violations)} violations"


def left_out(what: str, reason: str, seed: int) -> Result:
    """Return the result of a set-up that cannot run here.

    With PETSTORE_REQUIRE_SERVICES=1 that is a violation: nothing passes by not running.
    """
    required = os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1"
    return Result(f"{what}: left out, {reason}", {}, [reason] if required else [], seed)


def combined(results: Iterable[Result]) -> list[Result]:
    """Return one result for each set-up, in the order in which they came first."""
    found: dict[str, Result] = {}
    for result in results:
        if result.what in found:
            found[result.what].add(result)
        else:
            found[result.what] = msgspec.structs.replace(
                result, counts=dict(result.counts), violations=result.violations[:]
            )
    return list(found.values())


def markdown(results: list[Result], minutes: float, seed: int) -> str:
    """Return the report, to be pasted into docs/torture.md as it is."""
    failed = sum(len(result.violations) for result in results)
    lines = [
        f"{minutes:.0f} minutes, seed {seed}, {failed} violations. {versions()}",
        "",
        "| what | done | violations |",
        "|---|---|---|",
    ]
    for result in results:
        done = ", ".join(f"{count:,} {name}" for name, count in result.counts.items() if count)
        lines.append(f"| {result.what} | {done} | {len(result.violations)} |")
    for result in results:
        for text, times in Counter(result.violations).most_common(SHOWN):
            often = f" ({times} times)" if times > 1 else ""
            lines += ["", f"- {result.what}, seed {result.seed}: {text}{often}"]
    return "\n".join([*lines, ""])


def versions() -> str:
    """Return the versions of what was tried, in a sentence."""
    valkey = next(word[2:] for word in _told(VALKEY) if word.startswith("v="))
    parts = (
        f"petstore {__version__}",
        f"Python {platform.python_version()}",
        f"uvicorn {version('uvicorn')}",
        f"SQLite {version('apsw')}",
        f"Valkey {valkey}",
        f"PostgreSQL {_told(NEW / 'postgres')[-1]}",
        f"Linux {platform.release()}",
    )
    return ", ".join(parts) + "."


def _told(program: Path) -> list[str]:
    """Return the words that a program says of its version."""
    libraries = environment(program.parent)
    command = [str(program), "--version"]
    return subprocess.check_output(command, text=True, env=libraries).split()
