"""The conformance kit: tests that a backend keeps the storage contract, clause by clause.

The tests of a backend need one class::

    from petstore_conformance import Conformance

    class TestAcme(Conformance):
        backend = petstore_acme.backend
        settings = petstore_acme.AcmeSettings(...)

pytest finds the clauses in it. A clause is skipped if it needs a capability that the backend does
not claim. If the storage cannot be reached, all clauses are skipped; with
``PETSTORE_REQUIRE_SERVICES=1`` they fail. ``petstore-conformance test NAME`` runs the same tests
for those who do not use pytest; with ``--faults`` it injects faults.
"""

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from petstore_conformance.harness.kit import Kit, RaisedOnPurposeError
    from petstore_conformance.suite import Conformance, RemoteConformance

__all__ = ["Conformance", "Kit", "RaisedOnPurposeError", "RemoteConformance"]

# The packages with assertions, which pytest rewrites so that they show what they compared.
REWRITTEN: Final = ("petstore_conformance.clauses", "petstore_conformance.model")
if "pytest" in sys.modules:  # otherwise there is nothing to rewrite, and it is imported sooner
    sys.modules["pytest"].register_assert_rewrite(*REWRITTEN)


def __getattr__(name: str) -> Any:
    """Import a class when it is first used: pytest rewrites no module that it finds imported."""
    if name not in __all__:
        raise AttributeError(name)
    from petstore_conformance import suite  # noqa: PLC0415 - see above
    from petstore_conformance.harness import kit  # noqa: PLC0415 - see above

    return getattr(kit if hasattr(kit, name) else suite, name)
