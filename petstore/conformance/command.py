"""`petstore conformance NAME`: the kit without any knowledge of pytest, one line per clause.

pytest still runs the tests, because its reports show the values that were compared.
"""

import io
import os
import secrets
import sys
import threading
import warnings
from tempfile import TemporaryDirectory

import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from pluggy import PluggyTeardownRaisedWarning

from petstore.conformance.cores import TOO_SLOW
from petstore.conformance.reporter import Reporter
from petstore.conformance.signals import signals_to_stop


def run(name: str, reporter: Reporter, seed: int | None = None) -> int:
    """Run the kit in scratch locations of a backend, print a verdict, return an exit status.

    reporter -- knows the backend and what of the kit is to be run
    seed -- that of the clause `model`: the same one makes the same calls

    0 means compliant: no clause failed, and only clauses of capabilities that the backend does
    not claim were skipped. 1 means that it is not compliant, 75 that the machine was too busy to
    tell, 130 that the run was interrupted.

    Call it only in a process that does nothing else: it changes `os.environ` and a class.
    """
    os.environ["PETSTORE_REQUIRE_SERVICES"] = "1"  # a storage out of reach is not compliant
    for option in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # they could deselect clauses
        os.environ.pop(option, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # so could plugins that are installed
    if isinstance(sys.stdout, io.TextIOWrapper):  # a message may hold any characters
        sys.stdout.reconfigure(errors="backslashreplace")
    seed = secrets.randbelow(2**32) if seed is None else seed
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
        tests = ["--pyargs", "petstore.conformance.selected", f"--hypothesis-seed={seed}"]
        pytest.main([*options, *tests], plugins=[reporter])
    status = _verdict(name, reporter, seed)
    if any(not thread.daemon for thread in threading.enumerate()[1:]):
        sys.stdout.flush()
        os._exit(status)  # the plugin has left threads, for which Python would wait for ever
    return status


def _verdict(name: str, reporter: Reporter, seed: int) -> int:
    outcomes = list(reporter.outcomes.values())
    passed, skipped = outcomes.count("passed"), outcomes.count("skipped")
    failed, missing = outcomes.count("failed"), reporter.expected - len(outcomes)
    print(f"\nseed {seed}: repeat this run with --seed {seed}")
    if reporter.interrupted:
        print(f"interrupted: {failed} of {reporter.expected} clauses failed, {missing} not run")
        return 130
    slow = outcomes.count("too slow")
    if failed or missing or not outcomes:
        verdict = f"{failed} of {reporter.expected} clauses failed, {missing} not run"
        verdict += f", {slow} too slow to judge" if slow else ""
        if failed:
            broken = [clause for clause, word in reporter.outcomes.items() if word == "failed"]
            verdict += f". Begin with {broken[0]}"
            verdict += f"; also failed: {', '.join(broken[1:])}" if broken[1:] else ""
        print(f"{name} is NOT compliant: {verdict}")
        return 1
    if slow:
        print(
            f"{name} is not judged: {slow} of {reporter.expected} clauses were too slow to judge,"
            " because the machine is too busy. Run them again when it is less busy"
        )
        return TOO_SLOW
    counts = f"{passed} clauses passed, {skipped} skipped for capabilities that it does not claim"
    if reporter.partial:
        print(f"{name} passed what was chosen: {counts}")
        return 0
    print(f"{name} is compliant: {counts}")
    return 0
