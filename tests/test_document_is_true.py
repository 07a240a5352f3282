"""What the OpenAPI document shows, the service does: its examples, its header fields, its guide.

The words of the document are written by hand (openapi_texts.py). Here all that it shows is brought
about in running services and compared with what comes.
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

from petstore.api.idempotency import RETRY_SECONDS
from petstore.contract import UnavailableError
from petstore.paging import DEFAULT_LIMIT
from petstore.settings import Settings
from tests.live import Live, in_thread
from tests.test_documentation import bash

Change = dict[str, Any]  # what differs from the request that is shown, as httpx takes it
Told = tuple[str, str, Response]  # operation, the error that its answer is to show or "", answer

# Seven at once: as many as there are operations.
LIMITED: Final = Settings(drain_seconds=0, shutdown_seconds=0, max_in_flight=7, rate_limit="99/h")

# The header fields of HTTP itself, and for browsers: the document names none of them.
USUAL: Final = {
    "date", "content-type", "content-length", "connection", "x-content-type-options",
    "content-security-policy",
}  # fmt: skip
NOT_ALWAYS: Final = {
    ("listPets", "200"): {"link"}, ("listOrders", "200"): {"link"},  # the last page has none
    ("createPet", "201"): {"idempotency-replayed"}, ("placeOrder", "201"): {"idempotency-replayed"},
}  # fmt: skip

CALLS: Final = (
    "list_pets", "create_pet", "get_pet", "list_orders", "place_order", "get_order", "update_order",
)  # fmt: skip

IDA: Final = {"name": "Ida", "categoryId": 3}
KEY: Final = {"Idempotency-Key": "used"}
LARGE: Final = {"content": b" " * 65_537, "headers": {"Content-Type": "application/json"}}
UNTYPED: Final = {"content": b"{}"}

# After the walk: animal 3 and order 2 are added, each twice with one key; then come the errors.
STEPS: Final[list[tuple[str, str, Change]]] = [
    *[("createPet", "", {"headers": KEY})] * 2,
    *[("placeOrder", "", {"json": {"petId": 3}, "headers": KEY})] * 2,
    ("listPets", "", {"params": {"limit": 1}}), ("listOrders", "", {"params": {"limit": 1}}),
    ("listPets", "400 limit", {"params": {"limit": 0}}),
    ("listPets", "400 status", {"params": {"status": "gone"}}),
    ("listPets", "400 cursor", {"params": {"cursor": "o00000000000001"}}),
    ("createPet", "400 missing", {"json": {"categoryId": 3}}),
    ("createPet", "400 type", {"json": IDA | {"categoryId": "3"}}),
    ("createPet", "400 status", {"json": IDA | {"status": "gone"}}),
    ("createPet", "409", {"json": IDA, "headers": KEY}),
    ("createPet", "413", LARGE), ("createPet", "415", UNTYPED),
    ("getPet", "404", {"url": "/v1/pets/99"}),
    ("listOrders", "400 limit", {"params": {"limit": 101}}),
    ("listOrders", "400 status", {"params": {"status": "sold"}}),
    ("listOrders", "400 cursor", {"params": {"cursor": "p00000000000001"}}),
    ("placeOrder", "400 missing", {"json": {}}), ("placeOrder", "404", {"json": {"petId": 99}}),
    ("placeOrder", "400 type", {"json": {"petId": "1"}}),
    ("placeOrder", "409 animal", {}), ("placeOrder", "409 Idempotency-Key", {"headers": KEY}),
    ("placeOrder", "413", LARGE), ("placeOrder", "415", UNTYPED),
    ("getOrder", "404", {"url": "/v1/store/orders/99"}),
    ("updateOrder", "400 missing", {"json": {}}),
    ("updateOrder", "400 status", {"json": {"status": "gone"}}),
    ("updateOrder", "404", {"url": "/v1/store/orders/99"}),
    ("updateOrder", "409", {"json": {"status": "cancelled"}}),
    ("updateOrder", "413", LARGE), ("updateOrder", "415", UNTYPED),
]  # fmt: skip


class Document:
    """The document: what it shows, operation by operation, and how to ask that."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.guide: str = said["info"]["description"]
        self.fields: dict[str, dict[str, Any]] = said["components"]["headers"]
        self.operations: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, list[Any]] = {}  # no body: None
        self.answers: dict[tuple[str, str], Any] = {}  # by operation, and status with name if any
        self.headers: dict[tuple[str, str], set[str]] = {}  # by operation and status
        self._lines: dict[str, tuple[str, str]] = {}
        for path, item in said["paths"].items():
            for method, operation in item.items():
                name = operation["operationId"]
                given = {p["name"]: p["example"] for p in operation["parameters"] if "example" in p}
                self._lines[name] = method, said["servers"][0]["url"] + path.format(**given)
                self.operations[name] = operation
                body = operation.get("requestBody")
                self.requests[name] = [*examples(body).values()] if body else [None]
                for status, answer in operation["responses"].items():
                    self.headers[name, status] = {field.lower() for field in answer["headers"]}
                    for example, shown in examples(answer).items():
                        self.answers[name, f"{status} {example}".strip()] = shown

    def ask(self, client: Client, operation: str, change: Change | None = None) -> Response:
        """Send the first request that is shown for an operation, or one that differs from it."""
        method, url = self._lines[operation]
        shown: Change = {"url": url, "json": self.requests[operation][0]}
        return client.request(method, **shown | (change or {}))

    def success(self, operation: str) -> Any:
        """Return the body that is shown for an operation that succeeds."""
        return self.answers[operation, min(self.operations[operation]["responses"])]

    def blocks(self, language: str) -> list[str]:
        """Return the blocks of the guide in a language."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.guide, re.MULTILINE | re.DOTALL)


def examples(described: dict[str, Any]) -> dict[str, Any]:
    """Return the examples of a body by their names; the only one has none."""
    media = described["content"]["application/json"]
    if "example" in media:
        return {"": media["example"]}
    return {name: example["value"] for name, example in media["examples"].items()}


def odd(call: Callable[..., Awaitable[object]]) -> Any:
    """Return a repository of which every call does the same."""
    return SimpleNamespace(**dict.fromkeys(CALLS, call))


def walk(document: Document, live: Live, update: Any) -> Iterator[tuple[str, Response, Any]]:
    """Ask what is shown, in an empty store; yield what comes, and what is shown to come."""
    placed, updated = document.success("placeOrder"), document.success("updateOrder")
    live.service.clock = lambda: datetime.fromisoformat(placed["placedAt"])
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
        yield operation, document.ask(live.client, operation, {"json": body}), expected


def when_it_runs(document: Document) -> Iterator[Told]:
    """Yield what a service answers: when all is well, to mistakes, with faults, to too much."""
    wrong = {"headers": {"Authorization": "Bearer wrong"}}
    with in_thread(LIMITED) as live, live.anonymous() as nobody:
        for operation, answer, _ in walk(document, live, document.requests["updateOrder"][0]):
            yield operation, "", answer
        for operation, error, change in STEPS:
            yield operation, error, document.ask(live.client, operation, change)
        for operation in document.operations:
            yield operation, "401 missing", document.ask(nobody, operation)
            yield operation, "401 invalid", document.ask(nobody, operation, wrong)
        for error, fault in (("500", RuntimeError()), ("503 storage", UnavailableError())):
            live.service.repository = odd(AsyncMock(side_effect=fault))
            for operation in document.operations:
                yield operation, error, document.ask(live.client, operation)
        for _ in range(99):
            live.client.get("/v1/pets")
        for operation in document.operations:
            yield operation, "429", document.ask(live.client, operation)


def when_it_is_full_and_stops(document: Document) -> Iterator[Told]:
    """Yield what comes beside requests that wait for the storage, and to these at the end."""
    come, operations = threading.Semaphore(0), list(document.operations)

    async def wait(*_: object) -> None:
        come.release()
        await asyncio.sleep(60)

    with ThreadPoolExecutor(len(operations)) as pool, Client() as client:
        with in_thread(LIMITED) as live:
            live.service.repository = odd(wait)
            client.base_url, client.headers = live.client.base_url, live.client.headers
            waiting = [pool.submit(document.ask, client, operation) for operation in operations]
            assert all(come.acquire(timeout=10) for _ in operations)
            for operation in operations:
                yield operation, "503 overload", document.ask(live.client, operation)
        for operation, request in zip(operations, waiting, strict=True):
            yield operation, "503 stop", request.result()


@pytest.fixture(scope="module")
def document() -> Document:
    """Return the document of a running service."""
    with in_thread() as live:
        return Document(live.client.get("/openapi.json").json())


@pytest.fixture(scope="module")
def told(document: Document) -> list[Told]:
    """Bring about all that the document shows; return what was answered, in this order."""
    return [*when_it_runs(document), *when_it_is_full_and_stops(document)]


def test_every_error_that_it_shows_comes_as_shown(document: Document, told: list[Told]) -> None:
    shown = {key: body for key, body in document.answers.items() if key[1] >= "4"}
    assert {(name, error): answer.json() for name, error, answer in told if error} == shown
    for _, error, answer in told:
        assert answer.is_success if not error else error.startswith(str(answer.status_code))


def test_the_requests_that_it_shows_are_answered_as_shown(document: Document) -> None:
    assert document.success("updateOrder").items() >= document.requests["updateOrder"][0].items()
    for update in document.requests["updateOrder"]:
        with in_thread() as live:
            for operation, answer, expected in walk(document, live, update):
                assert (operation, str(answer.status_code)) in document.answers
                assert answer.json() == expected


def test_header_fields_are_those_that_it_names(document: Document, told: list[Told]) -> None:
    found: dict[tuple[str, str], set[str]] = {}
    for operation, _, answer in told:
        key = operation, str(answer.status_code)
        sent = set(answer.headers) - USUAL
        assert sent <= document.headers[key], key
        assert document.headers[key] - sent <= NOT_ALWAYS.get(key, set()), key
        found.setdefault(key, set()).update(sent)
    assert found == document.headers, "what is not always sent was sent once"


def test_header_fields_are_as_their_schemas_say(document: Document, told: list[Told]) -> None:
    for name, field in document.fields.items():
        for value in {value for *_, answer in told for value in answer.headers.get_list(name)}:
            assert re.search(field["schema"].get("pattern", ""), value), name
            assert field["schema"].get("const", value) == value, name


def test_the_parameters_that_it_shows_are_taken(document: Document, fresh: Live) -> None:
    for operation, said in document.operations.items():
        shown: dict[str, Change] = {"query": {}, "header": {}}
        for parameter in said["parameters"]:
            if parameter["in"] != "path":
                [shown[parameter["in"]][parameter["name"]]] = parameter["schema"]["examples"]
        change = {"params": shown["query"], "headers": shown["header"]}
        assert document.ask(fresh.client, operation, change).is_success, operation


def test_the_pattern_of_a_key_is_what_is_taken(document: Document, fresh: Live) -> None:
    for operation in ("createPet", "placeOrder"):
        [parameter] = document.operations[operation]["parameters"]
        for key in ("!", "~", "a" * 255, "", "a b", "\u00e4", "a" * 256):
            change = {"headers": {"Idempotency-Key": key.encode("latin-1")}}
            expected = (201, 409) if re.search(parameter["schema"]["pattern"], key) else (400,)
            assert document.ask(fresh.client, operation, change).status_code in expected, key


def test_the_requests_of_the_guide_work(document: Document, fresh: Live) -> None:
    document.ask(fresh.client, "createPet")
    listing, ordering = document.blocks("sh")
    runs = [bash(s, SERVER=f"{fresh.url}/v1", KEY=fresh.key) for s in (listing, ordering, ordering)]
    pets, order, again = [json.loads(run.stdout) for run in runs]
    assert pets == [document.success("createPet")]
    assert order.keys() == document.success("placeOrder").keys()
    assert again == order, "it takes effect once"


def test_the_guide_shows_answers_as_they_come(document: Document) -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="100/s")) as live:
        error = document.ask(live.client, "getPet")
        for _ in range(51):
            document.ask(live.client, "createPet")
        page = live.client.get("/v1/pets?limit=50&status=available")
        assert live.client.get(page.links["next"]["url"]).json()[0]["id"] == 51
    limits = {name: [error.headers[name]] for name in ("RateLimit-Policy", "RateLimit")}
    shown = [
        (page, "Link"),
        *((error, name) for name in (*limits, "Deprecation", "Sunset", "Link")),
    ]
    fields = "".join(f"{name}: {answer.headers[name]}\n" for answer, name in shown)
    assert "".join(document.blocks("http")) == fields
    assert {name: document.fields[name]["schema"]["examples"] for name in limits} == limits
    assert [json.loads(block) for block in document.blocks("json")] == [error.json()]


def test_dates_and_numbers_in_its_texts_are_true(document: Document, fresh: Live) -> None:
    sunset = document.ask(fresh.client, "getPet").headers["sunset"]
    said, date = document.operations["getPet"], parsedate_to_datetime(sunset)
    assert said["x-sunset"] == sunset
    assert f"to be removed on {date.day} {date:%B %Y}:" in said["description"]
    assert f" {DEFAULT_LIMIT} items unless `limit` says otherwise" in document.guide
    [key] = document.operations["createPet"]["parameters"]
    for text in (document.guide, key["description"]):
        assert f"or {RETRY_SECONDS // 3600} hours" in text
