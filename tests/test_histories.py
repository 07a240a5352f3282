"""The controls of the checks: each finds the fault that it is there for, and a right end has none.

One animal is sold, one is ordered, one was ordered, refused and given back, one is untouched.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.histories import Answer, Attempt, Item, violations


def pet(number: int, status: str) -> Item:
    return {"id": number, "name": f"c{number}", "categoryId": 7, "status": status}


def order(number: int, pet_id: int, status: str) -> Item:
    return {"id": number, "petId": pet_id, "status": status, "placedAt": f"2025-01-01T0{number}"}


def answer(status: int, item: Item, *, replayed: bool = False) -> Answer:
    content = json.dumps(item).encode()
    return Answer(status, content, f"/v1/x/{item['id']}" if status == 201 else "", replayed)


def create(number: int) -> Attempt:
    told = answer(201, pet(number, "available"))
    return Attempt("create", f"c{number}", 0, f"c{number}", 0, 1, told)


def ordered(number: int, pet_id: int, sent: float) -> Attempt:
    told = answer(201, order(number, pet_id, "placed"))
    return Attempt("place", f"o{number}", pet_id, "", sent, sent + 1, told)


def refused(key: str, pet_id: int, sent: float) -> Attempt:
    return Attempt("place", key, pet_id, "", sent, sent + 1, Answer(409, b"{}"))


def close(number: int, pet_id: int, to: str, sent: float) -> Attempt:
    told = answer(200, order(number, pet_id, to))
    return Attempt("close", "", number, to, sent, sent + 1, told)


PETS = [pet(1, "sold"), pet(2, "pending"), pet(3, "available"), pet(4, "available")]
ORDERS = [order(1, 1, "completed"), order(2, 2, "placed"), order(3, 3, "cancelled")]
PLACED = ordered(3, 3, 10)
HISTORY = [
    *(create(number) for number in range(1, 5)),
    ordered(1, 1, 10),
    close(1, 1, "completed", 12),
    replace(close(1, 1, "cancelled", 14), answer=Answer(409, b"{}")),
    replace(ordered(2, 2, 10), answer=None),
    replace(ordered(2, 2, 12), answer=answer(201, order(2, 2, "placed"), replayed=True)),
    PLACED,
    refused("r1", 3, 12),
    close(3, 3, "cancelled", 14),
    replace(PLACED, sent=20, ended=21, answer=replace(PLACED.answer, replayed=True)),  # type: ignore[type-var]
]


def with_item(items: list[Any], index: int, **changes: Any) -> list[Any]:
    return [*items[:index], items[index] | changes, *items[index + 1 :]]


def test_a_right_end_has_no_violations() -> None:
    assert violations(PETS, ORDERS, HISTORY) == []


WRONG: dict[str, tuple[list[Item], list[Item], list[Attempt], str]] = {
    "an animal was sold twice": (
        PETS,
        [*ORDERS, order(4, 1, "completed")],
        [*HISTORY, ordered(4, 1, 20), close(4, 1, "completed", 22)],
        "animal 1 is in two orders that are placed or completed",
    ),
    "an animal was held twice, and one order was cancelled": (
        PETS,
        [*ORDERS, order(4, 1, "cancelled")],
        [*HISTORY, ordered(4, 1, 20), close(4, 1, "cancelled", 22)],
        "animal 1 was held by the orders 1 and 4 at one time",
    ),
    "an order did not move its animal": (
        with_item(PETS, 0, status="available"), ORDERS, HISTORY,
        "animal 1 is available, its orders say sold",
    ),
    "a cancelled order did not give its animal back": (
        with_item(PETS, 2, status="pending"), ORDERS, HISTORY,
        "animal 3 is pending, its orders say available",
    ),
    "an animal is reserved without an order": (
        with_item(PETS, 3, status="pending"), ORDERS, HISTORY,
        "animal 4 is pending, its orders say available",
    ),
    "an order is lost": (PETS, ORDERS[:2], HISTORY, "but now it is lost"),
    "an animal is lost": (PETS[:3], ORDERS, HISTORY, "but now it is lost"),
    "an ordered animal is lost": (PETS[1:], ORDERS, HISTORY, "ordered, but it does not exist"),
    "an order has another animal": (
        PETS, with_item(ORDERS, 2, petId=4), HISTORY, "but now {'id': 3, 'petId': 4",
    ),
    "an order has another time": (
        PETS, with_item(ORDERS, 2, placedAt="1970"), HISTORY, "but now {'id': 3, 'petId': 3",
    ),
    "a completed order is placed again": (
        with_item(PETS, 0, status="pending"), with_item(ORDERS, 0, status="placed"), HISTORY,
        "but now {'id': 1, 'petId': 1, 'status': 'placed'",
    ),
    "a cancelled order was completed": (
        with_item(PETS, 2, status="sold"), with_item(ORDERS, 2, status="completed"), HISTORY,
        "but nobody asked for that",
    ),
    "an order was closed by nobody": (
        with_item(PETS, 1, status="available"), with_item(ORDERS, 1, status="cancelled"), HISTORY,
        "but nobody asked for that",
    ),
    "a placed order was not to be completed": (
        PETS, ORDERS,
        [*HISTORY, replace(close(2, 2, "completed", 30), answer=Answer(409, b"{}"))],
        "but now {'id': 2, 'petId': 2, 'status': 'placed'",
    ),
    "an available animal was refused": (
        PETS, ORDERS, [*HISTORY, refused("r2", 4, 30)], "although nothing held the animal",
    ),
    "an animal that was given back was refused": (
        PETS, ORDERS, [*HISTORY, refused("r2", 3, 30)], "although nothing held the animal",
    ),
    "a key has two animals": (
        [*PETS, pet(5, "available") | {"name": "c4"}], ORDERS, HISTORY,
        "create c4: there are two of it",
    ),
    "a key has two orders": (
        PETS, [*ORDERS, order(4, 4, "cancelled")], HISTORY,
        "place: no key was answered with 4, yet it is there",
    ),
    "a key was carried out twice": (
        PETS, ORDERS, [*HISTORY, create(4)], "create c4: carried out 2 times",
    ),
    "two keys have one order": (
        PETS, ORDERS, [*HISTORY, replace(PLACED, key="o9")], "two keys were answered with 3",
    ),
    "a retry was answered otherwise": (
        PETS, ORDERS,
        [*HISTORY, replace(PLACED, answer=answer(201, order(3, 3, "cancelled"), replayed=True))],
        "place o3: different answers",
    ),
    "a retry was refused": (
        PETS, ORDERS, [*HISTORY, refused("o2", 2, 30)], "although it had been answered 201",
    ),
    "a write was not answered": (
        PETS, ORDERS, [*HISTORY, replace(ordered(9, 4, 30), answer=None)], "o9: never answered",
    ),
    "an order is listed twice": (PETS, [*ORDERS, ORDERS[2]], HISTORY, "order 3 is listed twice"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_a_check_finds_that(fault: str) -> None:
    pets, orders, history, sentence = WRONG[fault]
    found = violations(pets, orders, history)
    assert [text for text in found if sentence in text], found
