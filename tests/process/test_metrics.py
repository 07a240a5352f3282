"""Prometheus metrics: on their own address, and correct even if one of several workers dies."""

import contextlib
import hashlib
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import httpx
import pytest
from prometheus_client.mmap_dict import MmapedDict

from backends.redis.tests.servers import AOF, single
from backends.redis.tests.topologies import url_of
from petstore.config.errors import ConfigurationError
from petstore.config.keys import new_key
from petstore.config.loading import configure
from petstore.server import metrics_port
from tests.support.documents import ROOT
from tests.support.key_files import replace
from tests.support.metrics import exposition, metrics_url, scrape
from tests.support.pets import AVAILABLE_REX, REX
from tests.support.raw_http import AUTHORIZED, CHUNKED, HOST, JSON, begin_body, head
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, OTHER_KEY, Live, Start
from tests.support.waiting import HANG_SECONDS, until

OPERATING = (ROOT / "docs/operating.md").read_text()


def requests(live: Live) -> dict[tuple[str, str], float]:
    """Return the number of counted requests by operation and status."""
    name = "petstore_http_requests_total"
    return {(key[1], key[2]): value for key, value in scrape(live).items() if key[0] == name}


def send(live: Live, count: int) -> None:
    """Send requests, each over its own connection, so that all workers serve some of them."""
    for _ in range(count):
        with live.new_client() as client:
            # While no worker serves, connections may be closed, but no request is counted.
            assert until(lambda: client.get("/v1/pets")).status_code == 200


def send_together(live: Live, count: int) -> None:
    """Send requests that the service finds in one iteration of its event loop."""
    live.popen.send_signal(signal.SIGSTOP)
    with contextlib.ExitStack() as stack:
        address = live.host, live.port
        connections = [
            stack.enter_context(socket.create_connection(address, HANG_SECONDS))
            for _ in range(count)
        ]
        for connection in connections:
            connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        live.popen.send_signal(signal.SIGCONT)
        for connection in connections:
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_requests_are_counted_by_operation_and_status(start: Start) -> None:
    live = start(metrics_listen="127.0.0.1:0", log="off")
    live.client.post("/v1/pets", json=REX)
    live.client.get("/v1/pets/1")
    live.client.head("/v1/pets/1")
    live.client.get("/v1/pets/9")
    live.client.get("/v1/pets?limit=0")
    send_together(live, 5)
    live.client.get("/v1/nothing")
    live.client.options("/v1/pets")
    live.raw(b"malformed\r\n\r\n")
    live.raw(head("POST /v1/pets", HOST, AUTHORIZED, JSON, CHUNKED) + b"malformed\r\n")
    with begin_body(live, "Content-Length: 9"):
        pass
    with live.anonymous() as client:
        client.get("/v1/pets")
    until(lambda: sum(requests(live).values()) == 16)
    assert requests(live) == {
        ("createPet", "201"): 1,
        ("createPet", "400"): 1,
        ("getPet", "200"): 2,
        ("getPet", "404"): 1,
        ("listPets", "400"): 1,
        ("listPets", "401"): 1,
        ("livez", "200"): 5,
        ("unknown", "404"): 1,
        ("unknown", "204"): 1,
        ("unknown", "400"): 2,
    }
    refused = ("petstore_refused_requests_total", "", "no_key")
    stored = {refused: 1, ("petstore_connections",): 1}  # once a second
    until(lambda: stored.items() <= scrape(live).items())
    samples = scrape(live)
    assert samples["petstore_storage_duration_seconds_count", "create_pet"] == 1
    assert samples["petstore_storage_duration_seconds_count", "get_pet"] == 3
    assert 0 < samples["petstore_storage_duration_seconds_sum", "get_pet"] < 3
    assert samples["petstore_http_request_duration_seconds_count", "getPet"] == 3
    assert 0 < samples["petstore_http_request_duration_seconds_sum", "getPet"] < 3
    assert samples["petstore_http_requests_in_flight",] == 0
    assert samples["petstore_storage_failures_total",] == 0
    types = re.findall(r"^# TYPE (\S+) (\S+)$", exposition(live), re.MULTILINE)
    assert sorted(types) == sorted(
        re.findall(r"^\| `((?:petstore|process)_\S+)` \| (\w+) \|", OPERATING, re.MULTILINE)
    )


FAILING: Final = """
from petstore import cli
from petstore.http import service
from petstore.server.connection import HttpConnection
service.encode = HttpConnection.sweep = lambda *_: [].pop()
cli.main()
"""


