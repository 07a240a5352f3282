"""Controls of the checks of histories: each detects its fault, and a correct store has none.

Of four pets, one is sold, one is ordered, one was ordered and is available again, one never was.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.histories import Attempt, Response, violations
from tests.support.interface import Item

CONFLICT = Response(409, b"{}")


def pet(pet_id: int, status: str) -> Item:
    return {"id": pet_id, "name": f"c{pet_id}", "categoryId": 7, "status": status}


def order(order_id: int, pet_id: int, status: str) -> Item:
    placed_at = f"2025-01-01T0{order_id}"
    return {"id": order_id, "petId": pet_id, "status": status, "placedAt": placed_at}


def response(status: int, item: Item, *, replayed: bool = False) -> Response:
    content = json.dumps(item).encode()
    return Response(status, content, f"/v1/x/{item['id']}" if status == 201 else "", replayed)


def create(pet_id: int) -> Attempt:
    created = response(201, pet(pet_id, "available"))
    return Attempt("create", f"c{pet_id}", 0, f"c{pet_id}", 0, 1, created)


def place(order_id: int, pet_id: int, sent: float) -> Attempt:
    created = response(201, order(order_id, pet_id, "placed"))
    return Attempt("place", f"o{order_id}", pet_id, "", sent, sent + 1, created)


def refused(key: str, pet_id: int, sent: float) -> Attempt:
    return Attempt("place", key, pet_id, "", sent, sent + 1, CONFLICT)


def close(order_id: int, pet_id: int, status: str, sent: float) -> Attempt:
    closed = response(200, order(order_id, pet_id, status))
    return Attempt("close", "", order_id, status, sent, sent + 1, closed)


PETS = [pet(1, "sold"), pet(2, "pending"), pet(3, "available"), pet(4, "available")]
ORDERS = [order(1, 1, "completed"), order(2, 2, "placed"), order(3, 3, "cancelled")]
PLACED = place(3, 3, 10)
HISTORY = [
    *(create(pet_id) for pet_id in range(1, 5)),
    place(1, 1, 10),
    close(1, 1, "completed", 12),
    replace(close(1, 1, "cancelled", 14), response=CONFLICT),
    replace(place(2, 2, 10), response=None),
    replace(place(2, 2, 12), response=response(201, order(2, 2, "placed"), replayed=True)),
    PLACED,
    refused("r1", 3, 12),
    close(3, 3, "cancelled", 14),
    replace(PLACED, sent=20, ended=21, response=replace(PLACED.response, replayed=True)),  # type: ignore[type-var]
]


def with_item(items: list[Any], index: int, **changes: Any) -> list[Any]:
    return [*items[:index], items[index] | changes, *items[index + 1 :]]


def test_a_correct_store_has_no_violations() -> None:
    assert violations(PETS, ORDERS, HISTORY) == []


WRONG: dict[str, tuple[list[Item], list[Item], list[Attempt], str]] = {
    "a pet was sold twice": (
        PETS,
        [*ORDERS, order(4, 1, "completed")],
        [*HISTORY, place(4, 1, 20), close(4, 1, "completed", 22)],
        "pet 1 is in two orders that are placed or completed",
    ),
    "a pet was in two orders, and one of them was cancelled": (
        PETS,
        [*ORDERS, order(4, 1, "cancelled")],
        [*HISTORY, place(4, 1, 20), close(4, 1, "cancelled", 22)],
        "pet 1 was held by the orders 1 and 4 at the same time",
    ),
    "an order did not change the status of its pet": (
        with_item(PETS, 0, status="available"),
        ORDERS,
        HISTORY,
        "pet 1 is available; after its orders it must be sold",
    ),
    "a cancelled order did not release its pet": (
        with_item(PETS, 2, status="pending"),
        ORDERS,
        HISTORY,
        "pet 3 is pending; after its orders it must be available",
    ),
    "a pet is pending without an order": (
        with_item(PETS, 3, status="pending"),
        ORDERS,
        HISTORY,
        "pet 4 is pending; after its orders it must be available",
    ),
    "an order is lost": (PETS, ORDERS[:2], HISTORY, "but now it is lost"),
    "a pet is lost": (PETS[:3], ORDERS, HISTORY, "but now it is lost"),
    "an ordered pet is lost": (
        PETS[1:],
        ORDERS,
        HISTORY,
        "pet 1 is in an order, but it is not stored",
    ),
    "an order has another pet": (
        PETS,
        with_item(ORDERS, 2, petId=4),
        HISTORY,
        "but now {'id': 3, 'petId': 4",
    ),
    "an order has another time": (
        PETS,
        with_item(ORDERS, 2, placedAt="1970"),
        HISTORY,
        "but now {'id': 3, 'petId': 3",
    ),
    "a completed order is placed again": (
        with_item(PETS, 0, status="pending"),
        with_item(ORDERS, 0, status="placed"),
        HISTORY,
        "but now {'id': 1, 'petId': 1, 'status': 'placed'",
    ),
    "a cancelled order was completed": (
        with_item(PETS, 2, status="sold"),
        with_item(ORDERS, 2, status="completed"),
        HISTORY,
        "but no request gave it this status",
    ),
    "an order was closed without a request": (
        with_item(PETS, 1, status="available"),
        with_item(ORDERS, 1, status="cancelled"),
        HISTORY,
        "but no request gave it this status",
    ),
    "a placed order could not be completed": (
        PETS,
        ORDERS,
        [*HISTORY, replace(close(2, 2, "completed", 30), response=CONFLICT)],
        "but now {'id': 2, 'petId': 2, 'status': 'placed'",
    ),
    "an order of an available pet was refused": (
        PETS,
        ORDERS,
        [*HISTORY, refused("r2", 4, 30)],
        "although no order held the pet",
    ),
    "an order of a released pet was refused": (
        PETS,
        ORDERS,
        [*HISTORY, refused("r2", 3, 30)],
        "although no order held the pet",
    ),
    "a key created two pets": (
        [*PETS, pet(5, "available") | {"name": "c4"}],
        ORDERS,
        HISTORY,
        "create c4: it is stored twice",
    ),
    "a key placed two orders": (
        PETS,
        [*ORDERS, order(4, 4, "cancelled")],
        HISTORY,
        "place: 4 is stored, but was not returned for any key",
    ),
    "a key took effect twice": (
        PETS,
        ORDERS,
        [*HISTORY, create(4)],
        "create c4: executed 2 times",
    ),
    "two keys placed one order": (
        PETS,
        ORDERS,
        [*HISTORY, replace(PLACED, key="o9")],
        "place: 3 was returned for two keys",
    ),
    "a retry got another response": (
        PETS,
        ORDERS,
        [
            *HISTORY,
            replace(PLACED, response=response(201, order(3, 3, "cancelled"), replayed=True)),
        ],
        "place o3: different responses",
    ),
    "a retry was refused": (
        PETS,
        ORDERS,
        [*HISTORY, refused("o2", 2, 30)],
        " after a 201",
    ),
    "a write got no response": (
        PETS,
        ORDERS,
        [*HISTORY, replace(place(9, 4, 30), response=None)],
        "place o9: no response",
    ),
    "an order is listed twice": (PETS, [*ORDERS, ORDERS[2]], HISTORY, "order 3 is listed twice"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_check_detects_that(fault: str) -> None:
    pets, orders, history, sentence = WRONG[fault]
    found = violations(pets, orders, history)
    assert [text for text in found if sentence in text], found
