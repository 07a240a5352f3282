"""Safe retries: what `Idempotency-Key` guarantees to a client that repeats a POST.

First the effect of a repeated request, then the syntax of a key and its scope.
"""

import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from httpx import Response
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from petstore.http.clock import RECORD_SECONDS, TokenClock
from tests.support.interface import ORDERS, PETS
from tests.support.key_files import key_line
from tests.support.orders import ordered, update_order
from tests.support.pets import REX, add_pet
from tests.support.raw_http import JSON, LIMIT, each, request
from tests.support.responses import check_error
from tests.support.services import KEY, Live, Start

PATHS = (PETS, ORDERS)
DAY = timedelta(hours=24)


def send(
    live: Live, path: str, body: object, key: str, *, client: str = KEY, method: str = "POST"
) -> Response:
    """Send a request with an Idempotency-Key, as the client with this API key."""
    headers = {"Idempotency-Key": key, "Authorization": f"Bearer {client}"}
    return live.client.request(method, path, json=body, headers=headers)


def check_first(response: Response) -> Response:
    """Check that this request, not an earlier one, created something; return the response."""
    assert response.status_code == 201
    assert "idempotency-replayed" not in response.headers
    return response


def check_replay(response: Response, first: Response) -> None:
    """Check that a response repeats an earlier one."""
    assert response.headers.get_list("idempotency-replayed") == ["true"]
    assert response.status_code == first.status_code == 201
    assert response.content == first.content
    for name in ("location", "content-type", "cache-control"):
        assert response.headers[name] == first.headers[name]


def check_reused(response: Response) -> None:
    """Check that a key was refused because it was used with another body."""
    assert "Idempotency-Key" in check_error(response, 409, "conflict")


def everything(live: Live) -> list[object]:
    """Return everything in a small store."""
    return [live.client.get(f"{path}?limit=100").json() for path in PATHS]


def new_key() -> str:
    """Return a key that no other test uses."""
    return str(uuid4())


def bodies(live: Live, path: str) -> Iterator[dict[str, object]]:
    """Yield valid bodies for an operation, no two the same."""
    while True:
        yield {"petId": add_pet(live)} if path == ORDERS else {"name": new_key(), "categoryId": 7}


@pytest.mark.parametrize("path", PATHS)
def test_the_key_is_checked_last_and_a_refused_body_does_not_use_it_up(
    service: Live, path: str
) -> None:
    big, key = b"{" * (LIMIT + 1), new_key()
    for sent in ("a b", key):
        for headers, body, status in (((), big, 415), ((JSON,), big, 413), ((JSON,), b"{}", 400)):
            given = f"Idempotency-Key: {sent}"
            response = request(service, f"POST {path}", given, *headers, body=body)
            assert response.status_code == status
    check_first(send(service, path, next(bodies(service, path)), key))


def test_a_replay_is_the_first_response_whatever_became_of_pet_and_order(service: Live) -> None:
    body, key = REX | {"status": "available"}, new_key()
    pet = check_first(send(service, PETS, body, key))
    ordering = {"petId": pet.json()["id"]}
    order = check_first(send(service, ORDERS, ordering, key))
    update_order(service, order.headers["location"], "completed")
    check_replay(send(service, PETS, body, key), pet)
    check_replay(send(service, ORDERS, ordering, key), order)


SAME = [
    b'{"categoryId":7,"name":"Rex"}',
    b' {\n"name" : "Rex",\t"categoryId" : 7 }\r\n',
    b'{"name":"\\u0052\\u0065x","\\u0063ategoryId":7}',
    b'{"name":"Rex","categoryId":7,"id":5,"x":[{"y":null}]}',
]
OTHER = [
    b'{"name":"rex","categoryId":7}',
    b'{"name":"Rex ","categoryId":7}',
    b'{"name":"Re\xcc\x81x","categoryId":7}',
    b'{"name":"R\xc3\xa9x","categoryId":7}',
    b'{"name":"Rex","categoryId":-7}',
    b'{"name":"Rex","categoryId":7,"status":"available"}',
    b'{"name":"Rex","categoryId":7,"status":"sold"}',
]


