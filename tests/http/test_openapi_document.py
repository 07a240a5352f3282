"""The service does what the OpenAPI document shows: its examples, its headers, its guide.

The texts of the document are written by hand (openapi/texts.py, guide.md). Here everything that it
shows is reproduced in running services and compared with their responses.
"""

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest
from httpx import Client, Response

from petstore.config.settings import RateLimit, Settings
from petstore.contract import Repository, UnavailableError
from petstore.http.clock import RECORD_SECONDS
from petstore.http.errors import ErrorCode
from petstore.http.pagination import DEFAULT_LIMIT
from tests.support.documents import bash, blocks
from tests.support.services import CONSECUTIVE_IDS, Live, in_thread
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.skipif(
    not CONSECUTIVE_IDS, reason="the document shows the ids that a new store assigns"
)

Change = dict[str, Any]  # the differences from the documented request, as arguments of httpx
Observed = tuple[str, str, Response]  # operation, name of the expected error or "", response

# One client may hold seven of eight slots: there are as many operations.
LIMITED: Final = Settings(
    drain_seconds=0, shutdown_seconds=1, max_in_flight=8, rate_limit=RateLimit.parse("99/h")
)

# The headers of HTTP itself, and for browsers: the document lists none of them.
UNDOCUMENTED: Final = {
    "date",
    "content-type",
    "content-length",
    "connection",
    "x-content-type-options",
    "content-security-policy",
}
OPTIONAL: Final = {
    ("listPets", "200"): {"link"},  # the last page has none
    ("listOrders", "200"): {"link"},
    ("createPet", "201"): {"idempotency-replayed"},
    ("placeOrder", "201"): {"idempotency-replayed"},
}

IDA: Final = {"name": "Ida", "categoryId": 3}
KEY: Final = {"Idempotency-Key": "used"}
LARGE: Final = {"content": b" " * 65_537, "headers": {"Content-Type": "application/json"}}
REPEATED: Final = LARGE | {"content": b'{"name":"Ida","categoryId":3,"name":"Rex"}'}
UNTYPED: Final = {"content": b"{}"}

# After the walk: pet 3 and order 2 are created, each twice with one key; then come the errors.
STEPS: Final[list[tuple[str, str, Change]]] = [
    *[("createPet", "", {"headers": KEY})] * 2,
    *[("placeOrder", "", {"json": {"petId": 3}, "headers": KEY})] * 2,
    ("listPets", "", {"params": {"limit": 1}}),
    ("listOrders", "", {"params": {"limit": 1}}),
    ("listPets", "400 limit", {"params": {"limit": 0}}),
    ("listPets", "400 status", {"params": {"status": "gone"}}),
    ("listPets", "400 cursor", {"params": {"cursor": "o00000000000001"}}),
    ("createPet", "400 missing", {"json": {"categoryId": 3}}),
    ("createPet", "400 type", {"json": IDA | {"categoryId": "3"}}),
    ("createPet", "400 status", {"json": IDA | {"status": "gone"}}),
    ("createPet", "400 repeated", REPEATED),
    ("createPet", "409", {"json": IDA, "headers": KEY}),
    ("getPet", "404", {"url": "/v1/pets/99"}),
    ("listOrders", "400 limit", {"params": {"limit": 101}}),
    ("listOrders", "400 status", {"params": {"status": "sold"}}),
    ("listOrders", "400 cursor", {"params": {"cursor": "p00000000000001"}}),
    ("placeOrder", "400 missing", {"json": {}}),
    ("placeOrder", "404", {"json": {"petId": 99}}),
    ("placeOrder", "400 type", {"json": {"petId": "1"}}),
    ("placeOrder", "409 pet", {}),
    ("placeOrder", "409 Idempotency-Key", {"headers": KEY}),
    ("getOrder", "404", {"url": "/v1/store/orders/99"}),
    ("updateOrder", "400 missing", {"json": {}}),
    ("updateOrder", "400 status", {"json": {"status": "gone"}}),
    ("updateOrder", "404", {"url": "/v1/store/orders/99"}),
    ("updateOrder", "409", {"json": {"status": "cancelled"}}),
]


