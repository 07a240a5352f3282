"""Repositories that are wrong on purpose; `breaks` names the clause that must catch each one."""

from conformance.tests.saboteurs import (  # noqa: F401 - they register themselves
    calls,
    cancellation,
    costs,
    locations,
    orders,
    pets,
    processes,
    records,
    reopening,
    restoring,
    sharing,
    stores,
    tokens,
    values,
)
from conformance.tests.saboteurs.registry import SABOTEURS

__all__ = ["SABOTEURS"]
