"""What a run has done and found: progress, then the figures, and a JSON file."""

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from petstore.conformance.faults.rounds import RoundOutcome
from petstore.conformance.faults.verdicts import KINDS, Findings

COUNTED: Final = ("rounds", "requests", "acknowledged", "unknown", "kills", "other faults")
WIDEST: Final = 300
SHOWN_TEXTS: Final = 3
"""How many violations of each kind are shown."""


class Tally:
    """The sum of all rounds, shown on a stream while they run."""

    def __init__(self, stream: TextIO, minutes: float) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys((*COUNTED, "searches given up"), 0))
        self.found: Findings = {kind: [] for kind in KINDS}
        self._stream = stream
        self._minutes = minutes
        self._begin = time.monotonic()
        self._progress()

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._begin

    @property
    def violations(self) -> int:
        """How many were found."""
        return sum(map(len, self.found.values()))

    def add(self, outcome: RoundOutcome) -> None:
        """Add a round, and show it: rewritten on a terminal, elsewhere as a line of its own."""
        self.counts.update(outcome.counts)
        wrong = 0
        for kind, texts in outcome.found.items():
            self.found[kind] += [f"round {outcome.number}: {text}" for text in texts]
            wrong += len(texts)
        self._progress()
        if not self._stream.isatty():
            verdict = f"{wrong} VIOLATIONS" if wrong else "ok"
            requests = outcome.counts["requests"]
            self._write(f"round {outcome.number}: {requests} requests, {outcome.what}: {verdict}\n")

    def end(self) -> None:
        """Clear the progress line of a terminal."""
        if self._stream.isatty():
            self._write("\r\x1b[K")

    def lines(self) -> list[str]:
        """Return the figures, and of each kind of violation how many there are and the first."""
        lines = [self._line()]
        for kind, meaning in KINDS.items():
            texts = self.found[kind]
            lines.append(f"{len(texts):>6}  {kind:<18}{meaning}".rstrip())
            shown = [line for text in texts[:SHOWN_TEXTS] for line in text.splitlines()]
            lines += [f"        {line[:WIDEST]}" for line in shown]
            if len(texts) > SHOWN_TEXTS:
                lines.append(f"        ... and {len(texts) - SHOWN_TEXTS} more")
        lines.append(f"{self.counts['searches given up']:>6}  searches given up")
        if left := self.counts["places not removed"]:
            lines.append(f"{left:>6}  places that could not be removed")
        return lines

    def write(self, file: Path, about: dict[str, Any]) -> None:
        """Write everything as JSON; `about` says what was run."""
        report = about | {
            "counts": {name.replace(" ", "_"): n for name, n in self.counts.items()},
            "violations": {kind.replace(" ", "_"): texts for kind, texts in self.found.items()},
        }
        file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")

    def _progress(self) -> None:
        if self._stream.isatty():
            columns = shutil.get_terminal_size().columns
            line = f"{self.seconds / 60:.1f} of {self._minutes:g} minutes: {self._line()}"
            self._write(f"\r\x1b[K{line}"[: columns + 3])

    def _line(self) -> str:
        figures = ", ".join(f"{self.counts[name]} {name}" for name in COUNTED)
        return f"{self.violations} violations: {figures}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
