"""`petstore-conformance test NAME --faults`: rounds until the time is over, and a verdict."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Final

from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.rounds import Rounds
from petstore_conformance.faults.subjects import FaultOptions, Subject, split
from petstore_conformance.faults.verdicts import KINDS, Findings, RoundOutcome
from petstore_conformance.harness import documents
from petstore_conformance.harness.cores import INCONCLUSIVE

COUNTED: Final = ("rounds", "requests", "acknowledged", "unknown", "kills", "other faults")
VERDICTS: Final = {  # the end of the last line, by exit status
    0: "survives the faults",
    1: "does NOT survive the faults",
    INCONCLUSIVE: "was inconclusive; repeat this when the machine is less busy",
}


class Tally:
    """The sum of all rounds."""

    def __init__(self, minutes: float) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.found = Findings({kind: [] for kind in KINDS})
        self.slow: list[str] = []
        self.end = time.monotonic() + minutes * 60  # when no round begins any more

    @property
    def violations(self) -> int:
        """How many were found."""
        return sum(map(len, self.found.values()))

    @property
    def status(self) -> int:
        """The exit status: 1 for violations; what was too slow may hide one, but is none."""
        return 1 if self.violations else INCONCLUSIVE if self.slow else 0

    def add(self, outcome: RoundOutcome) -> str:
        """Add a round; return the line that is shown of it."""
        self.counts["rounds"] += 1
        self.counts.update(outcome.counts)
        number, before = self.counts["rounds"], self.violations
        for kind, texts in outcome.found.items():
            self.found.add(kind, *(f"round {number}: {text}" for text in texts))
        self.slow += [f"round {number}: {text}" for text in outcome.slow]
        wrong, requests = self.violations - before, outcome.counts["requests"]
        verdict = f"{wrong} VIOLATIONS" if wrong else "inconclusive" if outcome.slow else "ok"
        return f"round {number}: {requests} requests, {outcome.what}: {verdict}"

    def lines(self) -> list[str]:
        """Return the figures, and for each kind of violation found how many, and the first."""
        figures = (f"{n} {name}" for name, n in self.counts.items() if n or name == "rounds")
        lines = [f"{self.violations} violations: {', '.join(figures)}"]
        for kind, meaning in KINDS.items():
            lines += _listed(kind, meaning, self.found[kind])
        lines += _listed("inconclusive", "neither right nor wrong", self.slow)
        return lines

    def report(self) -> dict[str, object]:
        """Return everything as it is in the JSON report."""
        return {
            "counts": {name.replace(" ", "_"): n for name, n in self.counts.items()},
            "violations": {kind.replace(" ", "_"): texts for kind, texts in self.found.items()},
            "inconclusive": self.slow,
        }


def run(subject: Subject, options: FaultOptions) -> Tally:
    """Run rounds of faults in scratch locations until time is over; print and return a verdict.

    Raises `SettingsError` for options that do not fit.
    """
    address = options.server or subject.address()
    with Proxy(*split(address)) if address else nullcontext() as front:
        if address and front:  # whether it is there to be replaced
            subject.redirect(subject.settings, address, f"127.0.0.1:{front.port}")
        rounds = Rounds(subject, options, front)
        print(f"{subject.name}, {options.minutes:g} minutes, seed {options.seed}:", end=" ")
        print(", ".join(rounds.possible), flush=True)
        for line in _missing(subject, options, address):
            print(line, flush=True)
        tally = Tally(options.minutes)
        try:
            repeat(rounds, tally)
        finally:
            if options.report is not None:
                about = {"backend": subject.name, "seed": options.seed, "faults": rounds.possible}
                documents.write(options.report, about | tally.report())
            print("\n".join(tally.lines()))
            print(f"seed {options.seed}: repeat this run with --seed {options.seed}")
        print(f"{subject.name} {VERDICTS[tally.status]}", flush=True)
        return tally


def repeat(outcomes: Iterable[RoundOutcome], tally: Tally) -> None:
    """Add the outcomes of rounds, each of which runs when it is asked for, until time is over."""
    try:
        for outcome in outcomes:
            print(tally.add(outcome), flush=True)
            if time.monotonic() > tally.end:
                break
    except KeyboardInterrupt:
        print(f"interrupted in round {tally.counts['rounds'] + 1}, which is not counted")
        raise


def _missing(subject: Subject, options: FaultOptions, address: str | None) -> Iterator[str]:
    """Yield what this run cannot try, and why."""
    if not subject.backend.durable:
        yield "not durable: a kill loses its data, so a round is judged up to the kill"
    if not subject.backend.shared:
        yield "not shared: one process serves at a time"
    if address is None:
        yield "no URL with one HOST:PORT in its settings, and no --server: no proxy"
    elif not (options.server_kill or options.server_stop):
        yield "no --server-kill and no --server-stop: its server is not killed"
    if subject.backend.durable and not (subject.file or options.server_restore):
        yield "no file in its settings, and no --server-restore: no older copy is tried"


def _listed(kind: str, meaning: str, texts: list[str]) -> Iterator[str]:
    """Yield how many violations there are, if any, and the first three of them."""
    if texts:
        yield f"{len(texts):>6}  {kind:<18}{meaning}"
    for line in "\n".join(texts[:3]).splitlines():
        yield f"        {line[:300]}"  # it may have a whole response in it
    if len(texts) > 3:
        yield f"        ... and {len(texts) - 3} more"
