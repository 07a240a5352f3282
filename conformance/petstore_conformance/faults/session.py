"""`petstore conformance NAME --faults`: rounds until the time is over, a verdict, a status."""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

from petstore.contract import SettingsError
from petstore_conformance.faults.options import FaultOptions
from petstore_conformance.faults.proxy import proxy
from petstore_conformance.faults.report import VERDICTS, Tally
from petstore_conformance.faults.rounds import RoundOutcome, Rounds
from petstore_conformance.faults.subjects import Subject, split
from petstore_conformance.harness import documents


class Repeated(Protocol):
    """What is repeated in rounds, such as `Rounds`.

    reachable -- whether another round makes sense
    """

    reachable: bool

    def plans(self) -> Iterator[list[str]]:
        """Yield what each round does."""

    def run(self, number: int, plan: list[str], /) -> RoundOutcome:
        """Run the faults of a plan; return what was found."""


def run(subject: Subject, options: FaultOptions) -> int:
    """Run rounds of faults in scratch locations, print a verdict, return an exit status.

    0 means that nothing was wrong, 1 that something was, 75 that the machine was too busy to tell.

    Raises the errors of `run_rounds`. Call it only in a process that does nothing else.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a message may hold any characters
        sys.stdout.reconfigure(errors="backslashreplace")
    status = run_rounds(subject, options).status
    print(f"{subject.name} {VERDICTS[status]}", flush=True)
    if any(not thread.daemon for thread in threading.enumerate()[1:]):
        os._exit(status)  # the plugin has left threads, for which Python would wait for ever
    return status


def run_rounds(subject: Subject, options: FaultOptions) -> Tally:
    """Run rounds of faults in scratch locations until the time is over; print and return figures.

    Raises `SettingsError` for options that do not fit.
    """
    address = options.server or subject.address()
    with ExitStack() as stack:
        front = stack.enter_context(proxy(*split(address))) if address else None
        if address and front:  # whether it is there to be replaced
            subject.redirect(subject.settings, address, f"127.0.0.1:{front.port}")
        rounds = Rounds(subject, options, front)
        print(f"{subject.name}, {options.minutes:g} minutes, seed {options.seed}:", end=" ")
        print(", ".join(rounds.possible), flush=True)
        for line in _missing(subject, options, address):
            print(line, flush=True)
        tally = Tally(sys.stdout, options.minutes)
        try:
            repeat(rounds, tally)
        finally:
            if options.report is not None:
                about = {"backend": subject.name, "seed": options.seed, "faults": rounds.possible}
                tally.write(options.report, about)
            tally.end()
            print("\n".join(tally.lines()))
            print(f"seed {options.seed}: repeat this run with --seed {options.seed}")
        return tally


def repeat(rounds: Repeated, tally: Tally) -> None:
    """Run rounds until the time of the tally is over."""
    number = 0
    try:
        for plan in rounds.plans():
            number += 1
            tally.add(rounds.run(number, plan))
            if tally.seconds > tally.minutes * 60 or not rounds.reachable:
                break
    except KeyboardInterrupt:
        tally.end()
        print(f"interrupted in round {number}, which is not counted")
        raise


def _missing(subject: Subject, options: FaultOptions, address: str | None) -> list[str]:
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
    return lines


def check(options: FaultOptions) -> None:
    """Raise `SettingsError` if options contradict each other."""
    if not 0 < options.minutes < 10**6:
        raise SettingsError("--minutes must be above 0 and below 1000000")
    if not 0 < options.timeout_seconds <= 3600:
        raise SettingsError("--timeout-seconds must be above 0 and at most 3600")
    ends = options.server_stop or options.server_kill
    if bool(ends) != bool(options.server_start):
        raise SettingsError("--server-start needs --server-kill or --server-stop, and they need it")
    if options.server is not None:
        split(options.server)
    if options.report is not None:
        documents.check(options.report)
