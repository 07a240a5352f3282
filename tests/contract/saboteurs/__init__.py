"""Repositories that are wrong on purpose; `breaks` names the clause that must catch each one."""

from tests.contract.saboteurs import orders, pets, restoring, tokens  # noqa: F401 - they register themselves
from tests.contract.saboteurs.registry import SABOTEURS

__all__ = ["SABOTEURS"]
