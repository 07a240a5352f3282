"""Prometheus metrics: on their own address, right with several workers, and with one that died."""

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.redis.tests.conftest import AOF, url_of
from backends.redis.tests.servers import single
from petstore.settings import ConfigurationError, Settings
from tests.conftest import Start
from tests.live import Live

README = (Path(__file__).parent.parent / "README.md").read_text()
ANIMAL = {"name": "Rex", "categoryId": 7}


def where(log: Path) -> str:
    """Return the URL that the start line tells."""
    match = re.search(r"metrics on (http://\S+/metrics)\"?", log.read_text())
    assert match
    return match[1].rstrip('"}')


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values; of the histogram its counts and sums."""
    found = {}
    for family in text_string_to_metric_families(httpx.get(url).text):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                labels = sample.labels
                found[(sample.name, *(labels[name] for name in sorted(labels)))] = sample.value
    return found


def requests(url: str) -> dict[tuple[str, str], float]:
    """Return how many requests were counted by operation and status."""
    name = "petstore_http_requests_total"
    return {(key[1], key[2]): value for key, value in scrape(url).items() if key[0] == name}


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def ask(live: Live, count: int) -> None:
    """Send so many requests, each over a connection of its own, so that all workers answer."""
    for _ in range(count):
        assert httpx.get(f"{live.url}/v1/pets", headers=live.client.headers).status_code == 200


def test_requests_are_counted_by_operation_and_status(start: Start, tmp_path: Path) -> None:
    live = start(metrics_listen="127.0.0.1:0", log="off")
    live.client.post("/v1/pets", json=ANIMAL)
    live.client.get("/v1/pets/1")
    live.client.head("/v1/pets/1")
    live.client.get("/v1/pets/9")
    live.client.get("/v1/pets?limit=0")
    live.client.get("/livez")
    live.client.get("/v1/nothing")
    live.client.options("/v1/pets")
    with live.anonymous() as client:
        client.get("/v1/pets")
    url = where(tmp_path / "service-1" / "serve.log")
    until(lambda: sum(requests(url).values()) == 9)
    assert requests(url) == {
        ("createPet", "201"): 1,
        ("getPet", "200"): 2,
        ("getPet", "404"): 1,
        ("listPets", "400"): 1,
        ("listPets", "401"): 1,
        ("livez", "200"): 1,
        ("unknown", "404"): 1,
        ("unknown", "204"): 1,
    }
    samples = scrape(url)
    assert samples["petstore_http_request_duration_seconds_count", "getPet"] == 3
    assert 0 < samples["petstore_http_request_duration_seconds_sum", "getPet"] < 3
    assert samples["petstore_http_requests_in_flight",] == 0
    assert samples["petstore_storage_failures_total",] == 0
    told = re.findall(r"^# TYPE (\S+) (\S+)$", httpx.get(url).text, re.MULTILINE)
    assert sorted(told) == sorted(
        re.findall(r"^\| `(petstore_\S+)` \| (\w+) \|", README, re.MULTILINE)
    )


def test_metrics_are_nowhere_unless_they_are_asked_for(fresh: Live) -> None:
    assert fresh.client.get("/metrics").status_code == 404
    assert "petstore_metrics" not in os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")


def test_the_counts_of_all_workers_are_added_up_and_outlive_them(
    start: Start, tmp_path: Path
) -> None:
    live = start(
        backend="sqlite",
        sqlite_path=f"{tmp_path}/pets.sqlite",
        workers="2",
        drain_seconds="0",
        metrics_listen="127.0.0.1:0",
    )
    url = where(tmp_path / "service-1" / "serve.log")
    ask(live, 40)
    until(lambda: requests(url) == {("listPets", "200"): 40})
    before = live.workers()
    os.kill(before[0], signal.SIGKILL)
    until(lambda: len(set(live.workers()) | set(before)) == 3)
    ask(live, 20)
    until(lambda: requests(url) == {("listPets", "200"): 60})
    assert scrape(url)["petstore_http_requests_in_flight",] == 0
    assert live.stop() == 0


def test_requests_under_way_and_failures_of_the_storage_are_told(
    start: Start, tmp_path: Path
) -> None:
    with single(tmp_path, *AOF) as server, ThreadPoolExecutor(1) as pool:
        live = start(backend="redis", redis_url=url_of(server), metrics_listen="127.0.0.1:0")
        url = where(tmp_path / "service-1" / "serve.log")
        server.freeze()
        waiting = pool.submit(live.client.get, "/v1/pets")
        until(lambda: scrape(url)["petstore_http_requests_in_flight",] == 1)
        assert waiting.result().status_code == 503
        server.resume()
    samples = scrape(url)
    assert samples["petstore_storage_failures_total",] == 1
    assert samples["petstore_http_requests_in_flight",] == 0


def test_an_address_that_is_taken_is_told(start: Start) -> None:
    live = start()
    message = rf"cannot listen on {live.host}:{live.port}: the port is taken.*METRICS_LISTEN"
    with pytest.raises(AssertionError, match=message):
        start(metrics_listen=f"{live.host}:{live.port}")


def test_a_wrong_address_of_metrics_is_told() -> None:
    with pytest.raises(ConfigurationError, match=r"^PETSTORE_METRICS_LISTEN must be HOST:PORT"):
        Settings.read({"PETSTORE_METRICS_LISTEN": "9100"})
