"""The conformance kit: proves that a backend keeps the storage contract, clause by clause.

A backend's tests need one class::

    from petstore.conformance import Conformance

    class TestAcme(Conformance):
        backend = petstore_acme.backend
        settings = petstore_acme.AcmeSettings(...)

pytest finds the clauses in it. A clause that needs a capability which the backend does not claim
is skipped. Where the storage cannot be reached, all are skipped, or fail if
``PETSTORE_REQUIRE_SERVICES=1`` is set. Without knowledge of pytest: ``petstore conformance NAME``.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"petstore.conformance.{name}"
        for name in (
            "pets",
            "pages",
            "calls",
            "orders",
            "retries",
            "places",
            "restoring",
            "machine",
        )
    )
)

from petstore.conformance.calls import CallClauses  # noqa: E402 - after the registration
from petstore.conformance.kit import Kit  # noqa: E402 - as above
from petstore.conformance.machine import ModelClause  # noqa: E402 - as above
from petstore.conformance.orders import OrderClauses  # noqa: E402 - as above
from petstore.conformance.pages import PageClauses  # noqa: E402 - as above
from petstore.conformance.pets import PetClauses  # noqa: E402 - as above
from petstore.conformance.places import PlaceClauses  # noqa: E402 - as above
from petstore.conformance.restoring import RestoreClauses  # noqa: E402 - as above
from petstore.conformance.retries import ClockClauses, RetryClauses  # noqa: E402 - as above

__all__ = ["Conformance", "Kit", "RemoteConformance"]


class RemoteConformance(
    PetClauses, PageClauses, CallClauses, OrderClauses, RetryClauses, ModelClause
):
    """All clauses but those of opening, closing, restoring and time: for one that is elsewhere."""


class Conformance(RemoteConformance, ClockClauses, PlaceClauses, RestoreClauses):
    """All clauses."""

    machine_moves_time = True
    machine_restores = True
