"""The conformance kit: tests that a backend keeps the storage contract, clause by clause.

The tests of a backend need one class::

    from petstore.conformance import Conformance

    class TestAcme(Conformance):
        backend = petstore_acme.backend
        settings = petstore_acme.AcmeSettings(...)

pytest finds the clauses in it. A clause that needs a capability which the backend does not claim
is skipped. If the storage cannot be reached, all clauses are skipped; with
``PETSTORE_REQUIRE_SERVICES=1`` they fail. ``petstore conformance NAME`` runs the same tests
without any knowledge of pytest.
"""

import pytest

_MODULES = ("pets", "pages", "concurrency", "orders", "tokens", "lifecycle", "restore", "machine")
pytest.register_assert_rewrite(*(f"petstore.conformance.{name}" for name in _MODULES))

from petstore.conformance.concurrency import ConcurrencyClauses  # noqa: E402 - after the registration
from petstore.conformance.kit import Kit  # noqa: E402 - as above
from petstore.conformance.lifecycle import LifecycleClauses  # noqa: E402 - as above
from petstore.conformance.machine import ModelClause  # noqa: E402 - as above
from petstore.conformance.orders import OrderClauses  # noqa: E402 - as above
from petstore.conformance.pages import PageClauses  # noqa: E402 - as above
from petstore.conformance.pets import PetClauses  # noqa: E402 - as above
from petstore.conformance.restore import RestoreClauses  # noqa: E402 - as above
from petstore.conformance.tokens import ExpiryClauses, TokenClauses  # noqa: E402 - as above

__all__ = ["Conformance", "Kit", "RemoteConformance"]


class RemoteConformance(
    PetClauses, PageClauses, ConcurrencyClauses, OrderClauses, TokenClauses, ModelClause
):
    """The clauses that a repository in another process can be tested for, such as over HTTP.

    Those of opening, closing, restoring and expiry are left out.
    """


class Conformance(RemoteConformance, ExpiryClauses, LifecycleClauses, RestoreClauses):
    """All clauses."""

    machine_advances_time = True
    machine_restores = True
