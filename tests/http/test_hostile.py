"""Hostile and odd requests in valid HTTP: every response is a documented one."""

import pytest
from httpx import Response
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore.config.settings import Settings
from tests.support.hostile_inputs import (
    BAD_BODIES,
    BAD_QUERIES,
    BAD_VALUES,
    NON_INTEGERS,
    ODD_IDS,
    pet_body,
)
from tests.support.interface import ORDERS, PETS
from tests.support.orders import place_order
from tests.support.pets import add_pet
from tests.support.raw_http import (
    AUTHORIZED,
    CHUNKED,
    CLOSE,
    HOST,
    JSON,
    LIMIT,
    chunk,
    each,
    head,
    parse_responses,
    request,
    statuses,
)
from tests.support.services import Live, Start, in_thread

pytestmark = pytest.mark.usefixtures("still_healthy")


def create(live: Live, body: bytes, *headers: str) -> Response:
    """Send a request that creates a pet."""
    return request(live, "POST /v1/pets", *(headers or (JSON,)), body=body)


@each("value", BAD_VALUES)
def test_bad_text_and_numbers_are_400_wherever_they_are(service: Live, value: bytes) -> None:
    for more in (b',"x":' + value, b"," + value + b":1"):
        assert create(service, pet_body(more)).status_code == 400
    assert create(service, pet_body(name=value)).status_code == 400
    assert create(service, pet_body(category=value)).status_code == 400


@each("depth", [1000, 10_000, 100_000])
def test_deep_nesting_is_400_wherever_it_is(depth: int) -> None:
    ends = (b"[" * depth, b"]" * depth), (b'{"":' * depth, b"1" + b"}" * depth)
    with in_thread(Settings(drain_seconds=0, max_body_bytes=2_000_000)) as live:
        for value in (ends[0][0], b"".join(ends[0]), ends[1][0], b"".join(ends[1])):
            for body in (value, pet_body(name=value), pet_body(b',"x":' + value)):
                assert create(live, body).status_code == 400


@each("body", BAD_BODIES)
def test_a_body_that_is_not_a_pet_in_utf_8_json_is_400(service: Live, body: bytes) -> None:
    assert create(service, body).status_code == 400


def test_odd_but_valid_json_is_accepted(service: Live) -> None:
    odd = rb'"\u0000\ud83d\ude00' + b"\x7f\xf4\x8f\xbf\xbf" + rb'\ufffe"'
    assert create(service, pet_body(name=odd)).json()["name"] == "\0\U0001f600\x7f\U0010ffff\ufffe"
    brackets = b'"' + rb"[{\"\\" * 201 + b'"'  # in a string: no nesting
    for value in (*NON_INTEGERS, b"[" * 100 + b"]" * 100, brackets):
        assert create(service, pet_body(b',"x":' + value)).status_code == 201
    assert create(service, b" \t\r\n" + pet_body() + b"\n").status_code == 201
    colons = pet_body(b',"x":{"name":1,"x":[{"x":1},{"x":2}]},"status":"sold"', name=b'"a:b::"')
    assert create(service, colons).json()["name"] == "a:b::"
    assert create(service, pet_body(b',"id":1,"\\u0073tatus":"sold"')).json()["status"] == "sold"


REPEATED = [
    *(b',"name":"Ida"', b',"name":"Rex"', b',"n\\u0061me":"Ida"', b',"categoryId":8'),
    b',"status":"sold","status":"sold"',
    *(b',"x":1,"x":2', b',"":1,"":2', b',"x":{"y":1,"y":1}', b',"x":[[{"y":[],"z":{},"y":0}]]'),
    b',"x\\u003a":1,"x:":1',
    b',"x":' + b"9" * 5000 + b',"x":1',
]


@each("more", REPEATED)
def test_a_member_that_is_there_twice_is_400(service: Live, more: bytes) -> None:  # RFC 8259, 4
    response = create(service, pet_body(more))
    assert response.status_code == 400
    assert "once" in response.json()["message"]


def test_options_of_the_whole_service_lists_all_methods(service: Live) -> None:  # RFC 9110, 9.3.7
    for key in (AUTHORIZED, ""):
        response = request(service, "OPTIONS *", key=key)
        assert (response.status_code, response.content) == (204, b"")
        assert response.headers["allow"] == "GET, HEAD, OPTIONS, PATCH, POST"
        for method in ("GET", "HEAD", "POST", "DELETE"):
            assert request(service, f"{method} *", key=key).status_code == 404


@each("prefix", ["", "/shop"])
def test_the_root_leads_to_the_reference(prefix: str) -> None:
    with in_thread(Settings(drain_seconds=0, root_path=prefix)) as live:
        for method in ("GET", "HEAD"):
            response = request(live, f"{method} /", key="")
            assert response.status_code == 302
            assert response.headers["location"] == f"{prefix}/docs"
        assert request(live, "POST /").status_code == 405
        assert request(live, "OPTIONS /").status_code == 204


