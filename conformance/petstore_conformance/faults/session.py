"""`petstore-conformance test NAME --faults`: rounds until the time is over, and a verdict."""

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack

from petstore_conformance.faults.options import FaultOptions
from petstore_conformance.faults.proxy import proxy
from petstore_conformance.faults.report import VERDICTS, Tally
from petstore_conformance.faults.rounds import Rounds
from petstore_conformance.faults.subjects import Subject, split
from petstore_conformance.faults.verdicts import RoundOutcome


def run(subject: Subject, options: FaultOptions) -> Tally:
    """Run rounds of faults in scratch locations until time is over; print and return a verdict.

    Raises `SettingsError` for options that do not fit.
    """
    address = options.server or subject.address()
    with ExitStack() as stack:
        front = stack.enter_context(proxy(*split(address))) if address else None
        if address and front:  # whether it is there to be replaced
            subject.redirect(subject.settings, address, f"127.0.0.1:{front.port}")
        file = asyncio.run(subject.file()) if subject.backend.durable else ""
        rounds = Rounds(subject, options, front, file=file)
        print(f"{subject.name}, {options.minutes:g} minutes, seed {options.seed}:", end=" ")
        print(", ".join(rounds.possible), flush=True)
        for line in _missing(subject, options, address, file):
            print(line, flush=True)
        tally = Tally(options.minutes)
        try:
            repeat(rounds, tally)
        finally:
            if options.report is not None:
                about = {"backend": subject.name, "seed": options.seed, "faults": rounds.possible}
                tally.write(options.report, about)
            print("\n".join(tally.lines()))
            print(f"seed {options.seed}: repeat this run with --seed {options.seed}")
        print(f"{subject.name} {VERDICTS[tally.status]}", flush=True)
        return tally


def repeat(outcomes: Iterable[RoundOutcome], tally: Tally) -> None:
    """Add the outcomes of rounds, each of which runs when it is asked for, until time is over."""
    try:
        for outcome in outcomes:
            print(tally.add(outcome), flush=True)
            if tally.seconds > tally.minutes * 60:
                break
    except KeyboardInterrupt:
        print(f"interrupted in round {tally.counts['rounds'] + 1}, which is not counted")
        raise


def _missing(subject: Subject, options: FaultOptions, address: str | None, file: str) -> list[str]:
    """Return what this run cannot try, and why."""
    lines = []
    if not subject.backend.durable:
        lines.append("not durable: a kill loses its data, so a round is judged up to the kill")
    if not subject.backend.shared:
        lines.append("not shared: one process serves at a time")
    if address is None:
        lines.append("no URL with one HOST:PORT in its settings, and no --server: no proxy")
    elif not (options.server_kill or options.server_stop):
        lines.append("no --server-kill and no --server-stop: its server is not killed")
    if subject.backend.durable and not (file or options.server_restore):
        lines.append("no file in its settings, and no --server-restore: no older copy is tried")
    return lines
