"""The Store group over HTTP. What orders do to pets, the kit tests over HTTP, too."""

import re
from datetime import UTC, datetime

import httpx
import pytest

from tests.support.hostile_inputs import BAD_BODIES, BAD_VALUES, NON_INTEGERS
from tests.support.interface import ORDERS, PETS
from tests.support.orders import PET_STATUS, ordered, place_order
from tests.support.pets import add_pet
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
from tests.support.responses import check_error, next_link
from tests.support.services import Live

CHECKED = (((), b"{" * (LIMIT + 1), 415), ((JSON,), b"{" * (LIMIT + 1), 413), ((JSON,), b"{", 400))
"""Headers and bodies of wrong requests, and their status codes: the order of the checks."""

IDS = ("9223372036854775808", "-9223372036854775809", "1.0", '"1"', "true", "[1]")
STATUSES = (
    *("null", '""', '"Placed"', '"sold"', '"available"', '"completed "'),
    *("1", "true", '["placed"]', "{}"),
)
"""Values that these fields do not take."""


def test_an_order_is_placed_now(service: Live) -> None:
    pet_id, before = add_pet(service), datetime.now(UTC)
    response = place_order(service, pet_id)
    order, after = response.json(), datetime.now(UTC)
    assert order == {
        "id": order["id"],
        "petId": pet_id,
        "status": "placed",
        "placedAt": order["placedAt"],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", order["placedAt"])
    assert before <= datetime.fromisoformat(order["placedAt"]) <= after


def test_other_members_of_an_update_are_ignored(service: Live) -> None:
    order = service.client.get(location := ordered(service)).json()
    more = {"id": 1, "petId": 1, "placedAt": None, "x": [1.5], "status": "completed"}
    assert service.client.patch(location, json=more).json() == {**order, "status": "completed"}


@pytest.mark.parametrize("status", ["placed", "completed"])
def test_the_body_is_checked_before_the_status(service: Live, status: str) -> None:
    line = f"PATCH {ordered(service, status)}"
    for headers, body, code in CHECKED:
        assert request(service, line, *headers, body=body).status_code == code


@each("id_", ["0", "9007199254740991", "x", "01"])
def test_a_missing_order_is_404_before_its_body_is_read(service: Live, id_: str) -> None:
    line = f"PATCH {ORDERS}/{id_}"
    for headers, body, _ in CHECKED:
        assert request(service, line, *headers, body=body).status_code == 404
    waiting = (HOST, CLOSE, JSON, "Content-Length: 9", "Expect: 100-continue")
    assert statuses(service.raw(head(line, AUTHORIZED, *waiting))) == [404]
    assert statuses(service.raw(head(line, *waiting))) == [401]


def test_cursors_and_statuses_of_pets_are_invalid_for_orders_and_the_reverse(fresh: Live) -> None:
    for _ in range(2):
        place_order(fresh, add_pet(fresh))
    for own, other, values in ((ORDERS, PETS, PET_STATUS), (PETS, ORDERS, PET_STATUS.values())):
        url = httpx.URL(next_link(fresh.client.get(f"{own}?limit=1")) or "")
        assert url.path == own
        for query in (f"cursor={url.params['cursor']}", *(f"status={value}" for value in values)):
            assert fresh.client.get(f"{own}?{query}").status_code == 200
            check_error(fresh.client.get(f"{other}?{query}"), 400, "invalid_request")


def test_invalid_bodies_are_400_and_change_nothing(service: Live) -> None:
    location = ordered(service)
    for line, field, values, good in (
        (f"POST {ORDERS}", "petId", IDS, b"1"),
        (f"PATCH {location}", "status", STATUSES, b'"completed"'),
    ):
        for value in values:
            response = request(service, line, JSON, body=f'{{"{field}":{value}}}'.encode())
            assert f"body.{field}:" in check_error(response, 400, "invalid_request")
        bodies = [b'{"%b":%b}' % (field.encode(), value) for value in (*BAD_VALUES, *NON_INTEGERS)]
        odd = [b'{"petId":1,"status":"placed","x":%s}' % value for value in BAD_VALUES]
        repeated = b'{"%b":%b,"%b":%b}' % ((field.encode(), good) * 2)
        for body in (*bodies, *odd, repeated, *BAD_BODIES):
            assert request(service, line, JSON, body=body).status_code == 400
    assert service.client.get(location).json()["status"] == "placed"
