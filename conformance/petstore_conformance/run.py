"""`petstore-conformance test NAME`: runs the kit, and prints a line per clause.

Nobody needs to know pytest for it. pytest runs the tests, because it shows what was compared.
"""

import os
import platform
import sys
import warnings
from collections.abc import Collection
from contextlib import redirect_stdout
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from pluggy import PluggyTeardownRaisedWarning

from petstore import __version__
from petstore.contract import CONTRACT
from petstore_conformance.faults.subjects import Subject
from petstore_conformance.harness import documents
from petstore_conformance.harness.cores import INCONCLUSIVE
from petstore_conformance.harness.kit import sentences
from petstore_conformance.harness.signals import signals_to_stop
from petstore_conformance.reporter import ClauseResult, Reporter

_INTERRUPTED: Final = 130
"""The exit status of a process that SIGINT has ended, in a shell."""


def run(subject: Subject, chosen: Collection[str], seed: int, report: str | None) -> int:
    """Run the kit in scratch locations of a backend, print a verdict, return an exit status.

    chosen -- the names of the clauses to run; all if there are none
    seed -- the same one makes the same calls in the clause `model`, and chooses the same values
        where there is not time for all of them
    report -- the file of the JSON report, or "-" for standard output; all else is then printed to
        standard error

    0 means compliant: no clause failed, and only clauses of capabilities that the backend does
    not claim were skipped. 1 means that it is not compliant, 75 that too few values could be tried
    or the machine was too busy to tell, 130 that the run was interrupted.

    Call it only in a process that does nothing else: it changes `os.environ` and a class.
    """
    os.environ["PETSTORE_REQUIRE_SERVICES"] = "1"  # a storage out of reach is not compliant
    for option in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # they could deselect clauses
        os.environ.pop(option, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # so could plugins that are installed
    reporter = Reporter(subject, chosen)
    with redirect_stdout(sys.stderr if report == "-" else sys.stdout):
        _run_tests(reporter, seed)
        status = _status(reporter)
        print(f"\nseed {seed}: repeat this run with --seed {seed}")
        print(_verdict(reporter, status))
    if report is not None:
        documents.write(report, _report(reporter, seed, status))
    return status


def _run_tests(reporter: Reporter, seed: int) -> None:
    # A signal may interrupt a hook of Hypothesis or pytest, which they would warn of.
    warnings.simplefilter("ignore", PluggyTeardownRaisedWarning)
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
    plugins = ["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    options = [*plugins, "--noconftest", "-c", os.devnull, "-o", "python_classes=Conformance"]
    with TemporaryDirectory() as home, signals_to_stop() as reporter.stopping:
        set_hypothesis_home_dir(home)  # it would leave a folder in the current directory
        tests = ["--pyargs", "petstore_conformance.suite", f"--hypothesis-seed={seed}"]
        pytest.main([*options, *tests], plugins=[reporter])


def _status(reporter: Reporter) -> int:
    if reporter.interrupted:
        return _INTERRUPTED
    if reporter.named("failed") or reporter.missing:
        return 1
    return INCONCLUSIVE if reporter.named("inconclusive") else 0


def _verdict(reporter: Reporter, status: int) -> str:
    """Return the last line of the output."""
    name = reporter.subject.name
    failed, slow = reporter.broken(), len(reporter.named("inconclusive"))
    expected = len(reporter.chosen)
    counts = f"{len(failed)} of {expected} clauses failed, {reporter.missing} not run"
    if status == _INTERRUPTED:
        return f"interrupted: {counts}"
    if status == INCONCLUSIVE:
        return (
            f"{name} is not judged: {slow} of {expected} clauses were inconclusive,"
            " because too few values could be tried or the machine is too busy; each line says why"
        )
    if status:
        counts += f", {slow} inconclusive" if slow else ""
        counts += f". Begin with {failed[0]}" if failed else ""
        counts += f"; also failed: {', '.join(failed[1:])}" if failed[1:] else ""
        return f"{name} is NOT compliant: {counts}"
    passed, skipped = len(reporter.named("passed")), len(reporter.named("skipped"))
    counts = f"{passed} clauses passed, {skipped} skipped for capabilities that it does not claim"
    share, least = reporter.share()
    tried = f"each tried at least {share:.0%} of its values (fewest: {least})"
    counts += f"; {tried}" if least else "; tried all values"
    return f"{name} {'passed what was chosen' if reporter.partial else 'is compliant'}: {counts}"


def _report(reporter: Reporter, seed: int, status: int) -> dict[str, object]:
    """Return the report in JSON."""
    subject = reporter.subject
    verdict = {
        0: "passed what was chosen" if reporter.partial else "compliant",
        1: "not compliant",
        INCONCLUSIVE: "inconclusive",
        _INTERRUPTED: "interrupted",
    }[status]
    results = [reporter.results.get(name, ClauseResult(name, "not run")) for name in sentences()]
    return {
        "backend": subject.name,
        "distribution": subject.distribution,
        "version": subject.version,
        "promises": [n for n in ("shared", "durable", "snapshots") if getattr(subject.backend, n)],
        "max_name_bytes": subject.backend.max_name_bytes,
        # That of the service is that of the kit, too.
        "service": __version__,
        "contract": CONTRACT,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "date": datetime.now(UTC).replace(microsecond=0),
        "seconds": round(sum(result.seconds or 0 for result in results), 3),
        "seed": seed,
        "share": reporter.share()[0],
        "begin_with": next(iter(reporter.broken()), None),
        "verdict": verdict,
        "clauses": results,
    }
