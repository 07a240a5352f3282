"""Repositories that are wrong on purpose; `breaks` names the clause that must catch each."""

from tests.saboteurs import animals, orders, restoring, retries
from tests.saboteurs.registry import SABOTEURS

__all__ = ["SABOTEURS", "animals", "orders", "restoring", "retries"]
