"""What pages of other origins may do: the setting, and the headers of the responses."""

import re
from collections.abc import Iterator

import httpx
import pytest

from petstore.config.errors import ConfigurationError
from petstore.config.settings import Settings
from tests.support.raw_http import HOST, head, parse_responses
from tests.support.services import KEY, Live, in_thread

SHOP = "https://shop.example"
EXPOSED = (
    "Link, Location, Deprecation, Sunset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id,"
    " Idempotency-Replayed, *"
)


def cors(response: httpx.Response) -> dict[str, str]:
    """Return the headers of a response that concern other origins."""
    names = re.compile("access-control-.*|vary")
    return {name: value for name, value in response.headers.items() if names.fullmatch(name)}


@pytest.fixture(scope="module")
def shop() -> Iterator[Live]:
    """Run a service that pages of two origins may call."""
    origins = (SHOP, "http://localhost:3000")
    with in_thread(Settings(drain_seconds=0, cors_origins=origins)) as live:
        yield live


READABLE = {
    "access-control-allow-origin": SHOP,
    "access-control-expose-headers": EXPOSED,
    "vary": "origin",
}


@pytest.mark.parametrize("path", ["/v1/pets", "/v1/pets/99", "/v1/nothing", "/livez"])
@pytest.mark.parametrize("key", [KEY, "wrong"])
def test_a_page_of_an_allowed_origin_reads_responses_and_errors(
    shop: Live, path: str, key: str
) -> None:
    headers = {"Origin": SHOP, "Authorization": f"Bearer {key}"}
    assert cors(shop.client.get(path, headers=headers)) == READABLE


def test_a_page_reads_why_its_request_was_malformed(shop: Live) -> None:
    sent = head("GET /v1/pets", HOST, f"Origin: {SHOP}", *["A: b"] * 99)
    (response,) = parse_responses(shop.raw(sent))
    assert (response.status_code, cors(response)) == (400, READABLE)


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/pets", "POST"), ("/v1/store/orders/1", "PATCH")]
)
def test_a_preflight_needs_no_key_and_lists_methods_and_headers(
    shop: Live, path: str, method: str
) -> None:
    headers = {"Origin": SHOP, "Access-Control-Request-Method": method}
    with shop.anonymous() as client:
        response = client.options(path, headers=headers)
    assert response.status_code == 204
    allowed = cors(response)
    assert allowed["access-control-allow-origin"] == SHOP
    assert method in allowed["access-control-allow-methods"].split(", ")
    # The wildcard of the Fetch standard covers every header except Authorization.
    assert {"Authorization", "*"} <= {*allowed["access-control-allow-headers"].split(", ")}
    assert allowed["access-control-max-age"] == "7200"
    assert allowed["vary"] == "origin"


@pytest.mark.parametrize("origin", ["https://shop.example.evil", "http://shop.example", "null", ""])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_other_origins_get_no_cors_headers(shop: Live, origin: str, method: str) -> None:
    headers = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    assert cors(shop.client.request(method, "/v1/pets", headers=headers)) == {"vary": "origin"}


def test_a_request_without_an_origin_gets_the_usual_response(shop: Live) -> None:
    assert cors(shop.client.get("/v1/pets")) == {"vary": "origin"}
    assert shop.client.options("/v1/pets").headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_any_origin_may_be_allowed() -> None:
    with in_thread(Settings(drain_seconds=0, cors_origins=("*",))) as live:
        assert cors(live.client.get("/v1/pets", headers={"Origin": SHOP})) == {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": EXPOSED,
        }


def test_without_the_setting_no_origin_gets_cors_headers(fresh: Live) -> None:
    headers = {"Origin": SHOP, "Access-Control-Request-Method": "GET"}
    for method in ("GET", "OPTIONS"):
        assert cors(fresh.client.request(method, "/v1/pets", headers=headers)) == {}


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
def test_origins_are_written_as_browsers_send_them(text: str, origins: tuple[str, ...]) -> None:
    assert Settings.read({"PETSTORE_CORS_ORIGINS": text}).cors_origins == origins


@pytest.mark.parametrize(
    "text",
    [
        *("shop.example", "https://shop.example/", "https://Shop.example"),
        *("*,https://a", "null", "https://shop.example:443", "http://shop.example:80"),
    ],
)
def test_an_origin_that_no_browser_sends_is_reported(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^PETSTORE_CORS_ORIGINS must be origins"):
        Settings.read({"PETSTORE_CORS_ORIGINS": text})
