"""A shelf: items in ascending id, where finding, adding and removing stay cheap at any size.

The items lie in chunks of at most twice `CHUNK`. Each chunk keeps its ids in an array of its
own, so that a search reads a few neighbouring bytes instead of a dozen items all over the
memory, which is what a page would cost at ten million items.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from petstore.contract import Order, Pet

CHUNK: Final = 256
"""Half of what a chunk may hold: one that grows beyond twice that is cut in two."""

Item = TypeVar("Item", bound=Pet | Order)


class Shelf(Generic[Item]):
    """Items by id. Ids may have gaps and may arrive in any order."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        self._firsts = array("q", [0])  # no id in chunk n is lower than this
        self._chunks: list[tuple[array[int], list[Item]]] = [(array("q"), [])]

    def page(self, after: int, count: int) -> list[Item]:
        """Return the first `count` items whose id is higher than `after`, in a list of its own."""
        number = bisect_right(self._firsts, after) - 1
        ids, items = self._chunks[number]
        start = bisect_right(ids, after)
        found = items[start : start + count]
        while len(found) < count and (number := number + 1) < len(self._chunks):
            found += self._chunks[number][1][: count - len(found)]
        return found

    def get(self, item_id: int) -> Item | None:
        """Return the item with this id, or None."""
        ids, items = self._chunks[bisect_right(self._firsts, item_id) - 1]
        place = bisect_left(ids, item_id)
        return items[place] if place < len(ids) and ids[place] == item_id else None

    def put(self, item: Item) -> None:
        """Add the item, or put it in the place of the one with its id."""
        number = bisect_right(self._firsts, item.id) - 1
        ids, items = self._chunks[number]
        place = bisect_left(ids, item.id)
        if place < len(ids) and ids[place] == item.id:
            items[place] = item
        elif place >= CHUNK and place == len(ids) and number == len(self._chunks) - 1:
            # A new highest id, the usual case: the last chunk stays full and another begins.
            self._insert_chunk(number + 1, array("q", [item.id]), [item])
        else:
            ids.insert(place, item.id)
            items.insert(place, item)
            if len(ids) > 2 * CHUNK:
                self._insert_chunk(number + 1, ids[CHUNK:], items[CHUNK:])
                del ids[CHUNK:], items[CHUNK:]

    def remove(self, item_id: int) -> None:
        """Take away the item with this id. Raises `KeyError` if it is not here."""
        number = bisect_right(self._firsts, item_id) - 1
        ids, items = self._chunks[number]
        place = bisect_left(ids, item_id)
        if place == len(ids) or ids[place] != item_id:
            raise KeyError(item_id)
        del ids[place], items[place]
        if not ids and number:
            del self._chunks[number], self._firsts[number]

    def _insert_chunk(self, number: int, ids: "array[int]", items: list[Item]) -> None:
        self._firsts.insert(number, ids[0])
        self._chunks.insert(number, (ids, items))


class Shelves(Generic[Item]):
    """All items of one kind, on one shelf, and on one for each status that a filter asks for.

    statuses -- all that an item may have
    last_id -- the highest id so far; 0 if there is none
    """

    def __init__(self, statuses: Iterable[StrEnum]) -> None:
        self._all: Shelf[Item] = Shelf()
        self._by_status: dict[StrEnum, Shelf[Item]] = {status: Shelf() for status in statuses}
        self.last_id = 0

    def page(self, after: int, count: int, status: StrEnum | None) -> list[Item]:
        """Return the first `count` items, of a status or of all, whose id is above `after`."""
        return (self._all if status is None else self._by_status[status]).page(after, count)

    def get(self, item_id: int) -> Item | None:
        """Return the item with this id, or None."""
        return self._all.get(item_id)

    def add(self, item: Item) -> None:
        """Add an item with a new id."""
        self.last_id = max(self.last_id, item.id)
        self._all.put(item)
        if item.status:  # an animal may have none
            self._by_status[item.status].put(item)

    def move(self, item: Item, status: StrEnum) -> Item:
        """Give an item another status and return it as it is then."""
        if item.status:
            self._by_status[item.status].remove(item.id)
        moved = replace(item, status=status)
        self.add(moved)
        return moved
