"""Sorted items, compared with a plain dictionary."""

from hypothesis import given, settings
from hypothesis import strategies as st
from petstore_memory import chunks
from petstore_memory.chunks import SortedItems

from petstore.contract import Pet

IDS = st.integers(1, 40) | st.integers(1, 2**53 - 1)
CHANGES = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "remove"]), IDS), max_size=200)


@settings(deadline=None)
@given(changes=CHANGES, size=st.integers(1, 4), after=IDS, count=st.integers(1, 50))
def test_sorted_items_find_what_a_dictionary_finds(
    changes: list[tuple[str, int]], size: int, after: int, count: int
) -> None:
    usual, chunks.CHUNK_SIZE = chunks.CHUNK_SIZE, size  # type: ignore[misc]
    try:
        items, model = SortedItems[Pet](), dict[int, Pet]()
        for step, (change, pet_id) in enumerate(changes):
            if change == "put":
                model[pet_id] = Pet(pet_id, f"{step}", 1)
                items.put(model[pet_id])
            elif model.pop(pet_id, None):
                items.remove(pet_id)
        for pet_id in {after, *model, *(other + 1 for other in model)}:
            assert items.get(pet_id) == model.get(pet_id)
        for start in (0, after):
            expected = [model[pet_id] for pet_id in sorted(model) if pet_id > start]
            assert items.page(start, count) == expected[:count]
            assert items.page(start, len(model) + 1) == expected
    finally:
        chunks.CHUNK_SIZE = usual  # type: ignore[misc]
