"""Pets: bodies that create them, and functions that create them."""

from typing import Final

from tests.support.interface import PETS
from tests.support.services import Live

REX: Final[dict[str, object]] = {"name": "Rex", "categoryId": 7}
AVAILABLE_REX: Final = REX | {"status": "available"}


def add_pet(live: Live, status: str | None = "available") -> int:
    """Create a pet; return its id."""
    body = REX | ({"status": status} if status else {})
    return int(live.client.post(PETS, json=body).json()["id"])


def add_pets(live: Live, count: int) -> list[int]:
    """Create some pets without a status; return their ids."""
    return [add_pet(live, None) for _ in range(count)]