def test_bodies_are_the_same_when_they_are_equal_after_decoding(service: Live) -> None:
    header = f"Idempotency-Key: {new_key()}"
    first = check_first(request(service, f"POST {PETS}", JSON, header, body=SAME[0]))
    for body in SAME:
        check_replay(request(service, f"POST {PETS}", JSON, header, body=body), first)
    for body in OTHER:
        check_reused(request(service, f"POST {PETS}", JSON, header, body=body))
    pet_id, header = add_pet(service), f"Idempotency-Key: {new_key()}"
    same = [b'{"petId":%d}' % pet_id, b' {"x":1,"p\\u0065tId" :%d}' % pet_id]
    first = check_first(request(service, f"POST {ORDERS}", JSON, header, body=same[0]))
    check_replay(request(service, f"POST {ORDERS}", JSON, header, body=same[1]), first)


class Time(Struct):
    """A clock that a test advances."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now

    def elapsed(self) -> int:
        """Return the same in nanoseconds, as the monotonic clock."""
        return (self.now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("part", [0, 1, 900_000])
def test_a_key_expires_after_24_hours_however_often_it_was_repeated(
    fresh: Live, path: str, part: int
) -> None:
    begin = datetime(2026, 11, 21, 9, 30, 0, part, UTC)
    fresh.state.clock = time = Time(begin)
    fresh.state.token_clock = TokenClock(time.elapsed, time.elapsed)
    some = bodies(fresh, path)
    first = check_first(send(fresh, path, body := next(some), "k"))
    for later in (DAY / 2, DAY - timedelta(microseconds=1)):
        time.now = begin + later
        check_replay(send(fresh, path, body, "k"), first)
        check_reused(send(fresh, path, next(some), "k"))
    # A backend counts in whole seconds, so a record may last up to a second longer.
    time.now = begin + DAY + timedelta(seconds=1 if part else 0)
    second = check_first(send(fresh, path, body := next(some), "k"))
    assert second.headers["location"] != first.headers["location"]
    time.now += DAY - timedelta(seconds=1)
    check_replay(send(fresh, path, body, "k"), second)


class TestTheClockOfTokens:
    """Seconds of a monotonic clock, and how far ahead of it the wall clock is."""

    Moments = st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 10**9)), min_size=1)

    @staticmethod
    def read(moments: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Return the monotonic clock, `now` and `until` after each of the moments.

        moments -- how many seconds each is after the one before, and the lead of the wall clock
        """
        elapsed, lead = 0, moments[0][1]
        clock = TokenClock(lambda: (elapsed + lead) * 10**9, lambda: elapsed * 10**9)
        found = []
        for seconds, lead in moments:  # noqa: B007 - the wall clock reads it
            elapsed += seconds
            found.append((elapsed, *clock.read()))
        return found

    @given(Moments)
    def test_a_record_lasts_24_hours_whatever_the_wall_clock_does(
        self, moments: list[tuple[int, int]]
    ) -> None:
        found = self.read(moments)
        for index, (written, _, until) in enumerate(found):
            for read, now, _ in found[index:]:
                assert now < until or read - written >= RECORD_SECONDS
            # Another process may begin while the clock is set as it was in the last 24 hours.
            recent = [
                lead
                for (read, _, _), (_, lead) in zip(found[: index + 1], moments, strict=False)
                if written - read <= RECORD_SECONDS
            ]
            assert found[index][1] - written <= min(recent)
            assert until - RECORD_SECONDS - written >= max(recent)

    @given(st.lists(st.integers(0, 100_000), min_size=1), st.integers(0, 10**9))
    def test_with_a_right_clock_a_record_lasts_no_longer(self, steps: list[int], lead: int) -> None:
        for elapsed, now, until in self.read([(step, lead) for step in steps]):
            assert (now, until) == (elapsed + lead, elapsed + lead + RECORD_SECONDS)

    @given(Moments, st.integers(0, 10**9))
    def test_a_clock_that_is_set_for_good_is_believed_after_two_days(
        self, moments: list[tuple[int, int]], lead: int
    ) -> None:
        afterwards = [(RECORD_SECONDS, lead)] * 3
        elapsed, now, until = self.read([*moments, *afterwards])[-1]
        assert (now, until) == (elapsed + lead, elapsed + lead + RECORD_SECONDS)