def test_what_fails_in_the_service_itself_is_counted_nevertheless(start: Start) -> None:
    """A response that only the server can make, and connections that cannot be checked."""
    live = start(script=FAILING, metrics_listen="127.0.0.1:0")
    assert live.client.get("/v1/nothing").status_code == 500
    until(lambda: requests(live) == {("unknown", "500"): 1})
    assert live.client.get("/livez").status_code == 200
    until(lambda: scrape(live)["petstore_connections",] == 1)


def test_there_are_no_metrics_unless_they_are_configured(fresh: Live) -> None:
    assert fresh.client.get("/metrics").status_code == 404
    assert "petstore_metrics" not in os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")


def test_the_counts_of_workers_are_added_up_and_survive_them_and_leave_no_files(
    start: Start,
) -> None:
    live = start(workers="2", drain_seconds="0", metrics_listen="127.0.0.1:0")

    def files() -> set[Path]:
        """Return those open from the start: a histogram's is, once something was observed."""
        maps = [Path(f"/proc/{worker}/maps").read_text() for worker in live.workers()]
        found = re.findall(r"\S+/petstore-metrics-\S+\.db", "".join(maps))
        return {Path(path) for path in found if "/histogram_" not in path}

    def kill_all() -> None:
        before = live.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(set(live.workers()) - set(before)) == 2)
        until(lambda: len(files()) == 8)

    (directory,) = {file.parent for file in files()}
    first = set(directory.iterdir())
    name = "process_start_time_seconds"
    started = {key[1]: value for key, value in scrape(live).items() if key[0] == name}
    assert started.keys() == {"main", "worker-0", "worker-1"}
    send(live, 20)
    until(lambda: requests(live) == {("listPets", "200"): 20})
    kill_all()
    assert set(directory.iterdir()) == first
    samples = scrape(live)
    changed = [process for process in started if samples[name, process] > started[process]]
    assert changed == ["worker-0", "worker-1"]
    assert requests(live) == {("listPets", "200"): 20}
    send(live, 20)
    until(lambda: requests(live) == {("listPets", "200"): 40})
    until(lambda: scrape(live)["petstore_http_requests_in_flight",] == 0)
    assert live.stop() == 0


def test_only_failures_of_the_storage_count_and_only_those_of_writes_concern_writes(
    start: Start, tmp_path: Path
) -> None:
    """A client's own 409 counted, a read within a PATCH was a failed write, a PATCH no success."""
    with single(tmp_path, *AOF) as server:
        place = {"redis_url": url_of(server), "redis_timeout_seconds": "1"}
        live = start(backend="redis", **place, metrics_listen="127.0.0.1:0")

        def shown() -> tuple[float, float]:
            samples = scrape(live)
            return (
                samples["petstore_storage_failures_total",],
                samples["petstore_storage_writable",],
            )

        def post(path: str, **body: object) -> int:
            headers = {"Idempotency-Key": path}
            return live.client.post(f"/v1/{path}", json=body, headers=headers).status_code

        def complete() -> int:
            body = {"status": "completed"}
            return live.client.patch("/v1/store/orders/1", json=body).status_code

        assert [post("pets", **AVAILABLE_REX), post("pets", **REX)] == [201, 409]
        assert post("store/orders", petId=1) == 201
        assert shown() == (0, 1)
        server.freeze()
        assert complete() == 503
        assert shown() == (1, 1)
        server.resume()
        until(lambda: live.client.get("/v1/pets").status_code == 200)
        server.call("CONFIG", "SET", "maxmemory", 1)
        assert complete() == 503
        assert shown()[1] == 0
        assert live.client.get("/readyz").status_code == 200
        server.call("CONFIG", "SET", "maxmemory", 0)
        assert complete() == 200
        assert shown()[1] == 1


def test_requests_over_the_limits_are_counted_by_reason_and_client(start: Start) -> None:
    live = start(metrics_listen="127.0.0.1:0", rate_limit="1/h", max_in_flight="1")
    with begin_body(live, "Content-Length: 9", key=OTHER_KEY):  # holds the only slot
        until(lambda: scrape(live)["petstore_http_requests_in_flight",] == 1)
        assert [live.client.get("/v1/pets").status_code for _ in range(3)] == [503, 429, 429]
    with live.new_client("wrong") as client:
        assert client.get("/v1/pets").status_code == 401
    name = "petstore_refused_requests_total"
    name_of_key = f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()[:12]}"
    expected = {("", "invalid_key"): 1, (name_of_key, "overloaded"): 1}
    expected[name_of_key, "rate_limited"] = 2
    until(lambda: {key[1:]: n for key, n in scrape(live).items() if key[0] == name} == expected)


