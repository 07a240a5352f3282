"""HTTP clients of many languages, directly and behind each proxy: all take the same walk.

docs/clients.md has a table of what was tried. With PETSTORE_WORLD=docs/clients.md it is written
with what this process has found, in test_losing.py too.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
from petstore_conformance.faults.histories import Item

from petstore.config.settings import RateLimit, Settings
from petstore.http.limits import RateLimiter
from petstore.server.connection import HttpConnection
from tests.clients.client import CLIENTS, LOSSES, WRITTEN, Ask, found, note, running, table, version
from tests.clients.page import CLIENTS as PAGE
from tests.clients.proxies import PROXIES, Front, in_front
from tests.support.interface import ORDERS, PETS
from tests.support.raw_http import LIMIT
from tests.support.responses import check_error, next_link
from tests.support.services import Live, in_thread

DIRECT: Final = "direct"
ROUTES: Final = (DIRECT, *PROXIES)
COLUMNS: Final = (*ROUTES, *LOSSES)

ZOE: Final = {"name": "Zoë", "categoryId": 7, "status": "available"}
LARGE: Final = ZOE | {"name": "é" * 8000, "status": "sold"}


class Shop:
    """A service with a large page of sold pets, and how many connections it has accepted."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.accepted = 0
        self.large = [live.client.post(PETS, json=LARGE).json() for _ in range(100)]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    made = HttpConnection.connection_made
    settings = Settings(drain_seconds=0, rate_limit=RateLimit(10**8, 1))
    with in_thread(settings, backend="memory") as live:
        counting = Shop(live)

        def count(connection: HttpConnection, transport: Any) -> None:
            counting.accepted += 1
            made(connection, transport)

        with mock.patch.object(HttpConnection, "connection_made", count):
            yield counting


@pytest.fixture(
    scope="module",
    params=[pytest.param(route, marks=pytest.mark.xdist_group(route)) for route in ROUTES],
)
def route(
    request: pytest.FixtureRequest, shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Front]]:
    """Run a proxy; return its name and where it is."""
    directory = tmp_path_factory.mktemp("proxy")
    if request.param == DIRECT:
        yield DIRECT, Front(shop.live.url)
    else:
        with in_front(PROXIES[request.param], shop.live.port, directory) as front:
            yield request.param, front


def pages(ask: Ask, target: str | None) -> Iterator[list[Item]]:
    """Yield a page and all pages after it."""
    while target:
        (page,) = ask("GET", target)
        assert page.status_code == 200
        yield page.json()
        target = next_link(page)


def walk_orders(ask: Ask, ordered: list[Item]) -> None:
    """Order pets, retry, read and complete."""
    orders = []
    for pet in ordered:
        order, retry = {"petId": pet["id"]}, f"{uuid.uuid4()}"
        placed = ask("POST", ORDERS, order, count=5, parallel=True, retry=retry)
        assert {got.status_code for got in placed} == {201}
        assert [got.json() for got in placed] == [placed[0].json()] * 5
        (path,) = {got.headers["location"] for got in placed}
        replayed = [got.headers.get("idempotency-replayed", "no") for got in placed]
        assert sorted(replayed) == ["no", *["true"] * 4]
        (again,) = ask("POST", ORDERS, order)
        check_error(again, 409, "conflict")
        (other,) = ask("POST", ORDERS, {"petId": pet["id"] + 1}, retry=retry)
        check_error(other, 409, "conflict")
        orders.append(placed[0].json())
    (done,) = ask("PATCH", path, {"status": "completed"})
    assert (done.status_code, done.json()) == (200, orders[-1] | {"status": "completed"})
    (got,) = ask("GET", path)
    assert (got.status_code, got.json()) == (200, done.json())
    listed = list(pages(ask, f"{ORDERS}?status=placed&limit=2"))
    assert [order for page in listed for order in page if order in orders] == orders[:-1]


