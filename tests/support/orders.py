"""Orders: placing them and changing their status."""

from typing import Final

from httpx import Response

from tests.support.interface import ORDERS
from tests.support.pets import add_pet
from tests.support.services import Live

PET_STATUS: Final = {"placed": "pending", "completed": "sold", "cancelled": "available"}
"""The status of an order, and that of its pet."""


def place_order(live: Live, pet_id: object) -> Response:
    """Order a pet."""
    return live.client.post(ORDERS, json={"petId": pet_id})


def update_order(live: Live, location: str, status: object) -> Response:
    """Change the status of an order."""
    return live.client.patch(location, json={"status": status})


def ordered(live: Live, status: str = "placed") -> str:
    """Order a new pet and bring the order to a status; return the path of the order."""
    location = place_order(live, add_pet(live)).headers["location"]
    assert update_order(live, location, status).status_code == 200
    return str(location)
