"""The alert rules and the dashboard: whether they fit the metrics of a real service.

A fault is shown to a real service. What it exposes before and after becomes the input of promtool:
an hour like before, then half an hour in which each minute brings the same change again.
"""

import json
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.redis.tests.servers import AOF, single
from backends.redis.tests.topologies import url_of
from petstore.config.keys import new_key
from tests.support.documents import ROOT
from tests.support.metrics import metrics_url
from tests.support.pets import REX
from tests.support.promtool import FIRING, RULES, passes
from tests.support.raw_http import begin_body
from tests.support.services import KEY, OTHER_KEY, Live, Start
from tests.support.waiting import HANG_SECONDS, until

pytestmark = pytest.mark.slow

DOCKER: Final = ROOT / "docker"
OPERATING: Final = (ROOT / "docs/operating.md").read_text()
QUERIES: Final = [
    target["expr"].replace("$instance", ".+").replace("$__rate_interval", "5m")
    for panel in json.loads((DOCKER / "dashboard.json").read_text())["panels"]
    for target in panel["targets"]
]
CHECKED: Final = "petstore_storage_check_timestamp_seconds"

LOST_SECONDS: Final = 5
"""After so many seconds without a check, the store counts as lost."""

Samples = dict[str, tuple[float, bool]]
"""Values by series; whether the series only grows."""


def scrape(live: Live) -> Samples:
    """Return all samples of a service, as Prometheus would store them."""
    text = httpx.get(metrics_url(live.log.read_text()), timeout=HANG_SECONDS).text
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {"job": "petstore", "instance": "shop:9100", **sample.labels}
            listed = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            grows = family.type in ("counter", "histogram")
            # The service's time is not promtool's, so what counts is how long ago it was.
            value = sample.value - time.time() if sample.name == CHECKED else sample.value
            samples[f"{sample.name}{{{listed}}}"] = (value, grows)
    return samples


def series(before: Samples, after: Samples) -> Iterator[dict[str, str]]:
    """Return promtool's input: sixty minutes like before, then thirty with the fault."""
    up = 'up{job="petstore",instance="shop:9100"}'
    for name in {**before, **after}:
        first = f"{before[name][0]:f}x59" if name in before else "_x60"
        if name.startswith(CHECKED):  # as long ago as before in each minute, or as after at first
            first = f"{before[name][0]:f}+60x59"
            lost = after and after[name][0] < -LOST_SECONDS
            then = "stale _x28" if not after else f"3600{'' if lost else '+60'}x29"
        elif name not in after:
            then = "stale _x28"
        else:
            value, grows = after[name]
            change = max(0, value - before.get(name, (0,))[0]) if grows else 0  # 0: a new process
            then = f"{value:f}+{change:f}x29"
        yield {"series": name, "values": f"{first} {then}"}
    yield {"series": up, "values": f"1x59 {int(bool(after))}x29"}


def check(folder: Path, inputs: list[dict[str, str]], expected: Sequence[object]) -> None:
    """Let promtool compare the values of expressions with those that are expected."""
    (folder / "alerts.yaml").write_text(RULES)
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": expected}
    (folder / "test.yaml").write_text(json.dumps({"rule_files": ["alerts.yaml"], "tests": [test]}))
    passes(folder, "test rules", "test.yaml")


def get(live: Live, count: int, key: str = KEY) -> None:
    with live.new_client(key) as client:
        for _ in range(count):
            client.get("/v1/pets/1")


@contextmanager
def slot_held(live: Live) -> Iterator[None]:
    """Hold the only slot with a request that does not end."""
    framing = "Content-Length: 9\r\nExpect: 100-continue"
    with begin_body(live, framing, key=OTHER_KEY) as connection:
        connection.recv(1)  # its body is wanted, so it has the slot
        yield


def overload(live: Live, _: Path) -> None:
    with slot_held(live):
        get(live, 5)


def limit_descriptors(live: Live, _: Path) -> None:
    used = len(list(Path(f"/proc/{live.popen.pid}/fd").iterdir()))
    resource.prlimit(live.popen.pid, resource.RLIMIT_NOFILE, (used + 4, used + 4))


def kill_worker(live: Live, _: Path) -> None:
    def started() -> set[tuple[str, float]]:
        samples = scrape(live).items()
        return {(name, value) for name, (value, _) in samples if "start_time" in name}

    before = started()
    os.kill(live.workers()[0], signal.SIGKILL)
    until(lambda: len(started()) == 3 and started() != before)


def spoil_keys(live: Live, folder: Path) -> None:
    (folder / "keys").write_text("nonsense")
    live.popen.send_signal(signal.SIGHUP)
    until(lambda: "the keys stay unchanged" in live.log.read_text())


RAISE: Final = "raise RuntimeError"
FAIL: Final = "from petstore.contract import UnavailableError; raise UnavailableError('no')"
WAIT: Final = "import asyncio; await asyncio.sleep(1)"
BROKEN: Final = """
from petstore import cli
from petstore_memory import MemoryRepository
async def get_pet(*_):
    {}
MemoryRepository.get_pet = get_pet
cli.main()
"""