def test_reason_phrases_are_those_of_rfc_9110(service: Live) -> None:
    sent = head("POST /v1/pets", HOST, CLOSE, AUTHORIZED, JSON, f"Content-Length: {LIMIT + 1}")
    assert service.raw(sent).startswith(b"HTTP/1.1 413 Content Too Large\r\n")


def test_a_body_has_at_most_64_kib(service: Live) -> None:
    fits = pet_body(name=b'"%s"' % (b"n" * (LIMIT - len(pet_body(name=b'""')))))
    assert len(fits) == LIMIT
    for body, status in ((fits, 201), (fits + b" ", 413), (b"{" * (LIMIT + 1), 413)):
        assert create(service, body).status_code == status
        chunks = b"".join(chunk(body[n : n + 999]) for n in range(0, len(body), 999))
        sent = head("POST /v1/pets", HOST, CLOSE, AUTHORIZED, JSON, CHUNKED) + chunks
        assert statuses(service.raw(sent + b"0\r\n\r\n")) == [status]


@each("length", [LIMIT + 1, 2**31, 2**64 - 1])
def test_a_declared_length_over_the_limit_is_413_at_once(service: Live, length: int) -> None:
    for more in ((), ("Expect: 100-continue",)):
        response = request(service, "POST /v1/pets", JSON, f"Content-Length: {length}", *more)
        assert response.status_code == 413  # and not 100


@each("digits", [21, 5000])
def test_zeros_before_a_declared_length_do_not_matter(service: Live, digits: int) -> None:
    length = f"Content-Length: {len(pet_body()):0{digits}}"
    sent = head("POST /v1/pets", HOST, CLOSE, AUTHORIZED, JSON, length) + pet_body()
    (response,) = parse_responses(service.raw(sent))
    assert response.status_code == 201


def test_100_is_sent_only_if_the_body_is_read(service: Live) -> None:
    line, body = "POST /v1/pets", pet_body()
    headers = (HOST, "Expect: 100-continue", f"Content-Length: {len(body)}")
    accepted = (*headers, AUTHORIZED, JSON, CLOSE)
    assert statuses(service.raw(head(line, *accepted) + body)) == [100, 201]
    old = head(line, *accepted).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert statuses(service.raw(old + body)) == [201]
    for more, status in (AUTHORIZED, 415), (JSON, 401):
        (response,) = parse_responses(service.raw(head(line, *headers, more)))
        assert (response.status_code, response.headers["connection"]) == (status, "close")


BAD_TYPES = [
    *("", "text/plain", "text/json", "application/json5", "application/problem+json", "*/*"),
    "json",
    "application/json, application/json",
    *("application/json;a;charset=utf16", "multipart/form-data"),
    "application/x-www-form-urlencoded",
    "application/\u00ffjson",
    "application/json\r\n" + JSON,
    *(f"application/json\r\nContent-Encoding: {coding}" for coding in ("gzip", "br", "x,gzip", "")),
]
GOOD_TYPES = ['Application/JSON; x; charset="UTF-8"', f"{JSON[14:]}\r\nContent-Encoding: identity"]


@each("type_", [*GOOD_TYPES, *BAD_TYPES])
def test_another_type_or_coding_is_415(service: Live, type_: str) -> None:
    for body, status in (pet_body(), 201), (b"{", 400), (b" " * (LIMIT + 1), 413):
        response = create(service, body, f"Content-Type: {type_}")
        assert response.status_code == (status if type_ in GOOD_TYPES else 415)


def test_a_415_says_what_is_accepted(service: Live) -> None:
    placed = place_order(service, add_pet(service))  # before 415 comes 404
    order, plain = placed.headers["location"], {"content-type": "text/plain"}
    coded = {"content-type": "application/json", "content-encoding": "gzip"}
    json = "application/json"
    for method, path, sent, name, value in (
        ("POST", "/v1/pets", plain, "accept", json),
        ("POST", "/v1/pets", coded, "accept-encoding", "identity"),
        ("PATCH", order, plain, "accept-patch", json),
        ("OPTIONS", order, {}, "accept-patch", json),
    ):
        response = service.client.request(method, path, headers=sent, content=b"{}")
        assert response.headers[name] == value
    assert "accept-patch" not in service.client.options("/v1/pets").headers