def walk_errors(ask: Ask, location: str, proxy: str) -> None:
    """Make requests that are refused."""
    for key, error in (("", ""), ("wrong", ', error="invalid_token"')):
        (refused,) = ask("GET", location, key=key)
        check_error(refused, 401, "unauthorized")
        assert refused.headers["www-authenticate"] == f'Bearer realm="petstore"{error}'
    text = ZOE | {"name": "x" * (LIMIT + 32 * 1024)}
    for status, code, *request in (
        (400, "invalid_request", "POST", PETS, ZOE | {"categoryId": "7"}),
        (404, "not_found", "GET", f"{PETS}/{2**53 - 1}"),
        (413, "payload_too_large", "POST", PETS, text),
    ):
        # Squid may lose a 413, as docs/clients.md says, and if it lost one, often the next as well.
        tries = 5 if (status, proxy) == (413, "Squid") else 1
        heard = [got for got in ask(*request, count=tries) if got.status_code or tries == 1]
        assert heard, "all of them were lost"
        for refused in heard:
            check_error(refused, status, code)
    # Squid may close a connection after a 413 without saying so, and not every client repeats what
    # it has then sent on it: let the client notice first.
    time.sleep(0.1)
    (refused,) = ask("POST", PETS, ZOE, media="text/plain")
    check_error(refused, 415, "unsupported_media_type")
    (refused,) = ask("DELETE", location)
    check_error(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS"
    with mock.patch.object(RateLimiter, "take", return_value=(1, ())):
        (refused,) = ask("GET", PETS)
    check_error(refused, 429, "rate_limited")
    assert refused.headers["retry-after"].isdecimal()


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_walks_through_the_interface(
    client: str, route: tuple[str, Front], shop: Shop, tmp_path: Path
) -> None:
    with running(client, route[1], tmp_path / "log") as ask:
        created = ask("POST", PETS, ZOE, count=3)
        zoes = [pet.json() for pet in created]
        for pet in created:
            assert (pet.status_code, pet.json()) == (201, ZOE | {"id": pet.json()["id"]})
            assert pet.headers["location"] == f"{PETS}/{pet.json()['id']}"
        listed = list(pages(ask, f"{PETS}?status=available&limit=2"))
        assert len(listed) > 1
        assert [pet for page in listed for pet in page if pet in zoes] == zoes
        assert next(pages(ask, f"{PETS}?status=sold&limit=100")) == shop.large

        location = created[0].headers["location"]
        walk_orders(ask, zoes)
        walk_errors(ask, location, route[0])

        before = shop.accepted
        hundred = ask("GET", location, count=100)
        assert {got.status_code for got in hundred} == {200}
        assert {got.headers["link"] for got in hundred} == {f'<{PETS}>; rel="successor-version"'}
        assert [got.json() for got in hundred] == [zoes[0] | {"status": "pending"}] * 100
        assert len({got.headers["x-request-id"] for got in hundred}) == 100
        if route[0] == DIRECT:
            assert shop.accepted - before <= 1
        (head,) = ask("HEAD", location)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == f"{len(hundred[0].content)}"

        (document,) = ask("GET", "/openapi.json")
        etag = document.headers["etag"]
        (same,) = ask("GET", "/openapi.json", None, f"If-None-Match: {etag}")
        assert (same.status_code, same.content) == (304, b"")
    http2 = hundred[0].headers.get("x-protocol") == "HTTP/2.0"
    note(client, route[0], "✓ HTTP/2" if http2 else "✓")


@pytest.mark.slow
def test_a_path_arrives_as_it_was_sent(route: tuple[str, Front]) -> None:
    front = route[1]
    host = front.url.partition("://")[2]
    with closing(
        HTTPSConnection(host, context=front.tls) if front.certificate else HTTPConnection(host)
    ) as connection:
        for path in ("/v1/pets%2F1", "/v1/pets//1", "/v1/./pets", "/v1/pets/"):
            connection.request("GET", path)
            assert json.load(connection.getresponse())["code"] == "not_found", path


def tried() -> str:
    """Return the table of what was tried in this process."""
    rows = [
        ["client", "version", *COLUMNS],
        ["---"] * (2 + len(COLUMNS)),
        ["", "", "", *(version(proxy.version) for proxy in PROXIES.values()), *[""] * len(LOSSES)],
    ]
    for client, (_, versioned) in CLIENTS.items():
        cells = (found.get((client, column), "✗") for column in COLUMNS)
        rows.append([client, version(versioned), *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_table_on_the_page_has_all_of_them() -> None:
    page = PAGE
    if WRITTEN:
        page = re.sub(r"(^\|.*\n)+", lambda _: tried(), page, flags=re.MULTILINE)
        today = datetime.now(UTC).date()
        page = re.sub(r"\d+ [A-Z][a-z]+ 20\d\d", f"{today.day} {today:%B %Y}", page)
        Path(WRITTEN).write_text(page)
    cells = table(page)
    assert [*cells] == [*CLIENTS]
    for client, row in cells.items():
        assert [*row] == ["client", "version", *COLUMNS], client
        assert all(row[route].startswith("✓") for route in ROUTES), client
