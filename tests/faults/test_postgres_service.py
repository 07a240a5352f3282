"""The service while its PostgreSQL cannot be used: 503, never 500, and recovery."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from signal import SIGKILL
from time import monotonic, sleep

import httpx
import pytest

from backends.postgres.tests.disks import small_disk_of_the_log, small_disk_of_the_tables
from backends.postgres.tests.servers import Server, single
from tests.support.metrics import metrics_url, scrape
from tests.support.orders import place_order
from tests.support.pets import AVAILABLE_REX, add_pet
from tests.support.responses import check_error, walk
from tests.support.services import Live, Start
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[Server]:
    with single() as running:
        yield running


@pytest.fixture
def live(server: Server, start: Start) -> Live:
    settings = {"postgres_url": server.url(), "postgres_timeout_seconds": "1"}
    return start(backend="postgres", workers="2", log="text", **settings)


def check_unavailable(live: Live) -> None:
    """Check that all requests that need the storage get 503."""
    for _ in range(4):  # both workers
        for response in (
            live.client.get("/v1/pets"),
            live.client.post("/v1/pets", json=AVAILABLE_REX),
            live.client.get("/v1/store/orders/1"),
            live.client.get("/readyz"),
        ):
            check_error(response, 503, "unavailable")
            assert int(response.headers["retry-after"]) >= 1
    assert live.client.get("/livez").status_code == 200


def test_a_schema_that_was_away_is_served_by_all_workers_or_by_none(
    server: Server, live: Live
) -> None:
    """The worker that looked at that moment refused everything, and the other served, for good."""
    add_pet(live)
    for seconds, possible in (0.4, [{201}, {503}]), (2.5, [{503}]):
        server.fetch("ALTER SCHEMA petstore RENAME TO away")
        sleep(seconds)
        server.fetch("ALTER SCHEMA away RENAME TO petstore")
        sleep(2.5)  # for a check
        assert {create(live) for _ in range(20)} in possible


def test_a_worker_that_replaces_another_does_not_serve_an_older_copy(
    server: Server, live: Live
) -> None:
    """It served a base backup that was restored under the service: 16 ids again."""
    add_pet(live)
    server.stop()
    shutil.copytree(server.data, server.directory / "older", copy_function=shutil.copy)
    server.start()
    until(lambda: all(create(live) == 201 for _ in range(20)))
    sleep(2.5)  # for a check
    server.stop()
    shutil.rmtree(server.data)
    (server.directory / "older").rename(server.data)
    for worker in live.workers():
        os.kill(worker, SIGKILL)
    server.configure()
    server.start()
    until(lambda: "has an older copy of the store" in live.log.read_text())
    until(lambda: len(live.workers()) == 2)
    assert until(lambda: {create(live) for _ in range(20)}) == {503}


def create(live: Live) -> int:
    """Add a pet over a connection of its own, which any worker may take; return the status."""
    with live.new_client() as client:
        return client.post("/v1/pets", json=AVAILABLE_REX).status_code


class Filling:
    """Clients that create large pets without a status until the disk is full.

    names -- by the id of each pet that was acknowledged
    pending -- the names of those that were not; a name is also the key of its request
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.names: dict[int, str] = {}
        self.pending = set[str]()

    def create(self, client: httpx.Client, name: str) -> bool:
        """Create a pet; return whether it was acknowledged. If not, the status is 503."""
        body = {"name": name, "categoryId": 7}
        response = client.post("/v1/pets", json=body, headers={"Idempotency-Key": name[:32]})
        if response.status_code == 201:
            assert self.names.setdefault(response.json()["id"], name) == name
            self.pending.discard(name)
            return True
        check_error(response, 503, "unavailable")
        assert int(response.headers["retry-after"]) >= 1
        self.pending.add(name)
        return False

    def fill(self, _: int) -> None:
        """Create pets until one is not acknowledged."""
        end = monotonic() + 60
        with self.live.new_client() as client:
            while self.create(client, os.urandom(25_000).hex()):
                assert monotonic() < end

    def finish(self) -> None:
        """Check that the writes work again, and that each has had its effect once."""
        for name in list(self.pending):
            until(partial(self.create, self.live.client, name))
        pets = walk(self.live.client, "/v1/pets")
        found = {pet["id"]: pet["name"] for pet in pets if "status" not in pet}
        assert found == self.names
        assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("ends", [False, True], ids=["tables", "log"])
def test_a_full_disk_is_503_until_there_is_room(
    server: Server, start: Start, *, ends: bool
) -> None:
    """Full tables cost writes only; of a full write-ahead log the server ends."""
    small_disk = small_disk_of_the_log if ends else small_disk_of_the_tables
    with small_disk(server) as ballast:
        settings = {"postgres_url": server.url(), "workers": "2"}
        live = start(backend="postgres", metrics_listen="127.0.0.1:0", **settings)
        metrics = metrics_url(live.log.read_text())
        before = live.workers()
        pet_id = add_pet(live)
        filling = Filling(live)
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(filling.fill, range(4)))
        assert len(filling.names) > 100
        if ends:
            server.until_ended()
            check_unavailable(live)
        else:
            for _ in range(4):  # both workers
                assert live.client.get("/readyz").status_code == 200
                id_, name = next(iter(filling.names.items()))
                assert live.client.get(f"/v1/pets/{id_}").json()["name"] == name
                assert live.client.get("/v1/pets?limit=1").json()[0]["id"] == pet_id
            order = place_order(live, pet_id)  # one page may still fit
            assert order.status_code in {201, 503}
            found = live.client.get(f"/v1/pets/{pet_id}").json()
            assert (found["status"] == "pending") is (order.status_code == 201)
        assert not filling.create(live.client, next(iter(filling.pending)))
        assert scrape(metrics)["petstore_storage_writable",] == 0
        ballast.unlink()
        if ends:
            server.start()
        filling.finish()
        assert scrape(metrics)["petstore_storage_writable",] == 1
        until(lambda: all(live.client.get("/readyz").status_code == 200 for _ in range(4)))
        assert live.workers() == before
        assert live.stop() == 0  # if it were killed, its metrics would stay in /dev/shm
