"""The operations of the HTTP interface."""

from typing import Final

PETS: Final = "/v1/pets"
ORDERS: Final = "/v1/store/orders"

OPERATIONS: Final = [
    ("GET", PETS),
    ("POST", PETS),
    ("GET", f"{PETS}/1"),
    ("GET", ORDERS),
    ("POST", ORDERS),
    ("GET", f"{ORDERS}/1"),
    ("PATCH", f"{ORDERS}/1"),
]
