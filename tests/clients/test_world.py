"""HTTP clients of many languages, directly and behind each proxy: all take the same walk.

The clients are in world/. docs/clients.md has a table of what was tried. With
PETSTORE_WORLD=docs/clients.md it is written from the walks of this process.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from threading import Timer
from typing import Any, Final
from unittest import mock

import pytest
from httpx import Response
from petstore_conformance.faults.histories import Item

from petstore.server.connection import HttpConnection
from tests.clients.page import CLIENTS as PAGE
from tests.clients.proxies import PROXIES, in_front
from tests.support.environments import missing, node_modules, programs
from tests.support.interface import ORDERS, PETS
from tests.support.raw_http import LIMIT
from tests.support.responses import check_error, next_link
from tests.support.services import KEY, Live, environment, in_thread
from tests.support.waiting import HANG_SECONDS

HERE: Final = Path(__file__).parent
WORLD: Final = HERE / "world"
CLIENTS: Final[dict[str, dict[str, Any]]] = tomllib.loads((WORLD / "clients.toml").read_text())
DIRECT: Final = "direct"
ROUTES: Final = (DIRECT, *PROXIES)

ZOE: Final = {"name": "Zoë", "categoryId": 7, "status": "available"}
LARGE: Final = ZOE | {"name": "é" * 8000, "status": "sold"}

Ask = Callable[..., list[Response]]
"""Has a client make a request, perhaps several times."""

passed: Final[set[tuple[str, str]]] = set()


class Shop:
    """A service with a large page of sold pets, and how many connections it has accepted."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.accepted = 0
        self.large = [live.client.post(PETS, json=LARGE).json() for _ in range(100)]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    made = HttpConnection.connection_made
    with in_thread(backend="memory") as live:
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
) -> Iterator[tuple[str, str]]:
    """Run a proxy; return its name and URL."""
    if request.param == DIRECT:
        yield DIRECT, shop.live.url
    else:
        directory = tmp_path_factory.mktemp("proxy")
        with in_front(PROXIES[request.param], shop.live.port, directory) as url:
            yield request.param, url


@cache
def client_environment() -> dict[str, str]:
    """Install the packages of the clients; return the environment that they run in."""
    node_modules(WORLD)
    python = programs("clients", HERE / "python/requirements.lock")
    return environment() | {"PATH": f"{python}:{os.environ['PATH']}"}