FAULTS: Final[dict[str, tuple[dict[str, str], Callable[[Live, Path], object]]]] = {
    "": ({}, lambda live, _: get(live, 20)),
    "PetstoreDown": ({}, lambda live, _: live.stop()),
    "PetstoreStorageSlow": ({"script": BROKEN.format(WAIT)}, lambda live, _: get(live, 1)),
    "PetstoreStorageFailing": ({"script": BROKEN.format(FAIL)}, lambda live, _: get(live, 1)),
    "PetstoreInternalErrors": ({"script": BROKEN.format(RAISE)}, lambda live, _: get(live, 1)),
    "PetstoreOverloaded": ({"max_in_flight": "1"}, overload),
    "PetstoreFileDescriptors": ({}, limit_descriptors),
    "PetstoreWorkerDied": ({"workers": "2", "backend": "sqlite"}, kill_worker),
    "PetstoreKeysStale": ({}, spoil_keys),
    "PetstoreInvalidKeys": ({}, lambda live, _: get(live, 100, "wrong")),
    "PetstoreRateLimited": ({"rate_limit": "1/h"}, lambda live, _: get(live, 20)),
}
REDIS_FAULTS: Final = ("PetstoreStorageUnavailable", "PetstoreStorageUnwritable")


@pytest.mark.parametrize("alert", [*FAULTS, *REDIS_FAULTS])
def test_an_alert_fires_on_its_fault_and_no_other_does(
    start: Start, tmp_path: Path, alert: str
) -> None:
    (tmp_path / "keys").write_text(new_key("shop")[1])
    settings = {"metrics_listen": "127.0.0.1:0", "api_keys_file": str(tmp_path / "keys")}
    with ExitStack() as stack:
        if alert in REDIS_FAULTS:
            server = stack.enter_context(single(tmp_path, *AOF))
            live = start(backend="redis", redis_url=url_of(server), **settings)
        else:
            path = str(tmp_path / "pets.sqlite")
            more, fault = FAULTS[alert]
            more = {"sqlite_path": path, **more} if "backend" in more else more
            live = start(**settings, **more)
        ready = httpx.get(f"{live.url}/readyz", timeout=HANG_SECONDS)
        assert ready.status_code == 200
        before = settled(live)
        if alert in REDIS_FAULTS:
            if alert == "PetstoreStorageUnavailable":
                server.kill()
                until(lambda: total(scrape(live), CHECKED) < -LOST_SECONDS)
            else:
                server.call("CONFIG", "SET", "maxmemory", "1")
            with live.new_client() as client:
                assert client.post("/v1/pets", json=REX).status_code == 503
        else:
            fault(live, tmp_path)
        after = {} if alert == "PetstoreDown" else settled(live)
    if alert != "PetstoreStorageSlow":  # the machine of the tests may be slow
        slow = "petstore_storage_duration_seconds"
        before, after = ({n: v for n, v in s.items() if slow not in n} for s in (before, after))
    fired = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    expected = [
        {"expr": FIRING, "eval_time": "59m"},
        {"expr": FIRING, "eval_time": "73m", "exp_samples": fired},
    ]
    check(tmp_path, list(series(before, after)), expected)


def settled(live: Live) -> Samples:
    """Return the samples once those that are stored once a second have been stored."""
    count = "petstore_connections"
    with socket.create_connection((live.host, live.port)):
        until(lambda: total(scrape(live), count) > 0)
    until(lambda: total(scrape(live), count) == 0)
    return scrape(live)


def total(samples: Samples, name: str) -> float:
    return sum(value for key, (value, _) in samples.items() if key.startswith(f"{name}{{"))


def test_each_query_finds_something_in_the_metrics_of_a_service_and_each_metric_is_used(
    start: Start, tmp_path: Path
) -> None:
    settings = {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets.sqlite", "workers": "2"}
    live = start(metrics_listen="127.0.0.1:0", rate_limit="1/h", **settings)
    before = scrape(live)
    live.client.post("/v1/pets", json=REX)
    get(live, 5)
    names = set(re.findall(r"\b(?:petstore|process)_\w+", " ".join(QUERIES) + RULES))
    until(lambda: names <= {name.partition("{")[0] for name in scrape(live)})
    after = scrape(live)
    shown = " ".join(QUERIES) + RULES + re.sub(r"(?m)^\|.*", "", OPERATING)
    families = {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) for name in after}
    unused = {name for name in families if name not in shown and not name.endswith("_created")}
    assert not unused, (
        "a rule, a panel or a sentence of docs/operating.md should say what it is for"
    )
    expected = [
        {"expr": f"clamp_max(count({query}), 1)", "eval_time": "65m"}
        | {"exp_samples": [{"labels": "{}", "value": 1}]}
        for query in QUERIES
    ]
    check(tmp_path, list(series(before, after)), expected)
