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

import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from pluggy import PluggyTeardownRaisedWarning

from petstore import __version__
from petstore.contract import CONTRACT
from petstore_conformance.faults.subjects import Subject
from petstore_conformance.harness import documents
from petstore_conformance.harness.alarm import signals_to_stop
from petstore_conformance.harness.cores import INCONCLUSIVE
from petstore_conformance.harness.kit import sentences
from petstore_conformance.reporter import ClauseResult, Reporter


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
        status, verdict, line = _verdict(reporter)
        print(f"\nseed {seed}: repeat this run with --seed {seed}\n{line}")
    if report is not None:
        documents.write(report, _report(reporter, seed, verdict))
    return status


def _run_tests(reporter: Reporter, seed: int) -> None:
    # A signal may interrupt a hook of Hypothesis or pytest, which they would warn of.
    warnings.simplefilter("ignore", PluggyTeardownRaisedWarning)
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
    options = ["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    options += ["--noconftest", "-c", os.devnull, "-o", "python_classes=Conformance"]
    options += ["--pyargs", "petstore_conformance.suite", f"--hypothesis-seed={seed}"]
    with TemporaryDirectory() as home, signals_to_stop() as reporter.stopping:
        set_hypothesis_home_dir(home)  # it would leave a folder in the current directory
        pytest.main(options, plugins=[reporter])


def _verdict(reporter: Reporter) -> tuple[int, str, str]:
    """Return the exit status, the verdict in the report, and the last line of the output."""
    name, expected = reporter.subject.name, len(reporter.chosen)
    failed, slow = reporter.broken(), len(reporter.named("inconclusive"))
    missing = expected - len(reporter.results)
    counts = f"{len(failed)} of {expected} clauses failed, {missing} not run"
    if reporter.interrupted:
        return 130, "interrupted", f"interrupted: {counts}"  # as after SIGINT, in a shell
    if failed or missing:
        counts += f", {slow} inconclusive" if slow else ""
        counts += f". Begin with {failed[0]}" if failed else ""
        counts += f"; also failed: {', '.join(failed[1:])}" if failed[1:] else ""
        return 1, "not compliant", f"{name} is NOT compliant: {counts}"
    if slow:
        counts = f"{slow} of {expected} clauses were inconclusive"
        why = "too few values could be tried or the machine is too busy; each line says why"
        return INCONCLUSIVE, "inconclusive", f"{name} is not judged: {counts}, because {why}"
    verdict, judged = "compliant", "is compliant"
    if expected < len(sentences()):
        verdict = judged = "passed what was chosen"
    passed, skipped = len(reporter.named("passed")), len(reporter.named("skipped"))
    counts = f"{passed} clauses passed, {skipped} skipped for capabilities that it does not claim"
    share, least = reporter.share()
    tried = f"each tried at least {share:.0%} of its values (fewest: {least})"
    return 0, verdict, f"{name} {judged}: {counts}; {tried if least else 'tried all values'}"


def _report(reporter: Reporter, seed: int, verdict: str) -> dict[str, object]:
    subject = reporter.subject
    results = [reporter.results.get(name, ClauseResult(name, "not run")) for name in sentences()]
    return {
        "backend": subject.name,
        "distribution": subject.distribution,
        "version": subject.version,
        "promises": [n for n in ("shared", "durable", "snapshots") if getattr(subject.backend, n)],
        "max_name_bytes": subject.backend.max_name_bytes,
        "service": __version__,  # that of the kit, too
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