class Document:
    """The document: requests and responses by operation, and how to send the requests."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.guide: str = content["info"]["description"]
        self.header_components: dict[str, dict[str, Any]] = content["components"]["headers"]
        self.operations: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, list[Any]] = {}  # None: no body
        self.responses: dict[tuple[str, str], Any] = {}  # by operation, and status and name
        self.headers: dict[tuple[str, str], set[str]] = {}  # by operation and status
        self._lines: dict[str, tuple[str, str]] = {}
        for path, item in content["paths"].items():
            for method, operation in item.items():
                name = operation["operationId"]
                values = {
                    p["name"]: p["example"] for p in operation["parameters"] if "example" in p
                }
                self._lines[name] = method, content["servers"][0]["url"] + path.format(**values)
                self.operations[name] = operation
                body = operation.get("requestBody")
                self.requests[name] = [*examples(body).values()] if body else [None]
                for status, response in operation["responses"].items():
                    self.headers[name, status] = {header.lower() for header in response["headers"]}
                    for example, shown in examples(response).items():
                        self.responses[name, f"{status} {example}".strip()] = shown

    def send(self, client: Client, operation: str, change: Change | None = None) -> Response:
        """Send the first documented request of an operation, with changes if there are any."""
        method, url = self._lines[operation]
        documented: Change = {"url": url, "json": self.requests[operation][0]}
        return client.request(method, **documented | (change or {}))

    def success(self, operation: str) -> Any:
        """Return the documented body of an operation's success."""
        return self.responses[operation, min(self.operations[operation]["responses"])]


def examples(body: dict[str, Any]) -> dict[str, Any]:
    """Return the examples of a body by their names; a single one has none."""
    media = body["content"]["application/json"]
    if "example" in media:
        return {"": media["example"]}
    return {name: example["value"] for name, example in media["examples"].items()}


def repository_of(call: Callable[..., Awaitable[object]]) -> Any:
    """Return a repository all of whose methods are this call."""
    return SimpleNamespace(**dict.fromkeys(Repository.__abstractmethods__, call))


def walk(document: Document, live: Live, update: Any) -> Iterator[tuple[str, Response, Any]]:
    """Send the documented requests to an empty store; yield responses and documented bodies."""
    placed, updated = document.success("placeOrder"), document.success("updateOrder")
    live.state.clock = lambda: datetime.fromisoformat(placed["placedAt"])
    rex, ida = document.requests["createPet"]
    [order] = document.requests["placeOrder"]
    for operation, body, expected in (
        ("createPet", rex, document.success("createPet")),
        ("createPet", ida, document.success("listPets")[1]),
        ("listPets", None, document.success("listPets")),
        ("getPet", None, document.success("getPet")),
        ("placeOrder", order, placed),
        ("listOrders", None, document.success("listOrders")),
        ("getOrder", None, document.success("getOrder")),
        ("updateOrder", update, updated | update),
    ):
        yield operation, document.send(live.client, operation, {"json": body}), expected


def while_it_runs(document: Document) -> Iterator[Observed]:
    """Yield the responses to valid and invalid requests, to storage failures, over the limit."""
    wrong = {"headers": {"Authorization": "Bearer wrong"}}
    with in_thread(LIMITED) as live, live.anonymous() as anonymous:
        for operation, response, _ in walk(document, live, document.requests["updateOrder"][0]):
            yield operation, "", response
        for operation, error, change in STEPS:
            yield operation, error, document.send(live.client, operation, change)
        for operation in ("createPet", "placeOrder", "updateOrder"):
            yield operation, "413", document.send(live.client, operation, LARGE)
            yield operation, "415", document.send(live.client, operation, UNTYPED)
        for operation in document.operations:
            yield operation, "401 missing", document.send(anonymous, operation)
            yield operation, "401 invalid", document.send(anonymous, operation, wrong)
        for error, exception in (("500", RuntimeError()), ("503 storage", UnavailableError())):
            live.state.repository = repository_of(AsyncMock(side_effect=exception))
            for operation in document.operations:
                yield operation, error, document.send(live.client, operation)
        for _ in range(99):
            live.client.get("/v1/pets")
        for operation in document.operations:
            yield operation, "429", document.send(live.client, operation)