def test_a_key_file_that_became_unusable_is_shown_until_it_is_mended(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    line = new_key("shop")[1]
    file.write_text(line)
    live = start(metrics_listen="127.0.0.1:0", api_keys_file=str(file))

    def reloads() -> tuple[float, float]:
        samples = scrape(live)
        return samples["petstore_keys_stale",], samples["petstore_key_reload_failures_total",]

    assert reloads() == (0, 0)
    replace(file, b"nonsense")
    live.popen.send_signal(signal.SIGHUP)
    until(lambda: reloads()[0] == 1)
    assert reloads()[1] >= 1
    replace(file, line.encode())
    live.popen.send_signal(signal.SIGHUP)
    until(lambda: reloads()[0] == 0)


@pytest.mark.slow
def test_writable_is_what_the_last_write_of_any_worker_has_shown_and_survives_workers(
    start: Start, tmp_path: Path
) -> None:
    with single(tmp_path, *AOF) as server, contextlib.ExitStack() as stack:
        settings = {"backend": "redis", "redis_url": url_of(server), "workers": "2"}
        live = start(metrics_listen="127.0.0.1:0", **settings)
        clients: dict[str, httpx.Client] = {}  # by their workers

        def both_have_one() -> bool:
            client = stack.enter_context(live.new_client())
            id_ = client.get("/v1/pets").headers["x-request-id"]
            clients[id_.partition("-")[0]] = client
            return len(clients) == 2

        until(both_have_one)
        one, other = clients.values()
        assert one.post("/v1/pets", json=REX).status_code == 201
        server.call("CONFIG", "SET", "maxmemory", 1)
        assert other.post("/v1/pets", json=REX).status_code == 503
        assert scrape(live)["petstore_storage_writable",] == 0
        server.call("CONFIG", "SET", "maxmemory", 0)
        assert one.post("/v1/pets", json=REX).status_code == 201
        assert scrape(live)["petstore_storage_writable",] == 1
        server.call("CONFIG", "SET", "maxmemory", 1)
        assert one.post("/v1/pets", json=REX).status_code == 503
        before = live.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        until(lambda: len(set(live.workers()) - set(before)) == 2)
        until(lambda: httpx.get(f"{live.url}/readyz").status_code == 200)
        assert scrape(live)["petstore_storage_writable",] == 0


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_idle_connections_to_the_metrics_take_neither_descriptors_nor_threads(
    start: Start, workers: str
) -> None:
    live = start(metrics_listen="127.0.0.1:0", workers=workers)
    resource.prlimit(live.popen.pid, resource.RLIMIT_NOFILE, (300, 300))
    process = Path(f"/proc/{live.popen.pid}")
    url = httpx.URL(metrics_url(live))
    before = [len(list((process / kind).iterdir())) for kind in ("fd", "task")]
    with contextlib.ExitStack() as stack:
        for number in range(400):
            connection = socket.create_connection((url.host, url.port or 0))
            stack.enter_context(connection)
            if number % 2:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        until(lambda: ("petstore_http_requests_in_flight",) in scrape(live))
        send(live, 10)
        descriptors, threads = (len(list((process / kind).iterdir())) for kind in ("fd", "task"))
        assert descriptors < before[0] + 60
        assert threads <= before[1] + 2


def test_the_metrics_are_at_one_path_whatever_scrapers_send(start: Start) -> None:
    live = start(metrics_listen="127.0.0.1:0")
    url = httpx.URL(metrics_url(live))
    with httpx.Client(timeout=HANG_SECONDS) as client:
        assert client.get(url.copy_with(path="/other")).status_code == 404
        types = [client.get(url).headers["content-type"] for _ in range(2)]
        assert types == ["text/plain; version=0.0.4; charset=utf-8"] * 2
        head = client.head(url)
        assert (head.status_code, head.headers.keys()) == (200, client.get(url).headers.keys())
        for method in ("DELETE", "OPTIONS", "POST"):
            other = client.request(method, url)
            assert (other.status_code, other.headers["allow"]) == (405, "GET, HEAD")
    with socket.create_connection((url.host, url.port or 0)) as connection:
        connection.sendall(b"malformed\r\n\r\n")
        assert b"\r\ncontent-type: text/plain; charset=utf-8\r\n" in connection.recv(65536)
    for _ in range(3):
        with socket.create_connection((url.host, url.port or 0)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert scrape(live)
    assert "Traceback" not in live.log.read_text()


def test_only_the_directory_of_a_killed_service_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_port, "_IN_MEMORY", str(tmp_path))
    for name in ("petstore-metrics-old", "petstore-metrics-new", "other"):
        (tmp_path / name).mkdir()
    for name in ("petstore-metrics-old", "other"):
        os.utime(tmp_path / name, (0, 0))
    with metrics_port._directory() as first:  # noqa: SLF001 - with a whole service this would take a minute
        os.utime(first, (0, 0))
        with metrics_port._directory() as second:  # noqa: SLF001 - as above
            names = {entry.name for entry in tmp_path.iterdir()}
            in_use = {Path(first).name, Path(second).name}
            assert names == {"petstore-metrics-new", "other"} | in_use
    assert {entry.name for entry in tmp_path.iterdir()} == {"petstore-metrics-new", "other"}


def test_the_space_of_all_files_is_allocated_at_the_start(start: Start) -> None:
    live = start(metrics_listen="127.0.0.1:0", read_only="true")
    live.client.get("/v1/pets/1")  # its counts are stored after its response
    assert scrape(live)["petstore_read_only",] == 1
    looked = scrape(live)["petstore_storage_check_timestamp_seconds",]
    until(lambda: scrape(live)["petstore_storage_check_timestamp_seconds",] > looked)
    maps = Path(f"/proc/{live.popen.pid}/maps").read_text()
    files = {Path(name) for name in re.findall(r"\S+/petstore-metrics-\S+\.db", maps)}
    assert {file.name.rpartition("_")[0] for file in files} == {
        "counter",
        "gauge_mostrecent",
        "gauge_livesum",
        "gauge_livemin",
        "histogram",
    }
    for file in files:
        kind = file.name.rpartition("_")[0]
        size = {"counter": 196608, "histogram": 131072}.get(kind, 65536)
        assert (file.stat().st_size, file.stat().st_blocks * 512) == (size, size)


REFUSE: Final = """
import sys
from petstore.observability.metrics import Metrics
metrics = Metrics(read_only=False)
for number in range(500):
    client = f"{sys.argv[1]}-{number:062}"
    metrics.refuse("rate_limited", client)
    metrics.tick(0)
    metrics.refuse("rate_limited", client)
metrics.refuse("overloaded", client)
metrics.tick(0)
"""


def test_the_clients_that_are_counted_apart_are_limited(tmp_path: Path) -> None:
    """By a worker, and by those that replace it: the size of its file is fixed."""
    sums = []
    for worker in "aba":
        command = (sys.executable, "-c", REFUSE, worker)
        environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        subprocess.run(command, env=environment, check=True, timeout=HANG_SECONDS)
        (file,) = tmp_path.glob("counter_*.db")
        sums.append(Counter[str]())
        for key, value, *_ in MmapedDict.read_all_values_from_file(file):  # type: ignore[no-untyped-call] # it has no types
            sums[-1][json.loads(key)[2].get("client", "")[:2]] += value
    assert sums == [
        {"a-": 1000, "(o": 1, "": 0},
        {"a-": 1000, "(o": 1002, "": 0},
        {"a-": 2000, "(o": 1003, "": 0},
    ]
    assert file.stat().st_size == 196608
    (file,) = tmp_path.glob("gauge_livemin_*.db")
    assert [*MmapedDict.read_all_values_from_file(file)] == []  # type: ignore[no-untyped-call] # as above


def test_too_little_space_for_the_files_is_reported(tmp_path: Path) -> None:
    code = "from petstore.observability import metrics; from pathlib import Path;"
    code += " metrics.reserve('here', Path('file').open('wb'), 2**60)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert "ConfigurationError: no space for metrics in here: " in done.stderr


def test_a_directory_that_cannot_be_created_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "_IN_MEMORY", "/nowhere")
    monkeypatch.setattr(metrics_port, "gettempdir", lambda: "/nowhere")
    with pytest.raises(
        ConfigurationError, match=r"^cannot create the files of PETSTORE_METRICS_LISTEN"
    ):
        metrics_port._directory().__enter__()  # noqa: SLF001 - as above


def test_dev_serves_metrics_only_on_loopback_addresses() -> None:
    with pytest.raises(ConfigurationError, match="listens only on loopback addresses, not on 0"):
        configure({"PETSTORE_METRICS_LISTEN": "0.0.0.0:9100"}, {}, dev=True)
