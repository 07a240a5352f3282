"""The report of a run: a line for each round, then the figures, and a JSON file."""

import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from petstore_conformance.faults.verdicts import KINDS, Findings, RoundOutcome
from petstore_conformance.harness import documents
from petstore_conformance.harness.cores import INCONCLUSIVE

COUNTED: Final = ("rounds", "requests", "acknowledged", "unknown", "kills", "other faults")
WIDEST: Final = 300
"""How much of a line is shown: it may have a whole response in it."""

SHOWN_TEXTS: Final = 3
"""How many violations of each kind are shown."""

VERDICTS: Final = {
    0: "survives the faults",
    1: "does NOT survive the faults",
    INCONCLUSIVE: "was inconclusive; repeat this when the machine is less busy",
}
"""The end of the last line, by exit status."""


class Tally:
    """The sum of all rounds."""

    def __init__(self, minutes: float) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.found = Findings({kind: [] for kind in KINDS})
        self.slow: list[str] = []
        self.minutes = minutes
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._begin

    @property
    def violations(self) -> int:
        """How many were found."""
        return sum(map(len, self.found.values()))

    @property
    def status(self) -> int:
        """The exit status: 1 for violations; what was too slow may hide one, but is none."""
        if self.violations:
            return 1
        return INCONCLUSIVE if self.slow else 0

    def add(self, outcome: RoundOutcome) -> str:
        """Add a round; return the line that is shown of it."""
        self.counts["rounds"] += 1
        self.counts.update(outcome.counts)
        number, before = self.counts["rounds"], self.violations
        for kind, texts in outcome.found.items():
            self.found.add(kind, *(f"round {number}: {text}" for text in texts))
        self.slow += [f"round {number}: {text}" for text in outcome.slow]
        verdict = "inconclusive" if outcome.slow else "ok"
        if wrong := self.violations - before:
            verdict = f"{wrong} VIOLATIONS"
        requests = outcome.counts["requests"]
        return f"round {number}: {requests} requests, {outcome.what}: {verdict}"

    def lines(self) -> list[str]:
        """Return the figures, and for each kind of violation found how many, and the first."""
        figures = (f"{n} {name}" for name, n in self.counts.items() if n or name == "rounds")
        lines = [f"{self.violations} violations: {', '.join(figures)}"]
        for kind, meaning in KINDS.items():
            lines += _listed(kind, meaning, self.found[kind])
        lines += _listed("inconclusive", "neither right nor wrong", self.slow)
        return lines

    def write(self, file: Path, about: dict[str, Any]) -> None:
        """Write everything as JSON; `about` says what was run."""
        report = about | {
            "counts": {name.replace(" ", "_"): n for name, n in self.counts.items()},
            "violations": {kind.replace(" ", "_"): texts for kind, texts in self.found.items()},
            "inconclusive": self.slow,
        }
        documents.write(file, report)


def _listed(kind: str, meaning: str, texts: list[str]) -> list[str]:
    if not texts:
        return []
    lines = [f"{len(texts):>6}  {kind:<18}{meaning}"]
    shown = [line for text in texts[:SHOWN_TEXTS] for line in text.splitlines()]
    lines += [f"        {line[:WIDEST]}" for line in shown]
    more = len(texts) - SHOWN_TEXTS
    return [*lines, f"        ... and {more} more"] if more > 0 else lines
