"""Hostile and odd requests, properly framed: whatever is asked, the answer is as documented."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from httpx import Response
from hypothesis import given, settings
from hypothesis import strategies as st

from petstore.errors import Code
from petstore.settings import Settings
from tests.conftest import Start
from tests.live import KEY, Live, in_thread
from tests.test_specification import check_error

HOST, CLOSE = "Host: x", "Connection: close"
AUTHORIZED = f"Authorization: Bearer {KEY}"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
LIMIT = 65536
CODES = {int(code.status): code.code for code in Code}


def head(line: str, *fields: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join((f"{line} HTTP/1.1", *fields, "", "")).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def answers(raw: bytes, *, bodies: bool = True) -> list[Response]:
    """Take apart what came over a connection; check what every answer carries."""
    found = []
    while raw:
        top, _, raw = raw.partition(b"\r\n\r\n")
        line, *lines = top.split(b"\r\n")
        assert line.startswith(b"HTTP/1.1 ")
        fields = [(name, value) for name, _, value in (field.partition(b": ") for field in lines)]
        length = int(dict(fields).get(b"content-length", b"0")) if bodies else 0
        assert len(raw) >= length
        answer = Response(int(line.split()[1]), headers=fields, content=raw[:length])
        raw = raw[length:]
        found.append(answer)
        assert answer.status_code == 100 or answer.headers["x-request-id"]
        assert answer.status_code < 500
        if answer.status_code >= 400 and bodies:
            check_error(answer, answer.status_code, CODES[answer.status_code])
    return found


def statuses(raw: bytes) -> list[int]:
    """Return the status of every answer that came over a connection."""
    return [answer.status_code for answer in answers(raw)]


def each(name: str, values: Iterable[object]) -> pytest.MarkDecorator:
    """Run a test with each of these values; of long ones its name shows the end."""
    return pytest.mark.parametrize(name, values, ids=lambda v: ascii(v).replace(r"\r\n", "|")[-60:])


@pytest.fixture(autouse=True)
def still_well(service: Live) -> Iterator[None]:
    """After every test the service answers, and it has logged no exception."""
    assert service.process is not None
    log = Path(f"/proc/{service.process.pid}/fd/2")
    begin = log.stat().st_size
    yield
    assert service.client.get("/v1/pets").status_code == 200
    assert b"Traceback" not in log.read_bytes()[begin:]


def resident(live: Live) -> int:
    """Return how many bytes of memory the process of a service holds."""
    assert live.process is not None
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def ask(live: Live, line: str, *fields: str, body: bytes = b"", key: str = AUTHORIZED) -> Response:
    """Send one request over a connection of its own; return the answer."""
    length = [f"Content-Length: {len(body)}"] if body else []
    raw = live.raw(head(line, HOST, CLOSE, *[key] * bool(key), *length, *fields) + body)
    answer = answers(raw, bodies=not line.startswith("HEAD "))[0]  # random bytes may be several
    if line.split(" ", 1)[1].startswith("/v1"):
        assert answer.headers["cache-control"] == "no-store"
    return answer


def create(live: Live, body: bytes, *fields: str) -> Response:
    """Ask to add an animal."""
    return ask(live, "POST /v1/pets", *(fields or (JSON,)), body=body)


def pet(more: bytes = b"", name: bytes = b'"Rex"', category: bytes = b"7") -> bytes:
    """Return the body of an animal, with a name and a category as they are to be sent."""
    return b'{"name":%s,"categoryId":%s%s}' % (name, category, more)


BAD_VALUES = [
    b'"\xff"', b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"',
    rb'"\ud800"', rb'"\udc00"', rb'"\ud800\u0041"', rb'"\udc00\ud800"', rb'"\ud800x"',
    rb'"\x41"', rb'"\u1"', b'"\x00"', b'"\n"', b"'a'", b'"a', b"a", b"NaN", b"Infinity",
    b"-Infinity", b"01", b"+1", b".5", b"1.", b"0x1", b"\xd9\xa1",
]  # fmt: skip
NO_INTEGERS = [b"9" * 5000, b"-" + b"9" * 5000, b"1e5000", b"0." + b"1" * 5000, b"1e0", b"-0.0"]


@each("value", BAD_VALUES)
def test_bad_text_and_numbers_are_400_wherever_they_stand(service: Live, value: bytes) -> None:
    for more in (b',"x":' + value, b"," + value + b":1"):
        assert create(service, pet(more)).status_code == 400
    assert create(service, pet(name=value)).status_code == 400
    assert create(service, pet(category=value)).status_code == 400


@each("depth", [1000, 10_000, 100_000])
def test_deep_nesting_is_400_wherever_it_stands(depth: int) -> None:
    ends = (b"[" * depth, b"]" * depth), (b'{"":' * depth, b"1" + b"}" * depth)
    with in_thread(Settings(drain_seconds=0, max_body_bytes=2_000_000)) as live:
        for value in (ends[0][0], b"".join(ends[0]), ends[1][0], b"".join(ends[1])):
            for body in (value, pet(name=value), pet(b',"x":' + value)):
                assert create(live, body).status_code == 400


BAD_BODIES = [
    *(pet(category=number) for number in NO_INTEGERS),
    *(pet().decode().encode(f"utf-{code}") for code in ("8-sig", "16", "16-le", "16-be", "32")),
    pet() * 2, pet() + b"x", pet() + b"\x00", b"/**/" + pet(), b"\x0c" + pet(), b"\xa0" + pet(),
    pet(b","), pet(b',"x"'), pet(b',"name":1'), pet(b',"categoryId":1.0'), pet()[:-1], b" ", b"[]",
]  # fmt: skip


@each("body", BAD_BODIES)
def test_what_is_no_json_in_utf_8_or_no_animal_is_400(service: Live, body: bytes) -> None:
    assert create(service, body).status_code == 400


def test_what_is_odd_but_json_is_taken(service: Live) -> None:
    odd = rb'"\u0000\ud83d\ude00' + b"\x7f\xf4\x8f\xbf\xbf" + rb'\ufffe"'
    assert create(service, pet(name=odd)).json()["name"] == "\0\U0001f600\x7f\U0010ffff\ufffe"
    for value in (*NO_INTEGERS, b"[" * 100 + b"]" * 100):
        assert create(service, pet(b',"x":' + value)).status_code == 201
    assert create(service, b" \t\r\n" + pet() + b"\n").status_code == 201
    assert create(service, pet(b',"name":"Ida"')).json()["name"] == "Ida"
    assert create(service, pet(b',"id":1,"\\u0073tatus":"sold"')).json()["status"] == "sold"


def test_a_body_may_have_64_kib_and_not_one_byte_more(service: Live) -> None:
    fits = pet(name=b'"%s"' % (b"n" * (LIMIT - len(pet(name=b'""')))))
    assert len(fits) == LIMIT
    for body, status in ((fits, 201), (fits + b" ", 413), (b"{" * (LIMIT + 1), 413)):
        assert create(service, body).status_code == status
        chunks = b"".join(chunk(body[n : n + 999]) for n in range(0, len(body), 999))
        sent = head("POST /v1/pets", HOST, CLOSE, AUTHORIZED, JSON, CHUNKED) + chunks
        assert statuses(service.raw(sent + b"0\r\n\r\n")) == [status]


@each("length", [LIMIT + 1, 2**31, 2**64 - 1])
def test_a_declared_length_over_the_limit_is_413_at_once(service: Live, length: int) -> None:
    for more in ((), ("Expect: 100-continue",)):
        answer = ask(service, "POST /v1/pets", JSON, f"Content-Length: {length}", *more)
        assert answer.status_code == 413  # and not 100


def test_100_is_sent_only_where_the_body_is_wanted(service: Live) -> None:
    fields = (HOST, CLOSE, "Expect: 100-continue", f"Content-Length: {len(pet())}")
    cases = {(AUTHORIZED, JSON): [100, 201], (AUTHORIZED,): [415], (JSON,): [401]}
    for more, expected in cases.items():
        assert statuses(service.raw(head("POST /v1/pets", *fields, *more) + pet())) == expected


BAD_TYPES = [
    "", "text/plain", "text/json", "application/json5", "application/problem+json", "*/*", "json",
    "application/json, application/json", "application/json;a;charset=utf16", "multipart/form-data",
    "application/x-www-form-urlencoded", "application/\u00ffjson", "application/json\r\n" + JSON,
    *(f"application/json\r\nContent-Encoding: {coding}" for coding in ("gzip", "br", "x,gzip", "")),
]  # fmt: skip
GOOD_TYPES = ['Application/JSON; x; charset="UTF-8"', f"{JSON[14:]}\r\nContent-Encoding: identity"]


@each("type_", [*GOOD_TYPES, *BAD_TYPES])
def test_another_type_or_coding_is_415(service: Live, type_: str) -> None:
    for body, status in (pet(), 201), (b"{", 400), (b" " * (LIMIT + 1), 413):
        answer = create(service, body, f"Content-Type: {type_}")
        assert answer.status_code == (status if type_ in GOOD_TYPES else 415)


ODD_PATHS = [
    "*", "/", "/v1", "/v1/", "/v1/pets/", "//v1/pets", "/v1//pets", "/v1/pets//", "/v1/pets//1",
    "/v1/pets/1/", "/v1/pets/1/2", "/v1/pets%2F1", "/v1%2Fpets", "/%76%31/pets", "/v1/p%65ts", "//",
    "/V1/pets", "/v1/Pets", "/v1/pets;x=1", "/v1/pets%3Flimit=1", "/v1/pets%00", "/v1/./pets",
    "/v1/x/../pets", "/v1/store/orders/", "/livez/", "/docs/", "/v1/%zz", "/" + "a" * 30_000,
]  # fmt: skip
ODD_IDS = [
    "0", "-1", "+1", "%2B1", "01", "1_0", "%201", "1%20", "1%00", "1%0a", "%31", "1%2F..", "1.0",
    "1e0", "0x1", "1,2", "1;x", "..", "%2e%2e", "%D9%A1", "%FF", "%zz", "%", "null", "{pet_id:str}",
    "*", "a" * 1000, "1" * 1000, *(str(2**n) for n in (53, 63, 64)),
]  # fmt: skip
GOOD_QUERIES = [
    "", "limit=1", "limit=%31", "%6Cimit=1", "status=sol%64", "x=1", "x=1&x=1", "x&x&x", "&&", "=",
    "?", "LIMIT=0", "limit%3D0", "x[]=%00", "limit=100&x=" + "x" * 20_000, "x=%41&" * 5000,
]  # fmt: skip
BAD_QUERIES = [
    *(f"limit={text}" for text in (
        "", "0", "101", "-1", "1.0", "1e1", "+5", "%2B5", "%205", "5%20", "%D9%A3", "05", "0x5",
        "1_0", "5%00", "5;x", "5,5", "null", "true", "%EF%BC%95", "5%0A", "1" * 5000)),
    "limit", *(f"status={text}" for text in (
        "", "null", "Sold", "sold%20", "sold,pending", "sold%00", "undefined", "s" * 5000)),
    *(f"cursor={text}" for text in ("", "1", "p", "p0", "null", "p" + "g" * 14, "%70" * 5000)),
    "limit=1&limit=1", "status=sold&status=sold", "cursor=&cursor=", "limit=1&%6Cimit=1", "x=%",
    "x=%4", "x=%zz", "%zz=x", "x=%u0041", "x=%FF", "%FF=x", "x=%C0%AF", "x=%ED%A0%80", "x=%E2%82",
]  # fmt: skip


@each("path", ODD_PATHS)
def test_a_path_of_no_operation_is_404_with_or_without_a_key(service: Live, path: str) -> None:
    for key in (AUTHORIZED, ""):
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
            assert ask(service, f"{method} {path}", key=key).status_code == 404


@each("id_", ODD_IDS)
def test_an_odd_id_is_404_and_401_without_a_key(service: Live, id_: str) -> None:
    for method in ("GET", "HEAD"):
        assert ask(service, f"{method} /v1/pets/{id_}").status_code == 404
        assert ask(service, f"{method} /v1/pets/{id_}", key="").status_code == 401


def test_long_paths_are_not_remembered(start: Start) -> None:
    before = resident(service := start())
    for n in range(1100):
        ask(service, f"GET /v1/pets/{n}{'0' * 30_000}", key="")
    assert resident(service) - before < 16_000_000


@each("query", [*GOOD_QUERIES, *BAD_QUERIES])
def test_queries_are_read_strictly_after_the_key(service: Live, query: str) -> None:
    good = query in GOOD_QUERIES
    assert ask(service, f"GET /v1/pets?{query}").status_code == (200 if good else 400)
    assert ask(service, f"GET /v1/pets?{query}", key="").status_code == 401


ALLOWED = dict.fromkeys(["/v1/pets/1", "/v1/pets/x", "/livez", "/docs"], "GET, HEAD, OPTIONS")
ALLOWED["/v1/pets"] = "GET, HEAD, OPTIONS, POST"
KEYS = [AUTHORIZED, "", "Authorization: Bearer wrong"]


@each("path", ALLOWED)
@each("key", KEYS)
def test_other_methods_are_405_and_options_names_all(service: Live, path: str, key: str) -> None:
    for method in ("TRACE", "DELETE", "PUT", "PATCH", "PROPFIND", "QUERY", "OPTIONS"):
        answer = ask(service, f"{method} {path}", key=key)
        assert answer.status_code == (204 if method == "OPTIONS" else 405)
        assert answer.headers["allow"] == ALLOWED[path]
        assert method != "OPTIONS" or not answer.content


@each("path", [*ALLOWED, "/v1/pets?limit=0", "/v1/store/orders", "/docs", "/readyz", "/nothing"])
@each("key", KEYS)
def test_head_answers_as_get_without_a_body(service: Live, path: str, key: str) -> None:
    get, head_ = (ask(service, f"{m} {path}", "X-Request-Id: a", key=key) for m in ("GET", "HEAD"))
    assert head_.status_code == get.status_code
    head_.headers["date"] = get.headers["date"]
    assert head_.headers == get.headers


BAD_KEYS = [
    f'Bearer "{KEY}"', f"Bearer {KEY}, Bearer {KEY}", f"Bearer\t{KEY}", f"Bearer:{KEY}",
    f"Bearer \u00a0{KEY}", f"Bearer {KEY.upper()}", "Bearer " + "x" * 20_000, f"Basic {KEY}",
    f"Bearer {KEY}\r\nAuthorization:", f"\r\n{AUTHORIZED}", f"\r\nProxy-{AUTHORIZED}",
]  # fmt: skip


@each("value", BAD_KEYS)
def test_an_odd_key_is_401(service: Live, value: str) -> None:
    key = f"Authorization: {value}"
    assert ask(service, f"GET /v1/pets?access_token={KEY}", key=key).status_code == 401


PIECES = [
    b"limit=", b"cursor=", b"status=sold", b"&", b"=", b"5", b"%", b"%C3", b"%2F", b"/", b"?", b"{",
    b"}", b"[", b'"', b":", b",", b'"name"', b'"categoryId"', rb"\ud800", b"Bearer", b" ", b"null",
]  # fmt: skip


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=4)).map(b"".join))
def test_any_bytes_anywhere_get_a_documented_answer(service: Live, data: bytes) -> None:
    text = data.decode("latin-1")
    assert ask(service, f"GET /v1/pets?{text}").status_code in {200, 400}
    assert ask(service, f"GET /v1/pets/{text}").status_code in {200, 400, 404}
    assert ask(service, "GET /v1/pets", key=f"Authorization:{text}").status_code in {400, 401}
    for body in (data, pet(b"," + data), pet(name=data)):
        assert create(service, body).status_code in {201, 400}
