"""What HTTP clients of many languages do when a response is lost, or the service restarts."""

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM
from threading import Event
from time import sleep
from typing import Final

import httpx
import pytest

from tests.clients.client import CLIENTS, found, note, running
from tests.clients.gateway import gateway
from tests.clients.proxies import DOCKER, PROXIES, Front, changed, in_front
from tests.support.documents import blocks
from tests.support.interface import PETS
from tests.support.ports import free_port
from tests.support.responses import walk
from tests.support.services import Live, place, process
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

RETRIES: Final = next(
    block for block in blocks((DOCKER / "README.md").read_text(), "haproxy") if "retry-on" in block
)


def pets(live: Live) -> Counter[str]:
    """Return how many pets of each name are stored."""
    return Counter(pet["name"] for pet in walk(live.client, PETS))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_response_is_lost(client: str, fresh: Live, tmp_path: Path) -> None:
    with gateway(fresh) as broken, running(client, Front(broken.url), tmp_path / "log") as ask:
        for column in ("GET", "POST", "POST with a key"):
            method, body = column[:4].strip(), {"name": column, "categoryId": 1}
            retry = f"{uuid.uuid4()}" if "key" in column else ""
            broken.lose("closed", after=1)
            arrived, lost = ask(
                method, PETS, body if method == "POST" else None, count=2, retry=retry
            )
            assert arrived.is_success
            repeats = broken.requests.total() - 2
            assert repeats == lost.is_success
            note(client, column, "repeats" if repeats else "raises")
            if column == "POST":
                assert pets(fresh)[column] == 2 + repeats
        for name, seconds in (("lost", 0), ("aborted", 2)):
            retry = f"{uuid.uuid4()}"
            broken.lose("closed", seconds=seconds)
            pet = {"name": name, "categoryId": 1}
            ask("POST", PETS, pet, retry=retry, seconds=1)
            (again,) = ask("POST", PETS, pet, retry=retry)
            assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
        stored = pets(fresh)
        assert (stored["POST with a key"], stored["lost"], stored["aborted"]) == (1, 1, 1)


def test_a_restart_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    port = free_port()
    over = Event()
    created = {client: list[str]() for client in CLIENTS}

    def load(client: str) -> set[str]:
        """Create pets until it is over, each until it succeeds; return the errors."""
        errors = set()
        front = Front(f"http://127.0.0.1:{port}")
        with running(client, front, tmp_path / client.replace("/", "")) as ask:
            while not over.is_set():
                body, retry = {"name": f"{uuid.uuid4()}", "categoryId": 1}, f"{uuid.uuid4()}"
                while (response := ask("POST", PETS, body, retry=retry)[0]).status_code != 201:
                    errors.add(response.text)
                    sleep(0.05)
                created[client].append(f"{body['name']}")
        return errors

    def ten_more() -> None:
        """Wait until each client has created ten more pets."""
        enough = {client: len(names) + 10 for client, names in created.items()}
        until(lambda: all(len(names) >= enough[client] for client, names in created.items()))

    settings = {"listen": f"127.0.0.1:{port}", "backend": "sqlite"} | place("sqlite", tmp_path)
    with ThreadPoolExecutor(len(CLIENTS)) as pool, ExitStack() as stack:
        stack.callback(over.set)
        loads = {client: pool.submit(load, client) for client in CLIENTS}
        for signal in (SIGTERM, SIGKILL):
            with process(tmp_path, **settings) as live:
                ten_more()
                live.stop(signal)
        with process(tmp_path, **settings) as live:
            ten_more()
            over.set()
            for client, loaded in loads.items():
                found[client, "restart"] = ", ".join(sorted(loaded.result()))
            assert pets(live) == Counter(name for names in created.values() for name in names)


def test_haproxy_repeats_posts_with_a_key_and_no_others(fresh: Live, tmp_path: Path) -> None:
    haproxy = PROXIES["HAProxy"]
    haproxy = haproxy._replace(
        configuration=changed(haproxy.configuration, ("  server ", f"{RETRIES}  server "))
    )
    with (
        gateway(fresh) as broken,
        in_front(haproxy, httpx.URL(broken.url).port or 0, tmp_path) as front,
        httpx.Client(base_url=front.url, headers=fresh.client.headers, verify=front.tls) as client,
    ):

        def lose(method: str, name: str, **headers: str) -> httpx.Response:
            broken.lose("closed")
            body = {"name": name, "categoryId": 1}
            return client.request(method, PETS, json=body, headers=headers)

        for number in range(8):
            key = {"Idempotency-Key": f"{uuid.uuid4()}"}
            repeated = lose("POST", f"keyed {number}", **key)
            assert repeated.status_code == 201
            assert repeated.headers["idempotency-replayed"] == "true"
            with suppress(httpx.RemoteProtocolError):
                assert lose("POST", f"without {number}").status_code == 502
            assert lose("GET", "").status_code == 200
        assert [*pets(fresh).values()] == [1] * 16
