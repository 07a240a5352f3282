"""Items sorted by id, so that a page takes microseconds at ten million of them.

They are kept in chunks of at most twice `CHUNK_SIZE`, so that adding and removing move few of them.
Each chunk has its ids in an array: a search then reads neighboring bytes, not a dozen items all
over the memory. For a hundred thousand items, a sorted list of ids would do.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, Generic, TypeVar

from petstore.contract import Order, Pet

CHUNK_SIZE: Final = 308
"""Half of what a chunk may hold: a longer one is split in two.

A list that is appended to gets room for 268 items, then for 308: this many waste none.
"""

_Item = TypeVar("_Item", bound=Pet | Order)


class SortedItems(Generic[_Item]):
    """Items in ascending id. Ids may have gaps and may arrive in any order."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        self._firsts = array("q", [0])  # a lower bound of the ids in each chunk
        self._chunks: list[tuple[array[int], list[_Item]]] = [(array("q"), [])]

    def page(self, after: int, count: int) -> list[_Item]:
        """Return the first `count` items whose id is higher than `after`, in a new list."""
        chunk = bisect_right(self._firsts, after) - 1
        ids, items = self._chunks[chunk]
        start = bisect_right(ids, after)
        found = items[start : start + count]
        while len(found) < count and (chunk := chunk + 1) < len(self._chunks):
            found += self._chunks[chunk][1][: count - len(found)]
        return found

    def get(self, item_id: int) -> _Item | None:
        """Return the item with this id, or None."""
        ids, items = self._chunks[bisect_right(self._firsts, item_id) - 1]
        index = bisect_left(ids, item_id)
        return items[index] if index < len(ids) and ids[index] == item_id else None

    def put(self, item: _Item) -> None:
        """Add the item, or replace the one with its id."""
        ids, items = self._chunks[-1]
        id_ = item.id
        if ids and id_ > ids[-1]:  # a new highest id, the usual case: no chunk is split
            if len(ids) < CHUNK_SIZE:
                ids.append(id_)
                items.append(item)
            else:
                self._insert_chunk(len(self._chunks), array("q", [id_]), [item])
            return
        chunk = bisect_right(self._firsts, id_) - 1
        ids, items = self._chunks[chunk]
        index = bisect_left(ids, id_)
        if index < len(ids) and ids[index] == id_:
            items[index] = item
        else:
            ids.insert(index, id_)
            items.insert(index, item)
            if len(ids) > 2 * CHUNK_SIZE:
                self._insert_chunk(chunk + 1, ids[CHUNK_SIZE:], items[CHUNK_SIZE:])
                del ids[CHUNK_SIZE:], items[CHUNK_SIZE:]

    def remove(self, item_id: int) -> None:
        """Remove the item with this id. Raises `KeyError` if there is none."""
        chunk = bisect_right(self._firsts, item_id) - 1
        ids, items = self._chunks[chunk]
        index = bisect_left(ids, item_id)
        if index == len(ids) or ids[index] != item_id:
            raise KeyError(item_id)
        del ids[index], items[index]
        if not ids and chunk:
            del self._chunks[chunk], self._firsts[chunk]

    def _insert_chunk(self, chunk: int, ids: "array[int]", items: list[_Item]) -> None:
        self._firsts.insert(chunk, ids[0])
        self._chunks.insert(chunk, (ids, items))
