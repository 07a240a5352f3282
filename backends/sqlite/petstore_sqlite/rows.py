"""Rows of the file as structs of the contract. A row that cannot be one means a corrupt file.

SQLite checks types and constraints when it writes, not when it reads.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import apsw
from msgspec import UNSET, UnsetType

from petstore.contract import Order, OrderStatus, Pet, PetStatus, TokenRecord

_Item = TypeVar("_Item")

SELECT_PETS: Final = "SELECT id, name, category_id, status FROM pets"
SELECT_ORDERS: Final = "SELECT id, pet_id, status, placed_at FROM orders"
SELECT_TOKENS: Final = "SELECT token, fingerprint, until, id, number FROM tokens"

_PET_STATUS: Final[dict[str | None, PetStatus | UnsetType]] = {
    None: UNSET,
    **{status.value: status for status in PetStatus},
}
_ORDER_STATUS: Final = {status.value: status for status in OrderStatus}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_pets(rows: Sequence[Any]) -> list[Pet]:
    """Return rows of `SELECT_PETS` as pets. Raises `apsw.CorruptError`."""
    try:
        pets = [
            Pet(id_, name, category_id, _PET_STATUS[status])
            for id_, name, category_id, status in rows
            if type(name) is str and type(category_id) is int
        ]
    except (KeyError, TypeError) as error:
        raise apsw.CorruptError(f"a pet has the status {error}") from error
    return _complete(pets, rows)


def to_orders(rows: Sequence[Any]) -> list[Order]:
    """Return rows of `SELECT_ORDERS` as orders. Raises `apsw.CorruptError`."""
    try:
        orders = [
            Order(id_, pet_id, _ORDER_STATUS[status], _EPOCH + placed_at * _MICROSECOND)
            for id_, pet_id, status, placed_at in rows
            if type(pet_id) is int and type(placed_at) is int
        ]
    except (KeyError, TypeError, OverflowError) as error:
        raise apsw.CorruptError(f"an order has the status or time {error}") from error
    return _complete(orders, rows)


def to_records(rows: Sequence[Any]) -> list[tuple[int, TokenRecord]]:
    """Return rows of `SELECT_TOKENS` as records with their numbers. Raises `apsw.CorruptError`."""
    for value, fingerprint, until, id_, _ in rows:
        check_types((value, bytes), (fingerprint, bytes), (until, int), (id_, int))
    return [(number, TokenRecord(*row)) for *row, number in rows]


def to_microseconds(moment: datetime) -> int:
    """Return a time as the file stores it."""
    return (moment - _EPOCH) // _MICROSECOND


def _complete(items: list[_Item], rows: Sequence[Any]) -> list[_Item]:
    """Return the items, unless a row was left out because of the type of a value."""
    if len(items) != len(rows):
        raise apsw.CorruptError("a row has a value of the wrong type")
    return items


def check_types(*values: tuple[object, type]) -> None:
    """Check values that were read with the types that they must have.

    Raises `apsw.CorruptError`.
    """
    for value, type_ in values:
        if type(value) is not type_:
            raise apsw.CorruptError(f"{value!r:.50} was read where {type_.__name__} was expected")
