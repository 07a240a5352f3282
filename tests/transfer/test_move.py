"""The recipe for a move, with live clients: nothing is lost, and nothing takes effect twice."""

import http.client
import json
import logging
import os
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pytest

from tests.support.command import run_command
from tests.support.responses import walk
from tests.support.services import KEY, Live, process
from tests.support.transfer import place_settings
from tests.support.waiting import HANG_SECONDS

CLIENTS: Final = 12
REQUESTS: Final = int(os.environ.get("PETSTORE_MOVED_REQUESTS", "3000"))
"""How many acknowledged writes the clients make at least, half of them before the last move."""

Outcome = tuple[int, Any]


class Write(NamedTuple):
    """A request, which is retried with its key."""

    path: str
    key: str
    body: object


class Traffic:
    """Clients that write and retry, and one that only reads, at the service that is current.

    A write is retried with its key until it is acknowledged. One in ten is retried later, too, as
    if its response had been lost, and possibly after a move.
    """

    def __init__(self, service: Live) -> None:
        self.service = service
        self.ended = threading.Event()
        self.acknowledged: dict[str, int] = {}  # key -> id
        self.wrong: list[object] = []
        self.counts = Counter[str]()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(CLIENTS)]
        self._threads.append(threading.Thread(target=self._read))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join()

    def wait(self, writes: int) -> None:
        """Wait until so many more writes were acknowledged."""
        end = len(self.acknowledged) + writes
        while len(self.acknowledged) < end and not self.wrong:
            time.sleep(0.05)

    def _read(self) -> None:
        while not self.ended.is_set():
            status, _ = self._send("GET", "/v1/pets?limit=5")
            if status != 200:
                self.wrong.append(("a read was refused", status))
            self.counts["reads"] += 1
            time.sleep(0.005)

    def _write(self, client: int) -> None:
        chance = random.Random(client)  # noqa: S311 - it keeps nothing secret
        pets: list[int] = []
        lost: list[Write] = []
        number = 0
        while not self.ended.is_set():
            number += 1
            key = f"{client}-{number}"
            if pets and chance.random() < 0.4:
                request = Write("/v1/store/orders", key, {"petId": pets.pop()})
            else:
                pet = {"name": key, "categoryId": client, "status": "available"}
                request = Write("/v1/pets", key, pet)
            id_ = self._acknowledge(*request)
            if id_ is not None and request.path == "/v1/pets":
                pets.append(id_)
            if chance.random() < 0.1:
                lost.append(request)
            if lost and chance.random() < 0.05:
                self._retry(*lost.pop(0))
        for request in lost:
            self._retry(*request)

    def _acknowledge(self, path: str, key: str, body: object) -> int | None:
        """Send a write until it is acknowledged; return the id."""
        while True:
            status, content = self._send("POST", path, key, body)
            if status == 201:
                self.acknowledged[key] = content["id"]
                return int(content["id"])
            if status != 503:
                self.wrong.append((path, key, status, content))
                return None
            self.counts["refused while read-only"] += 1
            if self.ended.wait(0.05):
                return None

    def _retry(self, path: str, key: str, body: object) -> None:
        """Send an acknowledged write again: the response has the same id."""
        if (before := self.acknowledged.get(key)) is None:
            return
        self.counts["retries"] += 1
        if (after := self._acknowledge(path, key, body)) not in (before, None):
            self.wrong.append(("a retry took effect", path, key, before, after))

    def _send(self, method: str, path: str, key: str = "", body: object = None) -> Outcome:
        service = self.service
        connection = http.client.HTTPConnection(service.host, service.port, timeout=HANG_SECONDS)
        headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key or "none"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(
                method, path, json.dumps(body) if body is not None else None, headers
            )
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


def run(command: str, file: Path, chosen: dict[str, str]) -> str:
    """Run a command that must succeed; return its standard error."""
    done = run_command(command, str(file), **chosen)
    assert done.status == 0, done
    return done.stderr


@pytest.mark.slow
def test_a_service_moves_under_its_clients(tmp_path: Path) -> None:
    backends = ("sqlite", "postgres", "redis")
    locations = [place_settings(backend, tmp_path / backend) for backend in backends]
    locations[-1]["redis_partitions"] = "3"

    with ExitStack() as stack:

        def serve(name: str, **chosen: str) -> Live:
            directory = tmp_path / name
            directory.mkdir()
            return stack.enter_context(process(directory, workers="2", **chosen))

        old = serve("first", **locations[0])
        traffic = stack.enter_context(Traffic(old))
        for source, target in pairwise(locations):
            traffic.wait(REQUESTS // 4)
            # The recipe of docs/operating.md.
            reading = serve(f"reading-{source['backend']}", read_only="true", **source)
            traffic.service = reading
            assert old.stop() == 0
            file = tmp_path / f"{source['backend']}.ndjson"
            run("export", file, source)
            run("import", file, target)
            assert run("verify", file, target).endswith("; all are equal\n")
            old = serve(f"moved-to-{target['backend']}", **target)
            traffic.service = old
            assert reading.stop() == 0
        traffic.wait(REQUESTS // 2)
        traffic.__exit__()
        assert not traffic.wrong, traffic.wrong[:5]
        assert traffic.counts["retries"]
        pets = {pet["id"]: pet for pet in walk(old.client, "/v1/pets")}
        orders = {order["id"]: order for order in walk(old.client, "/v1/store/orders")}
        logging.getLogger(__name__).info("%d, %s", len(traffic.acknowledged), traffic.counts)
        assert len({pet["name"] for pet in pets.values()}) == len(pets), (
            "a create took effect twice"
        )
        assert len({order["petId"] for order in orders.values()}) == len(orders), "sold twice"
        assert len(pets) + len(orders) == len(traffic.acknowledged), "lost, or twice"
        for key, id_ in traffic.acknowledged.items():
            assert (id_ in pets and pets[id_]["name"] == key) or id_ in orders