def test_a_retry_after_a_restart_is_a_replay(start: Start, tmp_path: Path) -> None:
    stored = {"backend": "sqlite", "sqlite_path": str(tmp_path / "pets"), "drain_seconds": "0"}
    live = start(**stored)
    first = check_first(send(live, PETS, REX, "k"))
    live.stop(9)
    live = start(**stored)
    check_replay(send(live, PETS, REX, "k"), first)
    check_reused(send(live, PETS, REX | {"categoryId": 8}, "k"))


VISIBLE = string.digits + string.ascii_letters + string.punctuation
REX_JSON = b'{"name":"Rex","categoryId":7}'


def test_clients_are_the_names_in_the_key_file(start: Start, tmp_path: Path) -> None:
    lines = [key_line(name, key) for name, key in (("a", "old"), ("a", "new"), ("ab", "other"))]
    (tmp_path / "keys").write_text("\n".join(lines))
    live = start(api_keys_file=str(tmp_path / "keys"), drain_seconds="0")
    first = check_first(send(live, PETS, REX, "k", client="old"))
    check_replay(send(live, PETS, REX, "k", client="new"), first)
    other = check_first(send(live, PETS, REX, "k", client="other"))
    third = check_first(send(live, PETS, REX, "k", client=KEY))
    assert len({response.json()["id"] for response in (first, other, third)}) == 3


BAD = [
    *("", " ", "a b", "a\tb", "a" * 256, "a" * 5000, "a\x7f", "\x01", "a\x00b"),
    *("\u00e4", "\u00ff", "\u00c3\u00a4", "a\u00a0"),
    *(f"a\r\n{name}: {value}" for name in ("Idempotency-Key", "IDEMPOTENCY-KEY") for value in "ab"),
    "a\r\nIdempotency-Key:",
]


def test_a_malformed_or_repeated_key_is_400(fresh: Live) -> None:
    body = b'{"name":"Rex","categoryId":7,"petId":%d}' % add_pet(fresh)
    before = everything(fresh)
    for path in PATHS:
        for value in BAD:
            response = request(fresh, f"POST {path}", JSON, f"Idempotency-Key: {value}", body=body)
            check_error(response, 400, "invalid_request")
    assert everything(fresh) == before


def test_a_key_is_1_to_255_visible_characters_none_of_them_special(fresh: Live) -> None:
    good = ["a", "A", "a" * 255, "A" * 255, VISIBLE, '"a"', "a,b", "b,a", "a;b", "%61", "0", "00"]
    found = {check_first(send(fresh, PETS, REX, key)).json()["id"]: key for key in good}
    assert len(found) == len(good)


@each("header", ["IDEMPOTENCY-KEY:k", "idempotency-key: \t k", "Idempotency-Key: k \t"])
def test_the_header_name_is_case_insensitive_and_its_value_is_trimmed(
    fresh: Live, header: str
) -> None:
    first = check_first(send(fresh, PETS, REX, "k"))  # RFC 9110, sections 5.1 and 5.5
    check_replay(request(fresh, f"POST {PETS}", JSON, header, body=REX_JSON), first)


def test_other_operations_ignore_it(service: Live) -> None:
    location = ordered(service)
    for key in ("k", "a b", ""):
        for path in (PETS, ORDERS, location):
            response = send(service, path, None, key, method="GET")
            assert response.status_code == 200
        for status in ("placed", "completed", "placed"):
            response = send(service, location, {"status": status}, key, method="PATCH")
            expected = service.client.get(location).json()["status"]
            assert response.status_code == (200 if status == expected else 409)
            assert "idempotency-replayed" not in response.headers
