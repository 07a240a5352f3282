"""Repositories that are wrong on purpose; `breaks` names the clause that must catch each one."""

from tests.contract.saboteurs import (  # noqa: F401 - they register themselves
    calls,
    cancellation,
    costs,
    orders,
    pets,
    places,
    processes,
    reopening,
    restoring,
    sharing,
    tokens,
    values,
)
from tests.contract.saboteurs.registry import SABOTEURS

__all__ = ["SABOTEURS"]
