"""Rows as structs of the contract, and the results of calls that share a statement."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import UNSET, UnsetType

from petstore.contract import Order, OrderStatus, Pet, PetStatus

_Item = TypeVar("_Item", Pet, Order)

_Rows = Sequence[Any]
_Calls = Sequence[tuple[Any, ...]]

_PET_STATUS: Final[dict[str | None, PetStatus | UnsetType]] = {
    None: UNSET,
    **{status.value: status for status in PetStatus},
}
_ORDER_STATUS: Final = {status.value: status for status in OrderStatus}


def to_pet(row: Any) -> Pet:
    """Return a pet from the last four columns of a row: id, category_id, name, status."""
    *_, id_, category_id, name, status = row
    return Pet(id_, name.decode(), category_id, _PET_STATUS[status])


def to_order(row: Any) -> Order:
    """Return an order from the last four columns of a row: id, pet_id, placed_at, status."""
    *_, id_, pet_id, placed_at, status = row
    return Order(id_, pet_id, _ORDER_STATUS[status], placed_at)


def split_items(convert: Callable[[Any], _Item]) -> Callable[[_Rows, _Calls], list[_Item | None]]:
    """Return a function that finds the item of each call, whose argument is the id."""

    def split(rows: _Rows, calls: _Calls) -> list[_Item | None]:
        found = {row[0]: convert(row) for row in rows}
        return [found.get(id_) for (id_,) in calls]

    return split


def split_pages(convert: Callable[[Any], _Item]) -> Callable[[_Rows, _Calls], list[list[_Item]]]:
    """Return a function that finds the page of each call by its number, the first column."""

    def split(rows: _Rows, calls: _Calls) -> list[list[_Item]]:
        pages: list[list[_Item]] = [[] for _ in calls]
        for row in rows:
            pages[row[0] - 1].append(convert(row))
        return pages

    return split


def split_ids(rows: _Rows, _: _Calls) -> Sequence[int]:
    """Return the ids of the calls, which are one array."""
    ids: Sequence[int] = rows[0][0]
    return ids


def split_each(rows: _Rows, _: _Calls) -> _Rows:
    """Return the row of each call; they are in the order of the calls."""
    return rows


def split_rows(rows: _Rows, _: _Calls) -> list[Any]:
    """Return the row of the only call, or None."""
    return [rows[0] if rows else None]
