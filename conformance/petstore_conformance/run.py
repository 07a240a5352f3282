"""`petstore-conformance test NAME`: runs the kit, and prints a line per clause.

Nobody needs to know pytest for it. pytest runs the tests, because it shows what was compared.
"""

import os
import platform
import secrets
import sys
import warnings
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from msgspec import Struct
from pluggy import PluggyTeardownRaisedWarning

from petstore import __version__
from petstore.contract import CONTRACT, Backend
from petstore_conformance.harness import documents
from petstore_conformance.harness.cores import INCONCLUSIVE
from petstore_conformance.harness.signals import signals_to_stop
from petstore_conformance.reporter import ClauseResult, Reporter

PROMISES: Final = ("shared", "durable", "snapshots")
"""The fields of `Backend` that promise something."""


class Chosen(NamedTuple):
    """An installed backend, its settings from environment and file, and its origin.

    distribution, version -- of the installed distribution that provides it
    """

    name: str
    backend: Backend
    settings: Any
    distribution: str
    version: str


class Report(Struct, frozen=True):
    """The report in JSON.

    backend -- its name
    distribution, version -- of the distribution that provides it
    promises -- those of "shared", "durable" and "snapshots" that the backend makes
    max_name_bytes -- the longest name that it stores, if it has a limit
    service -- the version of the service, which is that of the kit
    contract -- the version of the contract
    python, platform -- where it ran
    date -- when the run ended
    seconds -- how long all its tests took together
    seed -- the run can be repeated with it
    quick -- whether fewer values were tried
    share -- the smallest share of its values that any clause has tried, of those that neither
        failed nor were skipped; from 0 to 1
    begin_with -- the clause that names most narrowly what is wrong, if one failed
    verdict -- "compliant", "not compliant", "passed what was chosen", "inconclusive" or
        "interrupted"
    """

    backend: str
    distribution: str
    version: str
    promises: list[str]
    max_name_bytes: int | None
    service: str
    contract: int
    python: str
    platform: str
    date: datetime
    seconds: float
    seed: int
    quick: bool
    share: float
    begin_with: str | None
    verdict: str
    clauses: list[ClauseResult]


def run(
    chosen: Chosen, reporter: Reporter, seed: int | None = None, report: str | None = None
) -> int:
    """Run the kit in scratch locations of a backend, print a verdict, return an exit status.

    reporter -- knows what of the kit is to be run
    seed -- the same one makes the same calls in the clause `model`, and chooses the same values
        where there is not time for all of them
    report -- the file of the JSON report, or "-" for standard output; all else is then printed to
        standard error

    0 means compliant: no clause failed, and only clauses of capabilities that the backend does
    not claim were skipped. 1 means that it is not compliant, 75 that too few values could be tried
    or the machine was too busy to tell, 130 that the run was interrupted.

    Raises `SettingsError` if the report cannot be written. Call it only in a process that does
    nothing else: it changes `os.environ` and a class.
    """
    os.environ["PETSTORE_REQUIRE_SERVICES"] = "1"  # a storage out of reach is not compliant
    for option in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # they could deselect clauses
        os.environ.pop(option, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # so could plugins that are installed
    seed = secrets.randbelow(2**32) if seed is None else seed
    if report not in (None, "-"):
        documents.check(Path(report))
    with redirect_stdout(sys.stderr if report == "-" else sys.stdout):
        status = _run(chosen.name, reporter, seed)
    if report is not None:
        documents.write(report, _report(chosen, reporter, seed, status))
    return status


def _run(name: str, reporter: Reporter, seed: int) -> int:
    # A signal may interrupt a hook of Hypothesis or pytest, which they would warn of.
    warnings.simplefilter("ignore", PluggyTeardownRaisedWarning)
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
    plugins = ["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    options = [*plugins, "--noconftest", "-c", os.devnull]
    with (
        TemporaryDirectory() as home,  # Hypothesis would leave a folder in the current directory
        signals_to_stop() as reporter.stopping,
    ):
        set_hypothesis_home_dir(home)
        tests = ["--pyargs", "petstore_conformance.selected", f"--hypothesis-seed={seed}"]
        pytest.main([*options, *tests], plugins=[reporter])
    return _verdict(name, reporter, seed)


def _report(chosen: Chosen, reporter: Reporter, seed: int, status: int) -> Report:
    verdict = {
        0: "passed what was chosen" if reporter.partial else "compliant",
        1: "not compliant",
        INCONCLUSIVE: "inconclusive",
        130: "interrupted",
    }[status]
    backend, results = chosen.backend, list(reporter.results.values())
    return Report(
        backend=chosen.name,
        distribution=chosen.distribution,
        version=chosen.version,
        promises=[name for name in PROMISES if getattr(backend, name)],
        max_name_bytes=backend.max_name_bytes,
        service=__version__,
        contract=CONTRACT,
        python=platform.python_version(),
        platform=platform.platform(),
        date=datetime.now(UTC).replace(microsecond=0),
        seconds=round(sum(result.seconds or 0 for result in results), 3),
        seed=seed,
        quick=reporter.quick,
        share=reporter.share()[0],
        begin_with=next(iter(reporter.broken()), None),
        verdict=verdict,
        clauses=results,
    )


def _verdict(name: str, reporter: Reporter, seed: int) -> int:
    outcomes = [result.outcome for result in reporter.results.values()]
    passed, skipped = outcomes.count("passed"), outcomes.count("skipped")
    failed, ran = outcomes.count("failed"), len(outcomes) - outcomes.count("not run")
    missing = reporter.expected - ran
    print(f"\nseed {seed}: repeat this run with --seed {seed}")
    if reporter.interrupted:
        print(f"interrupted: {failed} of {reporter.expected} clauses failed, {missing} not run")
        return 130
    slow = outcomes.count("inconclusive")
    if failed or missing or not ran:
        verdict = f"{failed} of {reporter.expected} clauses failed, {missing} not run"
        verdict += f", {slow} inconclusive" if slow else ""
        if failed:
            broken = reporter.broken()
            verdict += f". Begin with {broken[0]}"
            verdict += f"; also failed: {', '.join(broken[1:])}" if broken[1:] else ""
        print(f"{name} is NOT compliant: {verdict}")
        return 1
    if slow:
        print(
            f"{name} is not judged: {slow} of {reporter.expected} clauses were inconclusive,"
            " because too few values could be tried or the machine is too busy; each line says why"
        )
        return INCONCLUSIVE
    counts = f"{passed} clauses passed, {skipped} skipped for capabilities that it does not claim"
    share, least = reporter.share()
    tried = f"each tried at least {share:.0%} of its values (fewest: {least})"
    counts += f"; {tried}" if least else "; tried all values"
    warned = reporter.named("warned")
    counts += f"; will fail from a later release: {', '.join(warned)}" if warned else ""
    if reporter.partial:
        print(f"{name} passed what was chosen: {counts}")
        return 0
    print(f"{name} is compliant: {counts}")
    return 0
