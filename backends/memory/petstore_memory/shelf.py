"""A shelf: animals in ascending id, where finding, adding and removing stay cheap at any size.

The animals lie in chunks of at most twice `CHUNK`. Each chunk keeps its ids in an array of its
own, so that a search reads a few neighbouring bytes instead of a dozen animals all over the
memory, which is what a page would cost at ten million animals.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from petstore.contract import Pet

CHUNK: Final = 256


class Shelf:
    """Animals by id. Ids may have gaps and may arrive in any order."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        self._firsts = array("q", [0])  # no id in chunk n is lower than this
        self._chunks: list[tuple[array[int], list[Pet]]] = [(array("q"), [])]

    def page(self, after: int, count: int) -> list[Pet]:
        """Return the first `count` animals whose id is higher than `after`."""
        number = bisect_right(self._firsts, after) - 1
        ids, pets = self._chunks[number]
        start = bisect_right(ids, after)
        found = pets[start : start + count]
        while len(found) < count and (number := number + 1) < len(self._chunks):
            found += self._chunks[number][1][: count - len(found)]
        return found

    def get(self, pet_id: int) -> Pet | None:
        """Return the animal with this id, or None."""
        ids, pets = self._chunks[bisect_right(self._firsts, pet_id) - 1]
        place = bisect_left(ids, pet_id)
        return pets[place] if place < len(ids) and ids[place] == pet_id else None

    def put(self, pet: Pet) -> None:
        """Add the animal, or put it in the place of the one with its id."""
        number = bisect_right(self._firsts, pet.id) - 1
        ids, pets = self._chunks[number]
        place = bisect_left(ids, pet.id)
        if place < len(ids) and ids[place] == pet.id:
            pets[place] = pet
        elif place >= CHUNK and place == len(ids) and number == len(self._chunks) - 1:
            # A new highest id, the usual case: the last chunk stays full and another begins.
            self._insert_chunk(number + 1, array("q", [pet.id]), [pet])
        else:
            ids.insert(place, pet.id)
            pets.insert(place, pet)
            if len(ids) > 2 * CHUNK:
                self._insert_chunk(number + 1, ids[CHUNK:], pets[CHUNK:])
                del ids[CHUNK:], pets[CHUNK:]

    def remove(self, pet_id: int) -> None:
        """Take away the animal with this id. Raises `KeyError` if it is not here."""
        number = bisect_right(self._firsts, pet_id) - 1
        ids, pets = self._chunks[number]
        place = bisect_left(ids, pet_id)
        if place == len(ids) or ids[place] != pet_id:
            raise KeyError(pet_id)
        del ids[place], pets[place]
        if not ids and number:
            del self._chunks[number], self._firsts[number]

    def _insert_chunk(self, number: int, ids: "array[int]", pets: list[Pet]) -> None:
        self._firsts.insert(number, ids[0])
        self._chunks.insert(number, (ids, pets))
