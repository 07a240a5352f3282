"""What the service does against too much at once, and what browsers may do with its answers."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from petstore import protocol
from petstore.settings import ConfigurationError, Settings
from tests.conftest import Start
from tests.live import KEY, Live, in_thread, receive_all
from tests.test_specification import check_error

SHOP = "https://shop.example"
EXPOSED = (
    "Link, Location, Deprecation, Sunset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id,"
    " Idempotency-Replayed"
)


@pytest.fixture
def full() -> Iterator[Live]:
    """Run a service that takes two requests at once, and has them: both wait for the storage."""
    settings = Settings(drain_seconds=0, max_in_flight=2, rate_limit="100/h")
    with in_thread(settings) as live:
        come, go = threading.Semaphore(0), threading.Event()
        list_pets = live.service.repository.list_pets

        async def wait(*arguments: object) -> object:
            come.release()
            while not go.is_set():  # noqa: ASYNC110 - it is set by another thread
                await asyncio.sleep(0.01)
            return await list_pets(*arguments)  # type: ignore[arg-type]

        live.service.repository.list_pets = wait  # type: ignore[assignment,method-assign]
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(live.client.get, "/v1/pets") for _ in range(2)]
            try:
                assert come.acquire(timeout=10)
                assert come.acquire(timeout=10)
                yield live
            finally:
                go.set()
            assert [request.result().status_code for request in waiting] == [200, 200]
        assert live.client.get("/v1/pets").status_code == 200, "there is room again"


def test_more_requests_than_may_be_in_flight_are_503_at_once(full: Live) -> None:
    answer = full.client.get("/v1/pets/1")
    check_error(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert {"deprecation", "ratelimit"} <= answer.headers.keys(), "as on every answer to it"


def test_who_has_no_key_is_told_that_first(full: Live) -> None:
    with full.anonymous() as client:
        assert client.get("/v1/pets/1").status_code == 401


def test_health_and_reference_are_answered_however_much_is_under_way(full: Live) -> None:
    for path in ("/livez", "/openapi.json", "/docs"):
        assert full.client.get(path).status_code == 200


def test_who_reads_nothing_or_goes_away_holds_no_place() -> None:
    with in_thread(Settings(drain_seconds=0, max_in_flight=1)) as live:
        lines = f"Host: h\r\nAuthorization: Bearer {KEY}\r\n"
        slow = [ask_for_much(live)]  # its answer is ready, whenever it reads that
        for _ in range(3):
            with socket.create_connection((live.host, live.port), timeout=10) as gone:
                gone.sendall(f"POST /v1/pets HTTP/1.1\r\n{lines}Content-Length: 9\r\n".encode())
                gone.sendall(b"Content-Type: application/json\r\n\r\n{")
                time.sleep(0.05)
            until(lambda: live.client.get("/v1/pets/1").status_code == 200)
        slow[0].close()


def test_every_answer_has_the_headers_that_make_browsers_careful(fresh: Live) -> None:
    policy = "default-src 'none'; frame-ancestors 'none'"
    for method, path in (
        ("GET", "/v1/pets"),
        ("POST", "/v1/pets"),
        ("OPTIONS", "/v1/pets"),
        ("DELETE", "/v1/pets"),
        ("GET", "/v1/nothing"),
    ):
        answer = fresh.client.request(method, path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == policy
    for path in ("/livez", "/docs", "/docs/swagger-ui.css", "/openapi.json", "/nothing"):
        assert fresh.client.get(path).headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in fresh.client.get("/docs").headers["content-security-policy"]
    raw = fresh.raw(b"no HTTP\r\n\r\n")
    for line in ("x-content-type-options: nosniff", f"content-security-policy: {policy}"):
        assert f"\r\n{line}\r\n".encode() in raw


@pytest.mark.parametrize(
    "sent",
    [
        b"no HTTP\r\n\r\n",
        b"GET /v1/pets HTTP/1.1\r\n\r\n",
        b"POST /v1/pets HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n1" % KEY.encode(),
    ],
    ids=["no HTTP", "no Host", "half a body"],
)
def test_what_is_refused_is_logged_once_under_the_id_of_its_answer(
    start: Start, tmp_path: Path, sent: bytes
) -> None:
    raw = start(drain_seconds="0").raw(sent, half_close=True)
    match = re.search(rb"\r\nx-request-id: (\S+)\r\n", raw)
    assert match is not None
    log = tmp_path / "service-1" / "serve.log"
    until(lambda: '"request"' in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    requests = [(line["request_id"], line["status"]) for line in lines if "status" in line]
    assert requests == [(match[1].decode(), 400)]


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def cors(answer: httpx.Response) -> dict[str, str]:
    """Return the header fields of an answer that are about other origins."""
    names = re.compile("access-control-.*|vary")
    return {name: value for name, value in answer.headers.items() if names.fullmatch(name)}


@pytest.fixture(scope="module")
def shop() -> Iterator[Live]:
    """Run a service that pages of two origins may call."""
    origins = f"{SHOP}, http://localhost:3000"
    with in_thread(Settings(drain_seconds=0, cors_origins=origins)) as live:
        yield live


@pytest.mark.parametrize("path", ["/v1/pets", "/v1/pets/99", "/v1/nothing", "/livez"])
@pytest.mark.parametrize("key", [KEY, "wrong"])
def test_a_page_of_an_allowed_origin_reads_answers_and_errors(
    shop: Live, path: str, key: str
) -> None:
    headers = {"Origin": SHOP, "Authorization": f"Bearer {key}"}
    assert cors(shop.client.get(path, headers=headers)) == {
        "access-control-allow-origin": SHOP,
        "access-control-expose-headers": EXPOSED,
        "vary": "origin",
    }


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/pets", "POST"), ("/v1/store/orders/1", "PATCH")]
)
def test_a_preflight_needs_no_key_and_says_what_may_be_sent(
    shop: Live, path: str, method: str
) -> None:
    asked = {"Origin": SHOP, "Access-Control-Request-Method": method}
    with shop.anonymous() as client:
        answer = client.options(path, headers=asked)
    assert answer.status_code == 204
    said = cors(answer)
    assert said["access-control-allow-origin"] == SHOP
    assert method in said["access-control-allow-methods"].split(", ")
    allowed = said["access-control-allow-headers"].split(", ")
    assert {"Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id"} <= set(allowed)
    assert said["access-control-max-age"] == "7200"
    assert said["vary"] == "origin"


@pytest.mark.parametrize("origin", ["https://shop.example.evil", "http://shop.example", "null", ""])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_other_origins_are_told_nothing(shop: Live, origin: str, method: str) -> None:
    asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    assert cors(shop.client.request(method, "/v1/pets", headers=asked)) == {"vary": "origin"}


def test_a_request_of_no_page_is_answered_as_ever(shop: Live) -> None:
    assert cors(shop.client.get("/v1/pets")) == {"vary": "origin"}
    assert shop.client.options("/v1/pets").headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_any_origin_may_be_allowed() -> None:
    with in_thread(Settings(drain_seconds=0, cors_origins="*")) as live:
        assert cors(live.client.get("/v1/pets", headers={"Origin": SHOP})) == {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": EXPOSED,
        }


def test_without_the_setting_no_origin_is_told_anything(fresh: Live) -> None:
    asked = {"Origin": SHOP, "Access-Control-Request-Method": "GET"}
    for method in ("GET", "OPTIONS"):
        assert cors(fresh.client.request(method, "/v1/pets", headers=asked)) == {}


def ask_for_much(live: Live) -> socket.socket:
    """Ask for an answer of 6 MB, and let the system hold only a little of it."""
    for _ in range(100):
        body = {"name": "n" * 60_000, "categoryId": 1}
        assert live.client.post("/v1/pets", json=body).status_code == 201
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(10)
    connection.connect((live.host, live.port))
    request = "GET /v1/pets?limit=100 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    connection.sendall(f"{request}Authorization: Bearer {KEY}\r\n\r\n".encode())
    return connection


def test_a_client_that_does_not_read_its_answer_is_cut_off(
    fresh: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", 0.5)
    with ask_for_much(fresh) as connection:
        time.sleep(3.5)  # the service looks once a second
        assert len(receive_all(connection)) < 6_000_000


def test_a_client_that_reads_slowly_gets_all_of_its_answer(
    fresh: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", 1)
    received = 0
    with ask_for_much(fresh) as connection:
        begin = time.monotonic()
        while piece := connection.recv(65536):
            received += len(piece)
            time.sleep(0.025)
    assert time.monotonic() - begin > 2
    assert received > 6_000_000


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("*", ("*",)),
        ("https://shop.example", ("https://shop.example",)),
        (
            "http://localhost:3000 , https://[::1]:8443",
            ("http://localhost:3000", "https://[::1]:8443"),
        ),
    ],
)
def test_origins_are_as_browsers_send_them(text: str, origins: tuple[str, ...]) -> None:
    assert Settings.read({"PETSTORE_CORS_ORIGINS": text}).origins == origins


@pytest.mark.parametrize(
    "text",
    [
        "shop.example",
        "https://shop.example/",
        "https://Shop.example",
        "https://a,",
        "*,https://a",
        "null",
    ],
)
def test_what_no_browser_sends_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^PETSTORE_CORS_ORIGINS must be origins"):
        Settings.read({"PETSTORE_CORS_ORIGINS": text})
