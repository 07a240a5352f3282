"""The Store group: orders, and how they change the statuses of their pets."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx
import pytest
from httpx import Response

from petstore.config.settings import Settings
from tests.support.hostile_inputs import BAD_BODIES, BAD_QUERIES, BAD_VALUES, NON_INTEGERS, ODD_IDS
from tests.support.interface import ORDERS
from tests.support.orders import CLOSED, PET_STATUS, ordered, place_order, update_order
from tests.support.pets import add_pet, pet_status
from tests.support.raw_http import (
    AUTHORIZED,
    CLOSE,
    HOST,
    JSON,
    LIMIT,
    each,
    head,
    request,
    statuses,
)
from tests.support.responses import check_error, ids, next_link, pages
from tests.support.services import Live, in_thread


class TestPlaceOrder:
    """POST /store/orders."""

    def test_an_available_pet_is_ordered(self, service: Live) -> None:
        pet_id = add_pet(service)
        before = datetime.now(UTC)
        response = place_order(service, pet_id)
        after = datetime.now(UTC)
        assert response.status_code == 201
        assert response.headers["content-type"] == "application/json"
        order = response.json()
        assert set(order) == {"id", "petId", "status", "placedAt"}
        assert type(order["id"]) is int
        assert 1 <= order["id"] <= 2**53 - 1
        assert (order["petId"], order["status"]) == (pet_id, "placed")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", order["placedAt"])
        assert before <= datetime.fromisoformat(order["placedAt"]) <= after
        assert response.headers["location"] == f"{ORDERS}/{order['id']}"
        got = service.client.get(response.headers["location"])
        assert got.status_code == 200
        assert got.headers["content-type"] == "application/json"
        assert got.json() == order

    def test_the_pet_becomes_pending_in_every_response(self, fresh: Live) -> None:
        pet_id, other = add_pet(fresh), add_pet(fresh)
        assert place_order(fresh, pet_id).status_code == 201
        assert pet_status(fresh, pet_id) == "pending"
        assert ids(fresh.client.get("/v1/pets").json()) == sorted((pet_id, other))
        assert ids(fresh.client.get("/v1/pets?status=available").json()) == [other]
        assert ids(fresh.client.get("/v1/pets?status=pending").json()) == [pet_id]

    @pytest.mark.parametrize("status", [None, "pending", "sold"])
    def test_a_pet_that_is_not_available_is_409(self, service: Live, status: str | None) -> None:
        pet_id = add_pet(service, status)
        check_error(place_order(service, pet_id), 409, "conflict")
        assert pet_status(service, pet_id) == status

    @pytest.mark.parametrize("status", ["placed", "completed"])
    def test_a_pet_is_not_ordered_twice(self, service: Live, status: str) -> None:
        pet_id = service.client.get(ordered(service, status)).json()["petId"]
        check_error(place_order(service, pet_id), 409, "conflict")
        assert pet_status(service, pet_id) == PET_STATUS[status]

    @pytest.mark.parametrize("pet_id", [0, -1, 2**53 - 1, 2**53, 2**63 - 1, -(2**63)])
    def test_an_unknown_pet_is_404(self, service: Live, pet_id: int) -> None:
        check_error(place_order(service, pet_id), 404, "not_found")

    @each(
        "value",
        [
            b"9223372036854775808",
            b"-9223372036854775809",
            b"1.0",
            b"1e0",
            b'"1"',
            b"true",
            b"null",
            b"[1]",
            b"{}",
        ],
    )
    def test_a_pet_id_that_is_not_an_int64_is_400(self, service: Live, value: bytes) -> None:
        response = request(service, f"POST {ORDERS}", JSON, body=b'{"petId":%s}' % value)
        assert "petId" in check_error(response, 400, "invalid_request")

    def test_the_pet_id_must_be_present(self, service: Live) -> None:
        response = service.client.post(ORDERS, json={"pet_id": 1})
        assert "petId" in check_error(response, 400, "invalid_request")

    def test_unknown_properties_are_ignored(self, service: Live) -> None:
        body = {"petId": (pet_id := add_pet(service)), "id": 5, "status": "completed", "x": [None]}
        order = service.client.post(ORDERS, json=body).json()
        assert set(order) == {"id", "petId", "status", "placedAt"}
        assert (order["petId"], order["status"]) == (pet_id, "placed")

    def test_the_body_is_checked_before_the_pet(self, service: Live) -> None:
        big = b'{"petId":0,"x":"%s"}' % (b"x" * LIMIT)
        cases = ((), b"{", 415), ((), big, 415), ((JSON,), big, 413), ((JSON,), b'{"petId":0', 400)
        for headers, body, status in cases:
            assert request(service, f"POST {ORDERS}", *headers, body=body).status_code == status


class TestUpdateOrder:
    """PATCH /store/orders/{orderId}."""

    @pytest.mark.parametrize("status", CLOSED)
    def test_when_a_placed_order_is_closed_its_pet_changes_in_the_same_step(
        self, fresh: Live, status: str
    ) -> None:
        order = place_order(fresh, add_pet(fresh)).json()
        location = f"{ORDERS}/{order['id']}"
        response = update_order(fresh, location, status)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {**order, "status": status}
        assert fresh.client.get(location).json() == response.json()
        assert fresh.client.get(f"{ORDERS}?status={status}").json() == [response.json()]
        for other in {"placed", *CLOSED} - {status}:
            assert ids(fresh.client.get(f"{ORDERS}?status={other}").json()) == []
        assert pet_status(fresh, order["petId"]) == PET_STATUS[status]
        for pet_status_ in PET_STATUS.values():
            found = [order["petId"]] if pet_status_ == PET_STATUS[status] else []
            assert ids(fresh.client.get(f"/v1/pets?status={pet_status_}").json()) == found

    @pytest.mark.parametrize("status", PET_STATUS)
    def test_the_current_status_changes_nothing(self, service: Live, status: str) -> None:
        location = ordered(service, status)
        order = service.client.get(location).json()
        for _ in range(2):
            response = update_order(service, location, status)
            assert response.status_code == 200
            assert response.json() == service.client.get(location).json() == order
            assert pet_status(service, order["petId"]) == PET_STATUS[status]

    @pytest.mark.parametrize("sold", [False, True])
    def test_cancelling_again_does_not_touch_a_later_order(self, service: Live, sold: bool) -> None:
        location = ordered(service, "cancelled")
        pet_id = service.client.get(location).json()["petId"]
        later = place_order(service, pet_id)
        assert later.status_code == 201
        if sold:
            update_order(service, later.headers["location"], "completed")
        for status, code in (("cancelled", 200), ("completed", 409), ("placed", 409)):
            assert update_order(service, location, status).status_code == code
            assert pet_status(service, pet_id) == ("sold" if sold else "pending")

    @pytest.mark.parametrize("status", CLOSED)
    def test_a_closed_order_accepts_no_other_status(self, service: Live, status: str) -> None:
        location = ordered(service, status)
        order = service.client.get(location).json()
        for other in PET_STATUS.keys() - {status}:
            check_error(update_order(service, location, other), 409, "conflict")
        assert service.client.get(location).json() == order
        assert pet_status(service, order["petId"]) == PET_STATUS[status]

    @pytest.mark.parametrize(
        "value", [None, "", "Placed", "sold", "available", "completed ", 1, True, ["placed"], {}]
    )
    def test_another_status_is_400(self, service: Live, value: object) -> None:
        location = ordered(service)
        response = update_order(service, location, value)
        assert "status" in check_error(response, 400, "invalid_request")
        assert service.client.get(location).json()["status"] == "placed"

    def test_the_status_must_be_present_and_everything_else_is_ignored(self, service: Live) -> None:
        order = service.client.get(location := ordered(service)).json()
        more = {"id": 1, "petId": 1, "placedAt": None, "x": [1.5]}
        check_error(service.client.patch(location, json=more), 400, "invalid_request")
        response = service.client.patch(location, json={**more, "status": "completed"})
        assert response.json() == {**order, "status": "completed"}

    def test_a_missing_order_is_404_before_its_body_is_read(self, service: Live) -> None:
        for id_ in ("0", "9007199254740991", "x", "01"):
            line = f"PATCH {ORDERS}/{id_}"
            for headers, body in (((), b"{"), ((JSON,), b"{"), ((JSON,), b"x" * (LIMIT + 1))):
                assert request(service, line, *headers, body=body).status_code == 404
            waiting = (HOST, CLOSE, JSON, "Content-Length: 9", "Expect: 100-continue")
            assert statuses(service.raw(head(line, AUTHORIZED, *waiting))) == [404]
            assert statuses(service.raw(head(line, *waiting))) == [401]

    @pytest.mark.parametrize("status", ["placed", "completed"])
    def test_the_body_is_checked_before_the_status(self, service: Live, status: str) -> None:
        line, big = f"PATCH {ordered(service, status)}", b"{" * (LIMIT + 1)
        for headers, body, code in (((), big, 415), ((JSON,), big, 413), ((JSON,), b"{", 400)):
            assert request(service, line, *headers, body=body).status_code == code


class TestSimultaneous:
    def test_one_of_many_simultaneous_orders_of_a_pet_is_placed(self, service: Live) -> None:
        pet_id = add_pet(service)
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
    """Send many requests at the same time; return their status codes."""
    with live.new_client() as client, ThreadPoolExecutor(count) as pool:
        return [r.status_code for r in pool.map(lambda n: send(client, n), range(count))]


class TestListOrders:
    """GET /store/orders. Its queries are parsed as those of listPets: test_pagination.py."""

    def test_a_walk_visits_every_order_once_in_ascending_id(self, fresh: Live) -> None:
        expected: list[int] = []
        for count in (0, 1, 6, 7, 21):
            expected += [
                place_order(fresh, add_pet(fresh)).json()["id"] for _ in range(len(expected), count)
            ]
            for limit in (1, 2, 3, 7, 100):
                found = [ids(page) for page in pages(fresh.client, f"{ORDERS}?limit={limit}")]
                assert [id_ for page in found for id_ in page] == sorted(expected)
                assert all(len(page) == limit for page in found[:-1])
                assert found[-1] or not expected
        assert ids(fresh.client.get(ORDERS).json()) == sorted(expected)[:20]

    def test_the_link_repeats_limit_and_status_and_its_cursor_works_with_others(
        self, fresh: Live
    ) -> None:
        order_ids: dict[str, list[int]] = {"placed": [], "completed": [], "cancelled": []}
        for status in list(order_ids) * 3:
            order_ids[status].append(int(ordered(fresh, status).rpartition("/")[2]))
        completed, cancelled = sorted(order_ids["completed"]), sorted(order_ids["cancelled"])
        link = next_link(fresh.client.get(f"{ORDERS}?limit=2&status=completed&x=1"))
        url = httpx.URL(link or "")
        assert url.path == ORDERS
        assert set(url.params) == {"limit", "status", "cursor"}
        assert (url.params["limit"], url.params["status"]) == ("2", "completed")
        assert ids(fresh.client.get(str(url)).json()) == completed[2:]
        rest = ids(
            fresh.client.get(f"{ORDERS}?status=cancelled&cursor={url.params['cursor']}").json()
        )
        assert rest == [id_ for id_ in cancelled if id_ > completed[1]]

    def test_cursors_and_statuses_of_pets_are_invalid_for_orders_and_the_reverse(
        self, fresh: Live
    ) -> None:
        for _ in range(2):
            place_order(fresh, add_pet(fresh))
        for own, other, values in (
            (ORDERS, "/v1/pets", PET_STATUS.keys()),
            ("/v1/pets", ORDERS, PET_STATUS.values()),
        ):
            cursor = httpx.URL(next_link(fresh.client.get(f"{own}?limit=1")) or "").params["cursor"]
            for query in (f"cursor={cursor}", *(f"status={value}" for value in values)):
                assert fresh.client.get(f"{own}?{query}").status_code == 200
                check_error(fresh.client.get(f"{other}?{query}"), 400, "invalid_request")

    def test_bad_queries_are_400(self, service: Live) -> None:
        for query in BAD_QUERIES:
            assert request(service, f"GET {ORDERS}?{query}").status_code == 400


class TestPathsAndMethods:
    @each("id_", ODD_IDS)
    def test_an_odd_id_is_404(self, service: Live, id_: str) -> None:
        for method in ("GET", "HEAD", "PATCH"):
            assert request(service, f"{method} {ORDERS}/{id_}").status_code == 404
            assert request(service, f"{method} {ORDERS}/{id_}", key="").status_code == 401

    @each("key", [AUTHORIZED, ""])
    def test_other_methods_are_405_and_options_lists_all(self, service: Live, key: str) -> None:
        for path, own in ((ORDERS, "POST"), (f"{ORDERS}/1", "PATCH"), (f"{ORDERS}/x", "PATCH")):
            for method in {"DELETE", "PUT", "PATCH", "POST", "OPTIONS"} - {own}:
                response = request(service, f"{method} {path}", key=key)
                assert response.status_code == (204 if method == "OPTIONS" else 405)
                assert response.headers["allow"] == f"GET, HEAD, OPTIONS, {own}"

    def test_head_responds_as_get_without_a_body(self, service: Live) -> None:
        location = ordered(service)
        got, headed = (
            request(service, f"{method} {location}", "X-Request-Id: a")
            for method in ("GET", "HEAD")
        )
        assert (headed.status_code, headed.content) == (200, b"")
        headed.headers["date"] = got.headers["date"]
        assert headed.headers == got.headers

    def test_locations_and_links_begin_with_the_public_prefix(self) -> None:
        with in_thread(Settings(root_path="/shop", drain_seconds=0)) as live:
            locations = [place_order(live, add_pet(live)).headers["location"] for _ in range(2)]
            link = next_link(live.client.get(f"{ORDERS}?limit=1")) or ""
        assert all(re.fullmatch(f"/shop{ORDERS}/[1-9][0-9]*", location) for location in locations)
        assert link.startswith(f"/shop{ORDERS}?")

    def test_hostile_bodies_are_400(self, service: Live) -> None:
        location = ordered(service)
        for line, field in ((f"POST {ORDERS}", b"petId"), (f"PATCH {location}", b"status")):
            bodies = [b'{"%s":%s}' % (field, value) for value in (*BAD_VALUES, *NON_INTEGERS)]
            odd = [b'{"petId":1,"status":"placed","x":%s}' % value for value in BAD_VALUES]
            for body in (*bodies, *odd, *BAD_BODIES):
                assert request(service, line, JSON, body=body).status_code == 400