def while_it_is_full_and_stops(document: Document) -> Iterator[Observed]:
    """Yield the responses while requests wait for the storage, then those to the requests."""
    arrived, operations = threading.Semaphore(0), list(document.operations)

    async def wait(*_: object) -> None:
        arrived.release()
        await asyncio.sleep(60)

    with ThreadPoolExecutor(len(operations)) as pool, Client(timeout=HANG_SECONDS) as client:
        with in_thread(LIMITED) as live:
            live.state.repository = repository_of(wait)
            client.base_url, client.headers = live.client.base_url, live.client.headers
            waiting = [pool.submit(document.send, client, operation) for operation in operations]
            assert all(arrived.acquire(timeout=HANG_SECONDS) for _ in operations)
            for operation in operations:
                yield operation, "503 overload", document.send(live.client, operation)
        for operation, request in zip(operations, waiting, strict=True):
            yield operation, "503 stop", request.result()


@pytest.fixture(scope="module")
def document() -> Document:
    """Return the document of a running service."""
    with in_thread() as live:
        return Document(live.client.get("/openapi.json").json())


@pytest.fixture(scope="module")
def observed(document: Document) -> list[Observed]:
    """Reproduce everything that the document shows; return the responses in order."""
    return [*while_it_runs(document), *while_it_is_full_and_stops(document)]


def test_every_documented_error_occurs_as_documented(
    document: Document, observed: list[Observed]
) -> None:
    documented = {key: body for key, body in document.responses.items() if key[1] >= "4"}
    found = {(name, error): response.json() for name, error, response in observed if error}
    assert found == documented
    for _, error, response in observed:
        assert response.is_success if not error else error.startswith(str(response.status_code))


def test_lists_and_error_codes_are_named_components(document: Document) -> None:
    schemas = document.content["components"]["schemas"]
    assert schemas["ErrorCode"]["enum"] == sorted(ErrorCode)
    assert schemas["Error"]["properties"]["code"]["$ref"] == "#/components/schemas/ErrorCode"
    for operation, component, item in (
        ("listPets", "Pets", "Pet"),
        ("listOrders", "Orders", "Order"),
    ):
        body = document.operations[operation]["responses"]["200"]["content"]["application/json"]
        assert body["schema"] == {"$ref": f"#/components/schemas/{component}"}
        assert schemas[component]["type"] == "array"
        assert schemas[component]["items"] == {"$ref": f"#/components/schemas/{item}"}


def test_operations_are_in_order_and_their_bodies_are_required(document: Document) -> None:
    pets, orders = ("listPets", "createPet", "getPet"), ("listOrders", "placeOrder", "getOrder")
    assert [*document.operations] == [*pets, *orders, "updateOrder"]
    bodies = [found.get("requestBody") for found in document.operations.values()]
    assert [body["required"] for body in bodies if body] == [True] * 3


def test_only_get_pet_is_deprecated(document: Document) -> None:
    deprecated = [name for name, found in document.operations.items() if found.get("deprecated")]
    assert deprecated == ["getPet"]


def test_the_documented_requests_get_the_documented_responses(document: Document) -> None:
    assert document.success("updateOrder").items() >= document.requests["updateOrder"][0].items()
    for update in document.requests["updateOrder"]:
        with in_thread() as live:
            for operation, response, expected in walk(document, live, update):
                assert (operation, str(response.status_code)) in document.responses
                assert response.json() == expected


def test_the_headers_are_the_documented_ones(document: Document, observed: list[Observed]) -> None:
    found: dict[tuple[str, str], set[str]] = {}
    for operation, _, response in observed:
        key = operation, str(response.status_code)
        sent = set(response.headers) - UNDOCUMENTED
        assert sent <= document.headers[key], key
        assert document.headers[key] - sent <= OPTIONAL.get(key, set()), key
        found.setdefault(key, set()).update(sent)
    assert found == document.headers, "each optional header was sent at least once"


