"""All pets or all orders in memory, by id and by status."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Generic, TypeVar

from msgspec.structs import replace

from petstore.contract import MAX_ID, Order, OrderQuery, Pet, PetQuery, StorageError
from petstore_memory.chunks import SortedItems

_Item = TypeVar("_Item", bound=Pet | Order)


class Table(Generic[_Item]):
    """All pets or all orders, sorted by id, and again those of each status.

    statuses -- all that an item may have
    last_id -- the highest id so far; 0 if there is none
    """

    def __init__(self, statuses: Iterable[StrEnum]) -> None:
        self._all = SortedItems[_Item]()
        self._by_status = {status: SortedItems[_Item]() for status in statuses}
        self.last_id = 0

    def page(self, query: PetQuery | OrderQuery) -> list[_Item]:
        """Return the page that a query asks for."""
        status = query.status
        items = self._all if status is None else self._by_status[status]
        return items.page(query.after, query.count)

    def get(self, item_id: int) -> _Item | None:
        """Return the item with this id, or None."""
        return self._all.get(item_id)

    def next_id(self) -> int:
        """Return the id of the item to be added next. Raises `StorageError` if none is left."""
        if self.last_id == MAX_ID:
            raise StorageError("all ids have been assigned")
        return self.last_id + 1

    def add(self, item: _Item) -> None:
        """Add an item. One with its id is replaced, but not removed from those of its status."""
        self.last_id = max(self.last_id, item.id)
        self._all.put(item)
        if item.status:  # a pet may have none
            self._by_status[item.status].put(item)

    def set_status(self, item: _Item, status: StrEnum) -> _Item:
        """Replace a stored item by one with this status, and return that one."""
        if item.status:
            self._by_status[item.status].remove(item.id)
        changed = replace(item, status=status)
        self.add(changed)
        return changed
