"""What an `Idempotency-Key` is, and to whom and what it belongs."""

import string
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Start
from tests.live import KEY, OTHER_KEY, Live, key_line
from tests.test_hostile import JSON, ask, each
from tests.test_idempotency import (
    PATHS,
    PETS,
    REX,
    bodies,
    check_first,
    check_replay,
    check_reused,
    everything,
    new_key,
    send,
)
from tests.test_specification import check_error
from tests.test_store import ORDERS, add, ordered

VISIBLE = string.digits + string.ascii_letters + string.punctuation
REX_JSON = b'{"name":"Rex","categoryId":7}'


@pytest.mark.parametrize("path", PATHS)
def test_keys_of_two_clients_never_meet(service: Live, path: str) -> None:
    some, key = bodies(service, path), new_key()
    mine, theirs = next(some), next(some)
    first = check_first(send(service, path, mine, key))
    second = check_first(send(service, path, theirs, key, client=OTHER_KEY))
    check_replay(send(service, path, mine, key), first)
    check_replay(send(service, path, theirs, key, client=OTHER_KEY), second)
    check_reused(send(service, path, mine, key, client=OTHER_KEY))


def test_the_operations_have_keys_of_their_own(service: Live) -> None:
    key, body = new_key(), REX | {"petId": add(service)}
    firsts = [check_first(send(service, path, body, key)) for path in PATHS]
    for path, first in zip(PATHS, firsts, strict=True):
        check_replay(send(service, path, body, key), first)


def test_a_client_is_a_name_of_the_key_file(start: Start, tmp_path: Path) -> None:
    lines = [key_line(name, key) for name, key in (("a", "old"), ("a", "new"), ("b", "other"))]
    (tmp_path / "keys").write_text("\n".join(lines))
    live = start(api_keys_file=str(tmp_path / "keys"), drain_seconds="0")
    first = check_first(send(live, PETS, REX, "k", client="old"))
    check_replay(send(live, PETS, REX, "k", client="new"), first)
    other = check_first(send(live, PETS, REX, "k", client="other"))
    third = check_first(send(live, PETS, REX, "k", client=KEY))
    assert len({answer.json()["id"] for answer in (first, other, third)}) == 3


BAD = [
    "", " ", "a b", "a\tb", "a" * 256, "a" * 5000, "\u00e4", "\u00ff", "a\x7f", "\x01", "a\x00b",
    "\u00c3\u00a4", "a\u00a0", "a\r\nIdempotency-Key: a", "a\r\nidempotency-key: b",
    "a\r\nIdempotency-Key:",
]  # fmt: skip


def test_a_malformed_or_repeated_key_is_400(fresh: Live) -> None:
    body = b'{"name":"Rex","categoryId":7,"petId":%d}' % add(fresh)
    before = everything(fresh)
    for path in PATHS:
        for value in BAD:
            answer = ask(fresh, f"POST {path}", JSON, f"Idempotency-Key: {value}", body=body)
            check_error(answer, 400, "invalid_request")
    assert everything(fresh) == before


def test_a_key_is_up_to_255_visible_characters_and_nothing_in_it_is_special(fresh: Live) -> None:
    good = ["a", "A", "a" * 255, "A" * 255, VISIBLE, '"a"', "a,b", "b,a", "a;b", "%61", "0", "00"]
    found = {check_first(send(fresh, PETS, REX, key)).json()["id"]: key for key in good}
    assert len(found) == len(good)


@each("field", ["IDEMPOTENCY-KEY:k", "idempotency-key: \t k", "Idempotency-Key: k \t"])
def test_the_fields_name_has_no_case_and_space_around_its_value_is_no_part_of_it(
    fresh: Live, field: str
) -> None:
    first = check_first(send(fresh, PETS, REX, "k"))  # RFC 9110, sections 5.1 and 5.5
    check_replay(ask(fresh, f"POST {PETS}", JSON, field, body=REX_JSON), first)


def test_other_operations_do_not_look_at_it(service: Live) -> None:
    location = ordered(service)
    for key in ("k", "a b", ""):
        for path in (PETS, ORDERS, location):
            answer = send(service, path, None, key, method="GET")
            assert answer.status_code == 200
        for status in ("placed", "completed", "placed"):
            answer = send(service, location, {"status": status}, key, method="PATCH")
            expected = service.client.get(location).json()["status"]
            assert answer.status_code == (200 if status == expected else 409)
            assert "idempotency-replayed" not in answer.headers


@settings(max_examples=50)
@given(keys=st.sets(st.text(VISIBLE, min_size=1, max_size=219), min_size=2, max_size=3))
def test_any_keys_that_differ_are_apart(service: Live, keys: set[str]) -> None:
    begin = new_key()
    firsts = {key: check_first(send(service, PETS, REX, begin + key)) for key in keys}
    for key, first in firsts.items():
        check_replay(send(service, PETS, REX, begin + key), first)
    for one, other in combinations(firsts.values(), 2):
        assert one.json()["id"] != other.json()["id"]
