"""`petstore conformance NAME`: the kit without any knowledge of pytest, one line per clause.

pytest still runs the tests, because its reports show the values that were compared.
"""

import os
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from msgspec import Struct

from petstore.conformance import selected
from petstore.conformance.kit import clauses, sentences
from petstore.contract import Backend

_WORDS: Final = {"passed": "ok", "failed": "FAILED", "skipped": "-"}
_TESTS: Final = clauses(selected.TestSelected)


class _Reporter:
    """A pytest plugin that prints a line for each clause and keeps its outcome.

    outcomes -- name of the clause -> "passed", "failed" or "skipped"
    """

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self._clauses = {test: clause for clause, test in _TESTS.items()}
        self._sentences = sentences()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the line of a clause whose test has run."""
        if report.when != "call" and report.passed:
            return
        clause = self._clauses[report.location[2].rpartition(".")[2]]
        self.outcomes[clause] = report.outcome
        print(f"{_WORDS[report.outcome]:<8}{clause:<20}{self._sentences[clause]}", flush=True)
        if report.failed:
            test = getattr(selected.TestSelected, _TESTS[clause])
            print(f"        Probably: {test.__doc__}\n\n{report.longreprtext}\n", flush=True)


def run(name: str, backend: Backend, settings: Struct) -> int:
    """Run the kit in scratch places of a backend, print a verdict, return an exit status.

    0 means compliant: no clause failed, and only clauses of capabilities that the backend does
    not claim were skipped. 1 means that it is not compliant.

    Call it only in a process that does nothing else: it changes `os.environ` and a class.
    """
    selected.TestSelected.backend = backend
    selected.TestSelected.settings = settings
    os.environ["PETSTORE_REQUIRE_SERVICES"] = "1"  # a storage out of reach is not compliant
    for option in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # they could deselect clauses
        os.environ.pop(option, None)
    reporter = _Reporter()
    options = ["-p", "no:terminal", "-p", "no:cacheprovider", "-c", os.devnull]
    with TemporaryDirectory() as home:  # Hypothesis would leave a folder in the current directory
        set_hypothesis_home_dir(home)
        pytest.main([*options, "--pyargs", "petstore.conformance.selected"], plugins=[reporter])
    outcomes = list(reporter.outcomes.values())
    passed, skipped = outcomes.count("passed"), outcomes.count("skipped")
    if passed + skipped == len(_TESTS) and passed:
        print(
            f"\n{name} is compliant: {passed} clauses passed,"
            f" {skipped} skipped for capabilities that it does not claim"
        )
        return 0
    failed, missing = outcomes.count("failed"), len(_TESTS) - len(outcomes)
    print(f"\n{name} is NOT compliant: {failed} of {len(_TESTS)} clauses failed, {missing} not run")
    return 1
