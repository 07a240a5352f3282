"""Repositories that are wrong on purpose; `breaks` names the clause that must catch each."""

from tests.saboteurs import animals, orders, retries
from tests.saboteurs.registry import SABOTEURS

__all__ = ["SABOTEURS", "animals", "orders", "retries"]
