"""Rows as structs of the contract, and the results of calls that share a statement."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import UNSET, UnsetType

from petstore.contract import Order, OrderStatus, Pet, PetStatus
from petstore_postgres.pool import LOCKED

_Item = TypeVar("_Item", Pet, Order)

_Rows = Sequence[Any]
_Calls = Sequence[tuple[Any, ...]]

_PET_STATUS: Final[dict[str | None, PetStatus | UnsetType]] = {
    None: UNSET,
    **{status.value: status for status in PetStatus},
}
_ORDER_STATUS: Final = {status.value: status for status in OrderStatus}


def to_pet(id_: int, category_id: int, name: bytes, status: str | None) -> Pet:
    """Return the pet of a row."""
    return Pet(id_, name.decode(), category_id, _PET_STATUS[status])


def to_order(id_: int, pet_id: int, placed_at: datetime, status: str) -> Order:
    """Return the order of a row."""
    return Order(id_, pet_id, _ORDER_STATUS[status], placed_at)


def split_items(convert: Callable[..., _Item]) -> Callable[[_Rows, _Calls], list[_Item | None]]:
    """Return a function that finds the item of each call, whose argument is the id."""

    def split(rows: _Rows, calls: _Calls) -> list[_Item | None]:
        found = {id_: convert(id_, one, two, status) for id_, one, two, status in rows}
        return [found.get(id_) for (id_,) in calls]

    return split


def split_pages(convert: Callable[..., _Item]) -> Callable[[_Rows, _Calls], list[list[_Item]]]:
    """Return a function that finds the page of each call by its number, the first column."""

    def split(rows: _Rows, calls: _Calls) -> list[list[_Item]]:
        pages: list[list[_Item]] = [[] for _ in calls]
        for page, id_, one, two, status in rows:  # much quicker than with *
            pages[page - 1].append(convert(id_, one, two, status))
        return pages

    return split


def split_unlocked(rows: _Rows, _: _Calls) -> list[Any]:
    """Return the row of each call, or `LOCKED`, if its outcome, the first column, says so."""
    return [LOCKED if row[0] == "locked" else row for row in rows]


def split_rows(rows: _Rows, _: _Calls) -> list[Any]:
    """Return the row of the only call, or None."""
    return [rows[0] if rows else None]
