"""Safe retries: what `Idempotency-Key` promises to a client that repeats a POST.

What a key is, and whose: test_idempotency_keys.py.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from httpx import Response
from hypothesis import assume, given, settings
from msgspec import Struct

from tests.conftest import Start
from tests.live import KEY, Live
from tests.test_hostile import JSON, LIMIT, ask
from tests.test_model import ANIMALS
from tests.test_specification import check_error
from tests.test_store import CLOSED, ORDERS, PET_STATUS, add, ordered, pet_status, place, update

PETS = "/v1/pets"
PATHS = (PETS, ORDERS)
REX = {"name": "Rex", "categoryId": 7}
DAY = timedelta(hours=24)


def send(
    live: Live, path: str, body: object, key: str, *, client: str = KEY, method: str = "POST"
) -> Response:
    """Send a request with an Idempotency-Key, as the client with an API key."""
    headers = {"Idempotency-Key": key, "Authorization": f"Bearer {client}"}
    return live.client.request(method, path, json=body, headers=headers)


def check_first(answer: Response) -> Response:
    """Check that something was added, and not by an earlier request; return the answer."""
    assert answer.status_code == 201
    assert "idempotency-replayed" not in answer.headers
    return answer


def check_replay(answer: Response, first: Response) -> None:
    """Check that an answer is an earlier one again."""
    assert answer.headers.get_list("idempotency-replayed") == ["true"]
    assert answer.status_code == first.status_code == 201
    assert answer.content == first.content
    for name in ("location", "content-type", "cache-control"):
        assert answer.headers[name] == first.headers[name]


def check_reused(answer: Response) -> None:
    """Check that a key was refused for another body."""
    assert "Idempotency-Key" in check_error(answer, 409, "conflict")


def everything(live: Live) -> list[object]:
    """Return all that is in a small store."""
    return [live.client.get(f"{path}?limit=100").json() for path in PATHS]


def new_key() -> str:
    """Return a key that no other test has."""
    return str(uuid4())


def bodies(live: Live, path: str) -> Iterator[dict[str, object]]:
    """Yield bodies that can be sent to an operation, no two the same."""
    while True:
        yield {"petId": add(live)} if path == ORDERS else {"name": new_key(), "categoryId": 7}


@pytest.mark.parametrize("path", PATHS)
class TestReplay:
    def test_the_first_answer_comes_again_and_nothing_changes(self, fresh: Live, path: str) -> None:
        body = next(bodies(fresh, path))
        first = check_first(send(fresh, path, body, "k"))
        before = everything(fresh)
        for _ in range(3):
            check_replay(send(fresh, path, body, "k"), first)
        assert everything(fresh) == before

    def test_another_body_is_409_and_nothing_changes(self, fresh: Live, path: str) -> None:
        some = bodies(fresh, path)
        first = check_first(send(fresh, path, body := next(some), "k"))
        other = next(some)
        before = everything(fresh)
        check_reused(send(fresh, path, other, "k"))
        assert everything(fresh) == before
        check_replay(send(fresh, path, body, "k"), first)
        check_first(send(fresh, path, other, "l"))

    def test_without_a_key_nothing_is_a_replay(self, service: Live, path: str) -> None:
        if path == PETS:
            pets = [service.client.post(path, json=REX) for _ in range(2)]
            assert len({check_first(pet).json()["id"] for pet in pets}) == 2
        else:
            pet_id = add(service)
            check_first(place(service, pet_id))
            check_error(place(service, pet_id), 409, "conflict")

    def test_many_requests_at_once_have_one_effect(self, service: Live, path: str) -> None:
        body = next(bodies(service, path))
        got = at_once(service, path, [body] * 24, new_key())
        [first] = [answer for answer in got if "idempotency-replayed" not in answer.headers]
        for answer in got:
            if answer is not first:
                check_replay(answer, first)
        check_first(first)

    def test_of_many_bodies_at_once_one_has_an_effect(self, service: Live, path: str) -> None:
        some = bodies(service, path)
        sent = [next(some) for _ in range(12)]
        got = at_once(service, path, sent, new_key())
        [first] = [answer for answer in got if answer.status_code == 201]
        check_first(first)
        for answer in got:
            if answer is not first:
                check_reused(answer)

    def test_a_bad_key_is_looked_at_after_type_and_size(self, service: Live, path: str) -> None:
        big = b"{" * (LIMIT + 1)
        for fields, body, status in (((), big, 415), ((JSON,), big, 413), ((JSON,), b"{}", 400)):
            answer = ask(service, f"POST {path}", "Idempotency-Key: a b", *fields, body=body)
            assert answer.status_code == status


@pytest.mark.parametrize("status", PET_STATUS)
def test_a_replayed_order_is_the_placed_one_whatever_has_become_of_it(
    service: Live, status: str
) -> None:
    body, key = {"petId": (pet_id := add(service))}, new_key()
    first = check_first(send(service, ORDERS, body, key))
    order = update(service, first.headers["location"], status).json()
    check_replay(send(service, ORDERS, body, key), first)
    assert first.json()["status"] == "placed"
    assert service.client.get(first.headers["location"]).json() == order
    assert pet_status(service, pet_id) == PET_STATUS[status]


def test_a_replayed_animal_is_the_one_that_was_added(service: Live) -> None:
    body, key = REX | {"status": "available"}, new_key()
    first = check_first(send(service, PETS, body, key))
    place(service, first.json()["id"])
    check_replay(send(service, PETS, body, key), first)
    assert pet_status(service, first.json()["id"]) == "pending"


def test_a_reused_key_is_409_before_the_animal_is_looked_for(service: Live) -> None:
    send(service, ORDERS, {"petId": add(service)}, key := new_key())
    for pet_id in (0, 2**53 - 1, 2**63 - 1, add(service, "sold")):
        check_reused(send(service, ORDERS, {"petId": pet_id}, key))


SAME = [
    b'{"categoryId":7,"name":"Rex"}', b' {\n"name" : "Rex",\t"categoryId" : 7 }\r\n',
    b'{"name":"\\u0052\\u0065x","\\u0063ategoryId":7}',
    b'{"name":"Ida","categoryId":7,"name":"Rex"}',
    b'{"name":"Rex","categoryId":7,"id":5,"x":[{"y":null}]}',
]  # fmt: skip
OTHER = [
    b'{"name":"rex","categoryId":7}', b'{"name":"Rex ","categoryId":7}',
    b'{"name":"Re\xcc\x81x","categoryId":7}', b'{"name":"R\xc3\xa9x","categoryId":7}',
    b'{"name":"Rex","categoryId":-7}', b'{"name":"Rex","categoryId":7,"status":"available"}',
    b'{"name":"Rex","categoryId":7,"status":"sold"}',
]  # fmt: skip


def test_bodies_are_the_same_when_they_are_equal_after_decoding(service: Live) -> None:
    field = f"Idempotency-Key: {new_key()}"
    first = check_first(ask(service, f"POST {PETS}", JSON, field, body=SAME[0]))
    for body in SAME:
        check_replay(ask(service, f"POST {PETS}", JSON, field, body=body), first)
    for body in OTHER:
        check_reused(ask(service, f"POST {PETS}", JSON, field, body=body))
    pet_id, field = add(service), f"Idempotency-Key: {new_key()}"
    same = [b'{"petId":%d}' % pet_id, b' {"x":1,"p\\u0065tId" :%d}' % pet_id]
    first = check_first(ask(service, f"POST {ORDERS}", JSON, field, body=same[0]))
    check_replay(ask(service, f"POST {ORDERS}", JSON, field, body=same[1]), first)


class TestRefused:
    """Answers other than 201 are not recorded."""

    def test_a_refused_body_leaves_the_key_free(self, service: Live) -> None:
        field = f"Idempotency-Key: {new_key()}"
        refused = (((), SAME[0], 415), ((JSON,), b" " * (LIMIT + 1), 413), ((JSON,), b"{}", 400))
        for fields, body, status in refused:
            answer = ask(service, f"POST {PETS}", field, *fields, body=body)
            assert answer.status_code == status
        check_first(ask(service, f"POST {PETS}", field, JSON, body=SAME[0]))

    def test_an_animal_that_appears_can_be_ordered_with_the_key(self, fresh: Live) -> None:
        body = {"petId": add(fresh) + 1}
        check_error(send(fresh, ORDERS, body, "k"), 404, "not_found")
        assert any(add(fresh) == body["petId"] for _ in range(20))  # partitions take turns
        first = check_first(send(fresh, ORDERS, body, "k"))
        check_replay(send(fresh, ORDERS, body, "k"), first)

    def test_an_animal_that_becomes_available_can_be_ordered_with_the_key(
        self, service: Live
    ) -> None:
        body, key = service.client.get(location := ordered(service)).json(), new_key()
        check_error(send(service, ORDERS, body, key), 409, "conflict")
        update(service, location, CLOSED[1])
        check_first(send(service, ORDERS, body, key))


class Time(Struct):
    """A clock that a test moves."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("part", [0, 1, 900_000])