def test_the_headers_match_their_schemas(document: Document, observed: list[Observed]) -> None:
    for name, header in document.header_components.items():
        sent = {value for *_, response in observed for value in response.headers.get_list(name)}
        for value in sent:
            assert re.search(header["schema"].get("pattern", ""), value), name
            assert header["schema"].get("const", value) == value, name


def test_the_documented_parameters_are_accepted(document: Document, fresh: Live) -> None:
    for operation, described in document.operations.items():
        documented: dict[str, Change] = {"query": {}, "header": {}}
        for parameter in described["parameters"]:
            if parameter["in"] != "path":
                [documented[parameter["in"]][parameter["name"]]] = parameter["schema"]["examples"]
        change = {"params": documented["query"], "headers": documented["header"]}
        assert document.send(fresh.client, operation, change).is_success, operation


def test_the_pattern_of_a_key_matches_exactly_the_accepted_keys(
    document: Document, fresh: Live
) -> None:
    for operation in ("createPet", "placeOrder"):
        [parameter] = document.operations[operation]["parameters"]
        for key in ("!", "~", "a" * 255, "", "a b", "\u00e4", "a" * 256):
            change = {"headers": {"Idempotency-Key": key.encode("latin-1")}}
            expected = (201, 409) if re.search(parameter["schema"]["pattern"], key) else (400,)
            assert document.send(fresh.client, operation, change).status_code in expected, key


def test_the_requests_of_the_guide_work(document: Document, fresh: Live) -> None:
    document.send(fresh.client, "createPet")
    listing, ordering = blocks(document.guide, "sh")
    runs = [bash(s, SERVER=f"{fresh.url}/v1", KEY=fresh.key) for s in (listing, ordering, ordering)]
    pets, order, again = [json.loads(run.stdout) for run in runs]
    assert pets == [document.success("createPet")]
    assert order.keys() == document.success("placeOrder").keys()
    assert again == order, "it takes effect once"


def test_the_guide_shows_responses_as_they_are_sent(document: Document) -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit=RateLimit.parse("100/s"))) as live:
        error = document.send(live.client, "getPet")
        for _ in range(51):
            document.send(live.client, "createPet")
        page = live.client.get("/v1/pets?limit=50&status=available")
        assert live.client.get(page.links["next"]["url"]).json()[0]["id"] == 51
    limits = {name: [error.headers[name]] for name in ("RateLimit-Policy", "RateLimit")}
    shown = [
        (page, "Link"),
        *((error, name) for name in (*limits, "Deprecation", "Sunset", "Link")),
    ]
    headers = "".join(f"{name}: {response.headers[name]}\n" for response, name in shown)
    assert "".join(blocks(document.guide, "http")) == headers
    assert {
        name: document.header_components[name]["schema"]["examples"] for name in limits
    } == limits
    assert [json.loads(block) for block in blocks(document.guide, "json")] == [error.json()]


def test_dates_and_numbers_in_its_texts_are_correct(document: Document, fresh: Live) -> None:
    sunset = document.send(fresh.client, "getPet").headers["sunset"]
    described, date = document.operations["getPet"], parsedate_to_datetime(sunset)
    assert described["x-sunset"] == sunset
    assert f"will be removed on {date.day} {date:%B %Y}:" in described["description"]
    assert f" {DEFAULT_LIMIT} items unless you set `limit`" in document.guide
    [key] = document.operations["createPet"]["parameters"]
    for text in (document.guide, key["description"]):
        assert re.search(rf"\b[Ff]or {RECORD_SECONDS // 3600} hours\b", text)


def test_the_category_says_what_it_means_for_javascript(document: Document) -> None:
    for name in ("NewPet", "Pet"):
        category = document.content["components"]["schemas"][name]["properties"]["categoryId"]
        assert category["format"] == "int64"
        assert "2^53" in category["description"]
