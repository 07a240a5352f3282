"""Controls of the checks of histories: each detects its fault, and a correct store has none.

In the first part, one of four pets is sold, one is ordered, one was ordered and is available again,
one never was.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from petstore_conformance.faults import linearizability
from petstore_conformance.faults.histories import Attempt, Item, RecordedResponse
from petstore_conformance.faults.linearizability import operations_of
from petstore_conformance.faults.races import Race
from petstore_conformance.faults.services import Endpoint, RunningService
from petstore_conformance.faults.verdicts import judge

from tests.faults.torture.stage import confirmed

CONFLICT = RecordedResponse(409, b"{}")


Stored = tuple[list[Item], list[Item]]
"""The pets and the orders at the end."""


def race(history: list[Attempt], final: Stored = ([], [])) -> Race:
    """Return a race of which this was recorded."""
    return Race(Endpoint(RunningService("x", 1)), history=history, final=final)


def violations(history: list[Attempt], final: Stored | None = None) -> tuple[list[str], int]:
    """Return all that is wrong, and how many searches were given up.

    final -- what was stored at the end, if the race came to its end, and is read then
    """
    if final is not None:
        pages = zip(("pets", "orders"), final, strict=True)
        history = [*history, *(read(kind, 0, items, 100) for kind, items in pages)]
    found, counts = judge(race(history, final or ([], [])), ended=final is not None)
    texts = [text for texts in found.values() for text in texts]
    assert "(" not in "".join(texts), "a representation of a class"
    return texts, counts.total()


def pet(pet_id: int, status: str) -> Item:
    return {"id": pet_id, "name": f"c{pet_id}", "categoryId": 7, "status": status}


def order(order_id: int, pet_id: int, status: str) -> Item:
    placed_at = f"2025-01-01T0{order_id}"
    return {"id": order_id, "petId": pet_id, "status": status, "placedAt": placed_at}


def response(status: int, item: Item, *, replayed: bool = False) -> RecordedResponse:
    content = json.dumps(item).encode()
    return RecordedResponse(
        status, content, f"/v1/x/{item['id']}" if status == 201 else "", replayed
    )


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
    assert violations(HISTORY, (PETS, ORDERS)) == ([], 0)


class Case(NamedTuple):
    """What is stored at the end, what happens after `HISTORY`, and a part of what is found."""

    found: str
    pets: list[Item] = PETS
    orders: list[Item] = ORDERS
    more: Sequence[Attempt] = ()


WRONG = {
    "a pet was sold twice": Case(
        "pet 1 is in two orders that are placed or completed",
        orders=[*ORDERS, order(4, 1, "completed")],
        more=[place(4, 1, 20), close(4, 1, "completed", 22)],
    ),
    "an order did not change the status of its pet": Case(
        "pet 1 is available; after its orders it must be sold",
        pets=with_item(PETS, 0, status="available"),
    ),
    "an order is lost": Case("but at the end that is lost", orders=ORDERS[:2]),
    "an ordered pet is lost": Case("pet 1 is in an order, but it is not stored", pets=PETS[1:]),
    "a completed order is placed again": Case(
        "make order 1 completed: 200",
        with_item(PETS, 0, status="pending"),
        with_item(ORDERS, 0, status="placed"),
    ),
    "a key created two pets": Case(
        "create: 5 is stored, but was not returned for any key",
        pets=[*PETS, pet(5, "available") | {"name": "c4"}],
    ),
    "a key placed two orders": Case(
        "place: 4 is stored, but was not returned for any key",
        orders=[*ORDERS, order(4, 4, "cancelled")],
    ),
    "a key took effect twice": Case("create c4: executed 2 times", more=[create(4)]),
    "two keys placed one order": Case(
        "place: 3 was returned for the keys", more=[replace(PLACED, key="o9")]
    ),
    "a retry got another response": Case(
        "place o3: different responses",
        more=[replace(PLACED, response=response(201, order(3, 3, "cancelled"), replayed=True))],
    ),
    "a retry was refused": Case(" after a 201", more=[refused("o2", 2, 30)]),
    "an order is listed twice": Case("or has an item twice", orders=[*ORDERS, ORDERS[2]]),
    "a pet has another name": Case(
        "but before it was {'id': 4, 'name': 'c4'", pets=[*PETS[:3], PETS[3] | {"name": "c5"}]
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_check_detects_that(fault: str) -> None:
    case = WRONG[fault]
    found, _ = violations([*HISTORY, *case.more], (case.pets, case.orders))
    assert [text for text in found if case.found in text], found


def test_what_an_order_does_not_find_is_lost() -> None:
    missing = replace(refused("r2", 4, 30), response=RecordedResponse(404, b"{}"))
    found, _ = judge(race([*HISTORY, missing]), ended=False)
    assert found["lost"] == ["order pet 4 with the key r2: 404 {}"]


@pytest.mark.parametrize("stored", [[PETS[3]], []])
def test_after_a_failover_only_what_was_acknowledged_must_last(stored: list[Item]) -> None:
    """An order was read and refused another one, but was never acknowledged, and is gone."""
    history = [
        create(4),
        read("pet", 4, pet(4, "pending"), 2),
        refused("o", 4, 4),
        replace(refused("p", 4, 4), response=RecordedResponse(404)),
        read("pets", 0, stored, 11),
    ]
    played = race(history, (stored, []))
    played.quiet_since = 10
    found, _ = judge(confirmed(played), ended=True)
    assert bool(found.get("lost")) is bool(found) is not bool(stored)
    assert judge(played, ended=True)[0]


def read(action: str, id_: int, items: Item | list[Item] | None, sent: float) -> Attempt:
    """Return a read: of an item, of a page after an id, or of nothing (404)."""
    found = RecordedResponse(404 if items is None else 200, json.dumps(items).encode())
    return Attempt(action, "", id_, "", sent, sent + 1, found)


def unknown(attempt: Attempt) -> Attempt:
    return replace(attempt, response=None)


def page(sent: float, *statuses: str) -> Attempt:
    """Return a page of the pets 1, 2, ... with these statuses."""
    return read("pets", 0, [pet(n + 1, status) for n, status in enumerate(statuses)], sent)


CREATED = [create(1), create(2)]
TAKEN = [*CREATED, place(1, 1, 10)]

EXPLAINED: dict[str, list[Attempt]] = {
    "an order without a response took effect, and a page shows it": [
        *CREATED,
        unknown(place(1, 1, 10)),
        read("orders", 0, [order(1, 1, "placed")], 20),
    ],
    "a page begins after an id": [*TAKEN, read("pets", 1, [pet(2, "available")], 20)],
    "a page shows an order of a pet that was there before the history": [
        *TAKEN,
        read("orders", 0, [order(1, 1, "placed"), order(7, 9, "completed")], 20),
    ],
    "a page shows two moments: pet 1 was ordered first, but only the order of pet 2 is seen": [
        *CREATED,
        place(1, 1, 10),
        place(2, 2, 12),
        replace(page(9, "available", "pending"), ended=20),
    ],
}


@pytest.mark.parametrize("what", EXPLAINED)
def test_a_correct_history_is_explained(what: str) -> None:
    assert violations(EXPLAINED[what]) == ([], 0)


UNEXPLAINED: dict[str, tuple[list[Attempt], str]] = {
    "a pet is not found after it was created": ([*CREATED, read("pet", 1, None, 12)], "pet 1:"),
    "a pet whose creation had no response is sold without an order": (
        [
            create(1),
            unknown(create(2)),
            page(12, "available", "available"),
            read("pet", 2, pet(2, "sold"), 20),
        ],
        "pet 2:",
    ),
    "a pet is pending, but without an order": (
        [
            *CREATED,
            unknown(place(1, 1, 10)),
            read("pet", 1, pet(1, "pending"), 20),
            read("orders", 0, [], 30),
        ],
        "pet 1:",
    ),
    "an order of an available pet was refused": ([*CREATED, refused("o1", 1, 10)], "pet 1:"),
    "a response without a reason says that it is a replay": (
        [
            *CREATED,
            replace(place(1, 1, 10), response=response(201, order(1, 1, "placed"), replayed=True)),
        ],
        "pet 1:",
    ),
}


@pytest.mark.parametrize("what", UNEXPLAINED)
def test_a_wrong_history_is_not_explained(what: str) -> None:
    history, sentence = UNEXPLAINED[what]
    found, undecided = violations(history)
    assert [text for text in found if sentence in text], found
    assert undecided == 0


def test_requests_of_unknown_outcome_that_are_repeated_do_not_tire_the_search() -> None:
    again = [replace(unknown(place(9, 1, 20)), sent=20 + n / 100) for n in range(500)]
    assert len(operations_of([*TAKEN, *again])[1]) == len(["create", "place", "again"])
    late = read("pet", 1, pet(1, "available"), 30)
    closed = close(1, 1, "cancelled", 12)
    assert violations([*TAKEN, closed, *again, late]) == ([], 0)


def test_a_search_that_is_given_up_is_counted_and_no_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = [*CREATED, place(1, 1, 10), read("pet", 1, pet(1, "sold"), 10)]
    assert len(violations(history)[0]) == 1
    monkeypatch.setattr(linearizability, "BUDGET", 1)
    assert violations(history) == ([], 2)


def test_the_shortest_piece_has_what_the_contradiction_needs() -> None:
    history = [
        *TAKEN,
        place(3, 2, 11),
        read("pet", 1, pet(1, "pending"), 12),
        place(2, 1, 14),
        read("pet", 1, pet(1, "pending"), 16),
    ]
    ((first, *lines),) = [text.splitlines() for text in violations(history)[0] if "\n" in text]
    assert first == "pet 1:"
    assert [line.split(": ")[1] for line in lines] == [
        "create pet c1",
        "order pet 1 with the key o1",
        "order pet 1 with the key o2",
    ]
    assert [line.endswith("<- here") for line in lines] == [False, False, True]