ODD_PATHS = [
    *("/v1", "/v1/", "/v1/store", "/v2/pets", "/nothing", "/v1/pets/", "//v1/pets", "/v1//pets"),
    *("/v1/pets//", "/v1/pets//1", "/v1/pets/1/", "/v1/pets/1/2", "/v1/pets%2F1", "/v1%2Fpets"),
    *("/%76%31/pets", "/v1/p%65ts", "//", "/V1/pets", "/v1/Pets", "/v1/pets;x=1"),
    *("/v1/pets%3Flimit=1", "/v1/pets%00", "/v1/./pets", "/v1/x/../pets", "/v1/store/orders/"),
    *("/livez/", "/docs/", "/v1/%zz", "/" + "a" * 30_000),
]
GOOD_QUERIES = [
    *("limit=%31", "%6Cimit=1", "", "limit=1", "x=1", "x=1&x=1", "x&x&x", "&&", "=", "?"),
    *("LIMIT=0", "limit%3D0", "x[]=%00"),
    "limit=100&x=" + "x" * 20_000,
    "x=%41&" * 5000,
]


@each("path", ODD_PATHS)
def test_a_path_of_no_operation_is_404_with_or_without_a_key(service: Live, path: str) -> None:
    for key in (AUTHORIZED, ""):
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            assert request(service, f"{method} {path}", key=key).status_code == 404


@each("id_", ODD_IDS)
def test_an_odd_id_is_404_and_401_without_a_key(service: Live, id_: str) -> None:
    for line in (f"GET {PETS}", f"HEAD {PETS}", f"GET {ORDERS}", f"PATCH {ORDERS}"):
        assert request(service, f"{line}/{id_}").status_code == 404
        assert request(service, f"{line}/{id_}", key="").status_code == 401


def test_long_paths_are_not_cached(start: Start) -> None:
    service = start()
    before = service.resident()
    for n in range(1100):
        request(service, f"GET /v1/pets/{n}{'0' * 30_000}", key="")
    assert service.resident() - before < 16_000_000


@each("query", [*GOOD_QUERIES, *BAD_QUERIES])
def test_queries_are_parsed_strictly_after_the_key(service: Live, query: str) -> None:
    good = query in GOOD_QUERIES
    for path in (PETS, ORDERS):
        line = f"GET {path}?{query}"
        assert request(service, line).status_code == (200 if good else 400)
        assert request(service, line, key="").status_code == 401


ALLOWED = dict.fromkeys(["/v1/pets/1", "/v1/pets/x", "/livez", "/docs"], "GET, HEAD, OPTIONS")
ALLOWED |= dict.fromkeys([PETS, ORDERS], "GET, HEAD, OPTIONS, POST")
ALLOWED |= dict.fromkeys([f"{ORDERS}/1", f"{ORDERS}/x"], "GET, HEAD, OPTIONS, PATCH")
KEYS = [AUTHORIZED, "", "Authorization: Bearer wrong"]


@each("path", ALLOWED)
@each("key", KEYS)
def test_other_methods_are_405_and_options_lists_all(service: Live, path: str, key: str) -> None:
    others = {"TRACE", "DELETE", "PUT", "POST", "PATCH", "PROPFIND", "QUERY", "OPTIONS"}
    for method in others - {*ALLOWED[path].split(", ")} | {"OPTIONS"}:
        response = request(service, f"{method} {path}", key=key)
        assert response.status_code == (204 if method == "OPTIONS" else 405)
        assert response.headers["allow"] == ALLOWED[path]
        assert method != "OPTIONS" or not response.content


@each("path", [*ALLOWED, "/v1/pets?limit=0", "/readyz", "/nothing"])
@each("key", KEYS)
def test_head_responds_as_get_without_a_body(service: Live, path: str, key: str) -> None:
    get, head_ = (
        request(service, f"{m} {path}", "X-Request-Id: a", key=key) for m in ("GET", "HEAD")
    )
    assert head_.status_code == get.status_code
    head_.headers["date"] = get.headers["date"]
    assert head_.headers == get.headers


PIECES = [
    *(b"limit=", b"cursor=", b"status=sold", b"&", b"=", b"5", b"%", b"%C3", b"%2F", b"/", b"?"),
    *(b"{", b"}", b"[", b'"', b":", b",", b'"name"', b'"categoryId"', rb"\ud800", b"null"),
    *(b"Bearer", b" "),
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=4)).map(b"".join))
def test_any_bytes_anywhere_get_a_documented_response(service: Live, data: bytes) -> None:
    text = data.decode("latin-1")
    assert request(service, f"GET /v1/pets?{text}").status_code in {200, 400}
    assert request(service, f"GET /v1/pets/{text}").status_code in {200, 400, 404}
    assert request(service, "GET /v1/pets", key=f"Authorization:{text}").status_code in {400, 401}
    for body in (data, pet_body(b"," + data), pet_body(name=data)):
        assert create(service, body).status_code in {201, 400}
