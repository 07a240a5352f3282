"""The Store group as it was decided: orders, and what they do to the animals' statuses.

Its pages, paths and hostile requests: test_store_http.py.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx
import pytest
from httpx import Response

from tests.live import Live
from tests.test_hostile import (
    AUTHORIZED,
    CLOSE,
    HOST,
    JSON,
    LIMIT,
    ask,
    each,
    head,
    statuses,
)
from tests.test_paging import in_thread_client
from tests.test_specification import check_error

ORDERS = "/v1/store/orders"
PET_STATUS = {"placed": "pending", "completed": "sold", "cancelled": "available"}
CLOSED = ("completed", "cancelled")


def add(live: Live, status: str | None = "available") -> int:
    """Add an animal; return its id."""
    body = {"name": "Rex", "categoryId": 7} | ({"status": status} if status else {})
    return int(live.client.post("/v1/pets", json=body).json()["id"])


def place(live: Live, pet_id: object) -> Response:
    """Ask to order an animal."""
    return live.client.post(ORDERS, json={"petId": pet_id})


def ordered(live: Live, status: str = "placed") -> str:
    """Order an animal of its own and bring the order to a status; return where the order is."""
    location = place(live, add(live)).headers["location"]
    assert update(live, location, status).status_code == 200
    return str(location)


def update(live: Live, location: str, status: object) -> Response:
    """Ask to change the status of an order."""
    return live.client.patch(location, json={"status": status})


def pet_status(live: Live, pet_id: int) -> str | None:
    """Return the status of an animal."""
    status: str | None = live.client.get(f"/v1/pets/{pet_id}").json().get("status")
    return status


def ids(live: Live, path: str) -> list[int]:
    """Return the ids of the items of a page."""
    return [item["id"] for item in live.client.get(path).json()]


class TestPlaceOrder:
    """POST /store/orders."""

    def test_an_available_animal_is_ordered(self, service: Live) -> None:
        pet_id = add(service)
        before = datetime.now(UTC)
        answer = place(service, pet_id)
        after = datetime.now(UTC)
        assert answer.status_code == 201
        assert answer.headers["content-type"] == "application/json"
        order = answer.json()
        assert set(order) == {"id", "petId", "status", "placedAt"}
        assert type(order["id"]) is int
        assert 1 <= order["id"] <= 2**53 - 1
        assert (order["petId"], order["status"]) == (pet_id, "placed")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", order["placedAt"])
        assert before <= datetime.fromisoformat(order["placedAt"]) <= after
        assert answer.headers["location"] == f"{ORDERS}/{order['id']}"
        got = service.client.get(answer.headers["location"])
        assert got.status_code == 200
        assert got.headers["content-type"] == "application/json"
        assert got.json() == order

    def test_the_animal_becomes_pending_in_every_answer(self, fresh: Live) -> None:
        pet_id, other = add(fresh), add(fresh)
        assert place(fresh, pet_id).status_code == 201
        assert pet_status(fresh, pet_id) == "pending"
        assert ids(fresh, "/v1/pets") == sorted((pet_id, other))
        assert ids(fresh, "/v1/pets?status=available") == [other]
        assert ids(fresh, "/v1/pets?status=pending") == [pet_id]

    @pytest.mark.parametrize("status", [None, "pending", "sold"])
    def test_an_animal_that_is_not_available_is_409(
        self, service: Live, status: str | None
    ) -> None:
        pet_id = add(service, status)
        check_error(place(service, pet_id), 409, "conflict")
        assert pet_status(service, pet_id) == status

    @pytest.mark.parametrize("status", ["placed", "completed"])
    def test_an_animal_is_not_ordered_twice(self, service: Live, status: str) -> None:
        pet_id = service.client.get(ordered(service, status)).json()["petId"]
        check_error(place(service, pet_id), 409, "conflict")
        assert pet_status(service, pet_id) == PET_STATUS[status]

    @pytest.mark.parametrize("pet_id", [0, -1, 2**53 - 1, 2**53, 2**63 - 1, -(2**63)])
    def test_an_animal_that_does_not_exist_is_404(self, service: Live, pet_id: int) -> None:
        check_error(place(service, pet_id), 404, "not_found")

    @each("value", [b"9223372036854775808", b"-9223372036854775809", b"1.0", b"1e0", b'"1"',
                    b"true", b"null", b"[1]", b"{}"])  # fmt: skip
    def test_what_is_no_int64_is_400(self, service: Live, value: bytes) -> None:
        answer = ask(service, f"POST {ORDERS}", JSON, body=b'{"petId":%s}' % value)
        assert "petId" in check_error(answer, 400, "invalid_request")

    def test_the_animal_must_be_named(self, service: Live) -> None:
        answer = service.client.post(ORDERS, json={"pet_id": 1})
        assert "petId" in check_error(answer, 400, "invalid_request")

    def test_unknown_properties_are_ignored(self, service: Live) -> None:
        body = {"petId": (pet_id := add(service)), "id": 5, "status": "completed", "x": [None]}
        order = service.client.post(ORDERS, json=body).json()
        assert set(order) == {"id", "petId", "status", "placedAt"}
        assert (order["petId"], order["status"]) == (pet_id, "placed")

    def test_the_body_is_looked_at_before_the_animal(self, service: Live) -> None:
        big = b'{"petId":0,"x":"%s"}' % (b"x" * LIMIT)
        cases = ((), b"{", 415), ((), big, 415), ((JSON,), big, 413), ((JSON,), b'{"petId":0', 400)
        for fields, body, status in cases:
            assert ask(service, f"POST {ORDERS}", *fields, body=body).status_code == status


class TestUpdateOrder:
    """PATCH /store/orders/{orderId}."""

    @pytest.mark.parametrize("status", CLOSED)
    def test_a_placed_order_is_closed_and_its_animal_follows_at_once(
        self, fresh: Live, status: str
    ) -> None:
        order = place(fresh, add(fresh)).json()
        location = f"{ORDERS}/{order['id']}"
        answer = update(fresh, location, status)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {**order, "status": status}
        assert fresh.client.get(location).json() == answer.json()
        assert fresh.client.get(f"{ORDERS}?status={status}").json() == [answer.json()]
        for other in {"placed", *CLOSED} - {status}:
            assert ids(fresh, f"{ORDERS}?status={other}") == []
        assert pet_status(fresh, order["petId"]) == PET_STATUS[status]
        for of_pet in PET_STATUS.values():
            found = [order["petId"]] if of_pet == PET_STATUS[status] else []
            assert ids(fresh, f"/v1/pets?status={of_pet}") == found

    @pytest.mark.parametrize("status", PET_STATUS)
    def test_the_status_that_it_has_changes_nothing(self, service: Live, status: str) -> None:
        location = ordered(service, status)
        order = service.client.get(location).json()
        for _ in range(2):
            answer = update(service, location, status)
            assert answer.status_code == 200
            assert answer.json() == service.client.get(location).json() == order
            assert pet_status(service, order["petId"]) == PET_STATUS[status]

    @pytest.mark.parametrize("of_pet", ["pending", "sold"])
    def test_cancelling_again_does_not_touch_a_later_order(
        self, service: Live, of_pet: str
    ) -> None:
        location = ordered(service, "cancelled")
        pet_id = service.client.get(location).json()["petId"]
        later = place(service, pet_id)
        assert later.status_code == 201
        if of_pet == "sold":
            update(service, later.headers["location"], "completed")
        for status, code in (("cancelled", 200), ("completed", 409), ("placed", 409)):
            assert update(service, location, status).status_code == code
            assert pet_status(service, pet_id) == of_pet

    @pytest.mark.parametrize("status", CLOSED)
    def test_a_closed_order_takes_no_other_status(self, service: Live, status: str) -> None:
        location = ordered(service, status)
        order = service.client.get(location).json()
        for other in PET_STATUS.keys() - {status}:
            check_error(update(service, location, other), 409, "conflict")
        assert service.client.get(location).json() == order
        assert pet_status(service, order["petId"]) == PET_STATUS[status]

    @pytest.mark.parametrize(
        "value", [None, "", "Placed", "sold", "available", "completed ", 1, True, ["placed"], {}]
    )
    def test_another_status_is_400(self, service: Live, value: object) -> None:
        location = ordered(service)
        answer = update(service, location, value)
        assert "status" in check_error(answer, 400, "invalid_request")
        assert service.client.get(location).json()["status"] == "placed"

    def test_the_status_must_be_named_and_all_else_is_ignored(self, service: Live) -> None:
        order = service.client.get(location := ordered(service)).json()
        more = {"id": 1, "petId": 1, "placedAt": None, "x": [1.5]}
        check_error(service.client.patch(location, json=more), 400, "invalid_request")
        answer = service.client.patch(location, json={**more, "status": "completed"})
        assert answer.json() == {**order, "status": "completed"}

    def test_a_missing_order_is_404_before_its_body_is_read(self, service: Live) -> None:
        for id_ in ("0", "9007199254740991", "x", "01"):
            line = f"PATCH {ORDERS}/{id_}"
            for fields, body in (((), b"{"), ((JSON,), b"{"), ((JSON,), b"x" * (LIMIT + 1))):
                assert ask(service, line, *fields, body=body).status_code == 404
            waiting = (HOST, CLOSE, JSON, "Content-Length: 9", "Expect: 100-continue")
            assert statuses(service.raw(head(line, AUTHORIZED, *waiting))) == [404]
            assert statuses(service.raw(head(line, *waiting))) == [401]

    @pytest.mark.parametrize("status", ["placed", "completed"])
    def test_the_body_is_looked_at_before_the_status(self, service: Live, status: str) -> None:
        line, big = f"PATCH {ordered(service, status)}", b"{" * (LIMIT + 1)
        for fields, body, code in (((), big, 415), ((JSON,), big, 413), ((JSON,), b"{", 400)):
            assert ask(service, line, *fields, body=body).status_code == code


class TestAtOnce:
    def test_an_animal_is_ordered_by_one_of_many(self, service: Live) -> None:
        pet_id = add(service)
        got = sorted(
            at_once(service, 24, lambda client, _: client.post(ORDERS, json={"petId": pet_id}))
        )
        assert got == [201] + [409] * 23

    def test_an_order_is_completed_or_cancelled_but_not_both(self, service: Live) -> None:
        location = ordered(service)
        got = at_once(
            service, 24, lambda client, n: client.patch(location, json={"status": CLOSED[n % 2]})
        )
        order = service.client.get(location).json()
        won = CLOSED.index(order["status"])
        assert got == [200 if n % 2 == won else 409 for n in range(24)]
        assert pet_status(service, order["petId"]) == PET_STATUS[order["status"]]


def at_once(live: Live, count: int, send: Callable[[httpx.Client, int], Response]) -> list[int]:
    """Send many requests at the same time; return their statuses."""
    with in_thread_client(live) as client, ThreadPoolExecutor(count) as pool:
        return [answer.status_code for answer in pool.map(lambda n: send(client, n), range(count))]
