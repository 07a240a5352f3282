"""Pets: bodies that create them, and functions that create and read them."""

from typing import Final

from hypothesis import strategies as st

from tests.support.interface import PETS
from tests.support.services import Live

STATUSES: Final = ("available", "pending", "sold")
REX: Final[dict[str, object]] = {"name": "Rex", "categoryId": 7}
AVAILABLE_REX: Final = REX | {"status": "available"}

NEW_PETS: Final = st.fixed_dictionaries(
    {"name": st.text(max_size=8), "categoryId": st.integers(-(2**63), 2**63 - 1)},
    optional={"status": st.sampled_from(STATUSES)},
)


def add_pet(live: Live, status: str | None = "available") -> int:
    """Create a pet; return its id."""
    body = REX | ({"status": status} if status else {})
    return int(live.client.post(PETS, json=body).json()["id"])


def add_pets(live: Live, count: int, status: str | None = None) -> list[int]:
    """Create some pets; return their ids."""
    return [add_pet(live, status) for _ in range(count)]


def pet_status(live: Live, pet_id: int) -> str | None:
    """Return the status of a pet."""
    status: str | None = live.client.get(f"{PETS}/{pet_id}").json().get("status")
    return status
