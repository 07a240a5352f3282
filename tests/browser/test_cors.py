"""Pages of other origins in a real browser: what they may call and read."""

from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from selenium.webdriver import Chrome

from petstore.config.settings import RateLimit, Settings
from tests.support.services import Live, in_thread
from tests.support.serving import serving

pytestmark = pytest.mark.slow

CALL: Final = """
const [url, key, id, done] = arguments;
const headers = {
  "Authorization": `Bearer ${key}`,
  "Content-Type": "application/json",
  "Idempotency-Key": "k",
  "X-Request-Id": id,
  // What Sentry adds, and one of the page's own.
  "baggage": "sentry-environment=production",
  "sentry-trace": "0",
  "X-Shop": "1",
};
const body = JSON.stringify({ name: "Rex", categoryId: 7 });
const headersOf = (response) => Object.fromEntries(response.headers.entries());
(async () => {
  const seen = [];
  for (const [path, init] of [
    ["/v1/pets", { method: "POST", headers, body }],
    ["/v1/pets", { method: "POST", headers, body }],
    ["/v1/pets?limit=0", { headers }],
    ["/v1/pets/1", { headers }],
    ["/v1/pets", {}],
    ["/v1/nothing", {}], // a preflight would be 404, too
    ["/v1/pets", { headers }],
  ]) {
    const response = await fetch(url + path, init);
    seen.push([response.status, headersOf(response), await response.json()]);
  }
  return seen;
})().then(done, (error) => done(String(error)));
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def shop() -> Iterator[str]:
    """Serve a page from another origin; yield the origin."""
    with serving(server := ThreadingHTTPServer(("127.0.0.1", 0), Quiet)):
        yield f"http://127.0.0.1:{server.server_port}"


def call(browser: Chrome, shop: str, live: Live) -> Any:
    """Call the service from the page; return status code, headers and body of each response."""
    browser.get(shop)
    return browser.execute_async_script(CALL, live.url, live.key, "mine")


def test_a_page_of_an_allowed_origin_calls_and_reads_everything(browser: Chrome, shop: str) -> None:
    settings = Settings(drain_seconds=0, cors_origins=(shop,), rate_limit=RateLimit.parse("4/h"))
    with in_thread(settings) as live:
        responses = call(browser, shop, live)
    assert isinstance(responses, list), responses
    created, again, wrong, read, keyless, nowhere, limited = responses
    statuses = [response[0] for response in (created, again, wrong, read, keyless, nowhere)]
    assert statuses == [201, 201, 400, 200, 401, 404]
    assert created[1]["location"] == "/v1/pets/1"
    assert created[1]["x-request-id"] == "mine"
    assert keyless[1]["www-authenticate"].startswith("Bearer"), "no name in a list, but readable"
    assert again[1]["idempotency-replayed"] == "true"
    assert wrong[2]["code"] == "invalid_request"
    assert {"deprecation", "sunset", "link", "ratelimit", "ratelimit-policy"} <= read[1].keys()
    assert (limited[0], limited[2]["code"]) == (429, "rate_limited")
    assert int(limited[1]["retry-after"]) > 0


def test_the_browser_refuses_a_page_of_another_origin(browser: Chrome, shop: str) -> None:
    with in_thread(Settings(drain_seconds=0, cors_origins=("https://shop.example",))) as live:
        assert "Failed to fetch" in call(browser, shop, live)
        assert live.client.get("/v1/pets").json() == [], "the preflight kept it from being sent"