def test_a_key_is_forgotten_after_24_hours_however_often_it_was_repeated(
    fresh: Live, path: str, part: int
) -> None:
    begin = datetime(2026, 11, 21, 9, 30, 0, part, UTC)
    fresh.service.clock = time = Time(begin)
    some = bodies(fresh, path)
    first = check_first(send(fresh, path, body := next(some), "k"))
    for later in (DAY / 2, DAY - timedelta(microseconds=1)):
        time.now = begin + later
        check_replay(send(fresh, path, body, "k"), first)
        check_reused(send(fresh, path, next(some), "k"))
    # A backend counts in seconds: what began within one is kept for a part of one longer.
    time.now = begin + DAY + timedelta(seconds=1 if part else 0)
    second = check_first(send(fresh, path, body := next(some), "k"))
    assert second.headers["location"] != first.headers["location"]
    time.now += DAY - timedelta(seconds=1)
    check_replay(send(fresh, path, body, "k"), second)


@pytest.mark.parametrize("path", PATHS)
def test_a_retry_after_a_restart_is_a_replay(start: Start, tmp_path: Path, path: str) -> None:
    stored = {"backend": "sqlite", "sqlite_path": str(tmp_path / "pets"), "drain_seconds": "0"}
    live = start(**stored)
    body = next(bodies(live, path))
    first = check_first(send(live, path, body, "k"))
    before = everything(live)
    live.stop(9)
    live = start(**stored)
    check_replay(send(live, path, body, "k"), first)
    assert everything(live) == before
    check_reused(send(live, path, next(bodies(live, path)), "k"))


@settings(max_examples=50)
@given(body=ANIMALS, other=ANIMALS)
def test_any_bodies_that_differ_conflict(
    service: Live, body: dict[str, object], other: dict[str, object]
) -> None:
    assume(body != other)
    first = check_first(send(service, PETS, body, key := new_key()))
    check_reused(send(service, PETS, other, key))
    check_replay(send(service, PETS, dict(reversed(body.items())), key), first)


def at_once(live: Live, path: str, sent: list[dict[str, object]], key: str) -> list[Response]:
    """Send many requests with one key at the same time, each over a connection of its own."""
    headers = {"Idempotency-Key": key, "Authorization": f"Bearer {KEY}"}

    async def run() -> list[Response]:
        async with httpx.AsyncClient(base_url=live.url, headers=headers, timeout=10) as client:
            return await asyncio.gather(*(client.post(path, json=body) for body in sent))

    return asyncio.run(run())
