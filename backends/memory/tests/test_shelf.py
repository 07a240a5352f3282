"""The shelf, compared with a plain dictionary."""

from hypothesis import given, settings
from hypothesis import strategies as st
from petstore_memory import shelf as module
from petstore_memory.shelf import Shelf

from petstore.contract import Pet

IDS = st.integers(1, 40) | st.integers(1, 2**53 - 1)
CHANGES = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "remove"]), IDS), max_size=200)


def pet(number: int, name: str = "n") -> Pet:
    return Pet(number, name, 1)


@settings(deadline=None)
@given(changes=CHANGES, chunk=st.integers(1, 4), after=IDS, count=st.integers(1, 50))
def test_it_finds_what_a_dictionary_finds(
    changes: list[tuple[str, int]], chunk: int, after: int, count: int
) -> None:
    usual, module.CHUNK = module.CHUNK, chunk  # type: ignore[misc]
    try:
        shelf, model = Shelf[Pet](), dict[int, Pet]()
        for step, (change, number) in enumerate(changes):
            if change == "put":
                model[number] = pet(number, f"{step}")
                shelf.put(model[number])
            elif model.pop(number, None):
                shelf.remove(number)
        for number in {after, *model, *(n + 1 for n in model)}:
            assert shelf.get(number) == model.get(number)
        for start in (0, after):
            expected = [model[number] for number in sorted(model) if number > start]
            assert shelf.page(start, count) == expected[:count]
            assert shelf.page(start, len(model) + 1) == expected
    finally:
        module.CHUNK = usual  # type: ignore[misc]


def test_a_long_shelf_keeps_its_order() -> None:
    shelf = Shelf[Pet]()
    for number in range(1, 5000):
        shelf.put(pet(number))
    for number in range(2, 5000, 3):
        shelf.remove(number)
    expected = [number for number in range(1, 5000) if number % 3 != 2]
    assert [found.id for found in shelf.page(0, 5000)] == expected
    assert [found.id for found in shelf.page(2500, 3)] == [2502, 2503, 2505]
