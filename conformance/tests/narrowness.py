"""Measures how often a report begins with the clause that is broken: with all saboteurs.

python -m conformance.tests.narrowness [NAME ...] takes some CPU minutes; NAME is a saboteur. It is
no test, because each saboteur runs nearly all clauses. It prints each saboteur whose report begins
with another clause, and the share of those that begin with the right one. Run it after a change of
`petstore_conformance/harness/breadth.py`: the share must not fall.
"""

import sys
from asyncio import CancelledError

import pytest
from petstore_conformance import Conformance
from petstore_conformance.clauses import cancellation
from petstore_conformance.clauses.costs import CostClauses
from petstore_conformance.clauses.processes import ProcessClauses
from petstore_conformance.harness import cores, kit
from petstore_conformance.harness.breadth import begin_with, is_late
from petstore_conformance.model import calls

from conformance.tests import kits
from conformance.tests.correct import STORES, LocationSettings
from conformance.tests.saboteurs import SABOTEURS
from petstore.contract import Backend

LEFT_OUT = {"token-deleted", *kit.clauses(CostClauses), *kit.clauses(ProcessClauses), "model"}
"""Clauses that are slow, or not kept by any saboteur: they run only if they are what is broken."""


def failures(backend: Backend, broken: str) -> list[str]:
    """Return the clauses that fail, in the order in which a report names them."""
    tested, failed, late = kits.kit(backend, LocationSettings(), 10), list[str](), set[str]()
    for clause, test in kit.clauses(Conformance).items():
        if clause in LEFT_OUT and clause != broken:
            continue
        try:
            getattr(tested, test)()
        except pytest.skip.Exception:
            continue
        except (Exception, CancelledError, pytest.fail.Exception) as error:  # noqa: BLE001 - any
            failed.append(clause)
            if is_late(clause, error):
                late.add(clause)
    return begin_with(failed, late)


def main(names: list[str]) -> None:
    """Print what a report of each of these saboteurs begins with, unless it is what it breaks."""
    cores.read = dict  # judge on a busy machine, too
    for module in (calls, cancellation):
        vars(module)["CANCEL_SECONDS"] = 0.5
    vars(cancellation)["LATER_SECONDS"] = 2
    kit.CLAUSE_SECONDS, kit.LIMIT_SECONDS = 10, 12  # type: ignore[misc] # they are Final
    right = 0
    for name in names:
        broken, backend = SABOTEURS[name]
        STORES.clear()  # what others have left
        found = failures(backend, broken)
        right += found[:1] == [broken]
        if found[:1] != [broken]:
            sys.stdout.write(f"{name} breaks {broken}: {', '.join(found)}\n")
    sys.stdout.write(f"{right} of {len(names)} begin with the clause that is broken\n")


if __name__ == "__main__":
    main(sys.argv[1:] or list(SABOTEURS))
