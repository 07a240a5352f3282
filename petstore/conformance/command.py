"""`petstore conformance NAME`: the kit without knowledge of pytest, a line for each clause.

pytest runs it all the same, for its reports: a failure shows the values that were compared.
"""

import os
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from msgspec import Struct

from petstore.conformance import configured
from petstore.conformance.kit import clauses, sentences
from petstore.contract import Backend

_WORDS: Final = {"passed": "ok", "failed": "FAILED", "skipped": "-"}
_KIT: Final = clauses(configured.TestConfigured)


class _Lines:
    """A pytest plugin that prints a line for each clause and counts how they went."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self._clauses = {test: clause for clause, test in _KIT.items()}
        self._sentences = sentences()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the line of a clause that has been run."""
        if report.when != "call" and report.passed:
            return
        clause = self._clauses[report.location[2].rpartition(".")[2]]
        self.outcomes[clause] = report.outcome
        print(f"{_WORDS[report.outcome]:<8}{clause:<20}{self._sentences[clause]}", flush=True)
        if report.failed:
            test = getattr(configured.TestConfigured, _KIT[clause])
            print(f"        Probably: {test.__doc__}\n\n{report.longreprtext}\n", flush=True)


def run(name: str, backend: Backend, settings: Struct) -> int:
    """Run the kit in empty places of a backend, print a verdict, return an exit status.

    0 means compliant: no clause failed, and none was left out but those of a capability that the
    backend does not claim. 1 means that it is not.

    It is for a process that does nothing else: it changes `os.environ` and the one test class.
    """
    configured.TestConfigured.backend = backend
    configured.TestConfigured.settings = settings
    os.environ["PETSTORE_REQUIRE_SERVICES"] = "1"  # what cannot be reached is not compliant
    for option in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # they could leave clauses out
        os.environ.pop(option, None)
    lines = _Lines()
    options = ["-p", "no:terminal", "-p", "no:cacheprovider", "-c", os.devnull]
    with TemporaryDirectory() as home:  # Hypothesis would leave a folder where it is started
        set_hypothesis_home_dir(home)
        pytest.main([*options, "--pyargs", "petstore.conformance.configured"], plugins=[lines])
    outcomes = list(lines.outcomes.values())
    kept, unclaimed = outcomes.count("passed"), outcomes.count("skipped")
    if kept + unclaimed == len(_KIT) and kept:
        print(
            f"\n{name} is compliant: {kept} clauses kept, {unclaimed} of capabilities not claimed"
        )
        return 0
    broken, missing = outcomes.count("failed"), len(_KIT) - len(outcomes)
    print(
        f"\n{name} is NOT compliant: {broken} of {len(_KIT)} clauses are broken, {missing} not run"
    )
    return 1