@cache
def version(command: str) -> str:
    """Return the version that a command prints, or skip the test if it fails."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=WORLD / "clients",
        env=client_environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    printed = done.stdout + done.stderr
    found = re.search(r"\d+(\.\d+)+", printed)
    if done.returncode or not found:
        missing(f"{command}: {printed}")
    return found[0]


@contextmanager
def running(client: str, url: str, log: Path) -> Iterator[Ask]:
    """Run a client of a URL until the block is left."""
    version(CLIENTS[client]["version"])

    def ask(
        method: str,
        target: str,
        body: object = None,
        *,
        count: int = 1,
        key: str = KEY,
        retry: str = "",
    ) -> list[Response]:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":")) if body else ""
        headers = [f"Authorization: Bearer {key}"] if key else []
        headers += ["Content-Type: application/json"] if body else []
        headers += [f"Idempotency-Key: {retry}"] if retry else []
        stdin.write("\t".join([f"{count}", method, url + target, text, *headers]) + "\n")
        stdin.flush()
        return [response(stdout.readline()) for _ in range(count)]

    def response(line: str) -> Response:
        assert line, log.read_text()
        status, body, *headers = line.rstrip("\n").split("\t")
        pairs = [(name, value) for name, _, value in (field.partition(": ") for field in headers)]
        return Response(int(status), headers=pairs, content=body.encode())

    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            shlex.split(CLIENTS[client]["run"]),
            cwd=WORLD / "clients",
            env=client_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            encoding="utf-8",
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout
        hang = Timer(HANG_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        hang.start()
        try:
            yield ask
        finally:
            hang.cancel()


def pages(ask: Ask, target: str | None) -> Iterator[list[Item]]:
    """Yield a page and all pages after it."""
    while target:
        (page,) = ask("GET", target)
        assert page.status_code == 200
        yield page.json()
        target = next_link(page)


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_walks_through_the_interface(
    client: str, route: tuple[str, str], shop: Shop, tmp_path: Path
) -> None:
    with running(client, route[1], tmp_path / "log") as ask:
        created = ask("POST", PETS, ZOE, count=3)
        pets = [pet.json() for pet in created]
        for pet in created:
            assert (pet.status_code, pet.json()) == (201, ZOE | {"id": pet.json()["id"]})
            assert pet.headers["location"] == f"{PETS}/{pet.json()['id']}"

        listed = list(pages(ask, f"{PETS}?status=available&limit=2"))
        assert len(listed) > 1
        assert [pet for page in listed for pet in page if pet in pets] == pets
        assert next(pages(ask, f"{PETS}?status=sold&limit=100")) == shop.large

        for pet in created:
            order = {"petId": pet.json()["id"]}
            first, again = ask("POST", ORDERS, order, count=2, retry=f"{uuid.uuid4()}")
            assert (first.status_code, first.json()["status"]) == (201, "placed")
            assert (again.status_code, again.json()) == (201, first.json())
            assert first.headers["location"] == again.headers["location"]
            replayed = [one.headers.get("idempotency-replayed") for one in (first, again)]
            assert replayed == [None, "true"]
            (refused,) = ask("POST", ORDERS, order)
            check_error(refused, 409, "conflict")
        (done,) = ask("PATCH", first.headers["location"], {"status": "completed"})
        assert (done.status_code, done.json()) == (200, first.json() | {"status": "completed"})

        location = created[0].headers["location"]
        for key, error in (("", ""), ("wrong", ', error="invalid_token"')):
            (refused,) = ask("GET", location, key=key)
            assert refused.status_code == 401
            if client != "wget":  # it discards the body
                check_error(refused, 401, "unauthorized")
            assert refused.headers["www-authenticate"] == f'Bearer realm="petstore"{error}'
        for status, code, *request in (
            (400, "invalid_request", "POST", PETS, ZOE | {"categoryId": "7"}),
            (404, "not_found", "GET", f"{PETS}/{2**53 - 1}"),
            (413, "payload_too_large", "POST", PETS, ZOE | {"name": "x" * (LIMIT + 32 * 1024)}),
        ):
            (refused,) = ask(*request)
            check_error(refused, status, code)

        before = shop.accepted
        hundred = ask("GET", location, count=100)
        assert {got.status_code for got in hundred} == {200}
        assert {got.headers["link"] for got in hundred} == {f'<{PETS}>; rel="successor-version"'}
        assert [got.json() for got in hundred] == [pets[0] | {"status": "pending"}] * 100
        assert len({got.headers["x-request-id"] for got in hundred}) == 100
        if route[0] == DIRECT:
            accepted = shop.accepted - before
            assert accepted == 100 if CLIENTS[client].get("once") else accepted <= 1
    passed.add((client, route[0]))


@pytest.mark.slow
def test_a_path_arrives_as_it_was_sent(route: tuple[str, str]) -> None:
    with closing(HTTPConnection(route[1].removeprefix("http://"))) as connection:
        for path in ("/v1/pets%2F1", "/v1/pets//1", "/v1/./pets", "/v1/pets/"):
            connection.request("GET", path)
            assert json.load(connection.getresponse())["code"] == "not_found", path


def tried() -> str:
    """Return the table of what was tried in this process."""
    rows = [
        ["client", "version", *ROUTES],
        ["---"] * (2 + len(ROUTES)),
        ["", "", "", *(version(proxy.version) for proxy in PROXIES.values())],
    ]
    for client, values in CLIENTS.items():
        marks = ("✓" if (client, route) in passed else "✗" for route in ROUTES)
        rows.append([client, version(values["version"]), *marks])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_table_on_the_page_has_all_of_them() -> None:
    page = PAGE
    if path := os.environ.get("PETSTORE_WORLD"):
        page = re.sub(r"(^\|.*\n)+", lambda _: tried(), page, flags=re.MULTILINE)
        today = datetime.now(UTC).date()
        page = re.sub(r"\d+ [A-Z][a-z]+ 20\d\d", f"{today.day} {today:%B %Y}", page)
        Path(path).write_text(page)
    lines = re.findall(r"^\| (.*) \|$", page, re.MULTILINE)
    head, _, _, *rows = (line.split(" | ") for line in lines)
    assert head == ["client", "version", *ROUTES]
    assert {row[0]: row[2:] for row in rows} == {client: ["✓"] * len(ROUTES) for client in CLIENTS}
