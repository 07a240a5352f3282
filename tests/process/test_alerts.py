"""The alert rules on generated timelines: no outage without an alert, no alert without an outage.

Each alert has a fault, which arrives, stays, ends and flaps, with and without traffic, at a start
and at an upgrade. Each minute promtool compares the alerts that fire with those that should.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.key_files import key_line
from tests.support.metrics import exposition
from tests.support.pets import REX
from tests.support.promtool import ALERTS, FIRING, RULES, labelled, passes, promtool
from tests.support.raw_http import begin_body
from tests.support.services import KEY, OTHER_KEY, Start
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class State:
    """A service for some minutes; what is counted is given by the minute."""

    up: bool | None = True  # None: it is no target
    others: bool = True  # whether there are other targets
    workers: bool = True
    restart: str = ""  # the process that is replaced, at first
    every: float = 0  # and then after so many minutes, again and again
    probes: float = 60
    requests: float = 600
    failures: float = 0
    internal_errors: float = 0
    slow: float = 0
    overloaded: float = 0
    invalid: float = 0
    limited: float = 0
    dropped: float = 0
    checked: bool = True
    writable: bool = True
    cpu: float = 0.5
    descriptors: float = 50
    stale: float = 0
    read_only: float = 0

    def with_traffic(self, requests: float) -> "State":
        """Return the same with so many requests, and with no more of what happens to them."""
        names = ("failures", "internal_errors", "slow", "overloaded", "invalid", "limited")
        fewer = {name: min(getattr(self, name), requests) for name in names}
        return replace(self, requests=requests, probes=600, **fewer)

    def partly(self, share: float) -> "State":
        """Return a healthy service but for a share of what is wrong, where that is a number."""
        fields = {
            name: value + (getattr(self, name) - value) * share
            for name, value in asdict(HEALTHY).items()
            if name != "every" and type(value) in (int, float)
        }
        return replace(HEALTHY, **fields)


HEALTHY: Final = State()
QUIET: Final = HEALTHY.with_traffic(0)
LITTLE: Final = HEALTHY.with_traffic(1)
ABSENT: Final = State(up=None)
DOWN: Final = State(up=False)


class Fault(NamedTuple):
    """What an alert is for.

    state -- the service meanwhile
    within, after -- in how many minutes the alert fires, and for how long after the end it may
    blip, flapping -- whether it fires for half a minute of it, and if it comes and goes
    little -- whether one request a minute is enough
    """

    state: State
    within: int
    after: int
    blip: bool = False
    flapping: bool = True
    little: bool = True


FAULTS: Final = {
    "PetstoreDown": Fault(DOWN, 2, 0),
    "PetstoreStorageUnavailable": Fault(State(checked=False, writable=False, failures=600), 2, 0),
    "PetstoreStorageUnwritable": Fault(State(writable=False, failures=30), 2, 0),
    "PetstoreStorageFailing": Fault(State(failures=30), 3, 1),
    "PetstoreStorageSlow": Fault(State(slow=100), 7, 5),
    "PetstoreInternalErrors": Fault(State(internal_errors=2), 1, 6, blip=True),
    "PetstoreOverloaded": Fault(State(overloaded=60), 3, 1),
    "PetstoreWorkerBusy": Fault(State(cpu=0.99), 16, 1, flapping=False),
    "PetstoreFileDescriptors": Fault(State(descriptors=900), 1, 5, blip=True),
    "PetstoreWorkerDied": Fault(State(restart="worker-0", every=5), 6, 15, blip=True),
    "PetstoreRestarting": Fault(State(restart="main", every=3), 10, 15),
    "PetstoreKeysStale": Fault(State(stale=2), 2, 0),
    "PetstoreReadOnly": Fault(State(read_only=2), 16, 0, flapping=False),
    "PetstoreInvalidKeys": Fault(State(invalid=116), 8, 5, little=False),
    "PetstoreRateLimited": Fault(State(limited=60), 13, 5, little=False),
    "PetstoreLogLinesDropped": Fault(State(dropped=20), 1, 5, blip=True),
}

FAILING: Final = FAULTS["PetstoreStorageFailing"].state
UNWRITABLE: Final = FAULTS["PetstoreStorageUnwritable"].state
UNAVAILABLE: Final = FAULTS["PetstoreStorageUnavailable"].state

Segments = Sequence[tuple[float, State]]
"""A timeline: minutes, and the state of the service."""


class Timeline(NamedTuple):
    """What is expected of an alert: between which minutes it may fire, and between which it must.

    once -- whether it must fire at some time
    """

    segments: Segments
    may: tuple[int, int] = (0, 0)
    must: tuple[int, int] = (0, 0)
    once: bool = False


def timelines(fault: Fault, step: int) -> Iterator[Timeline]:
    """Return all timelines of a fault, for a scrape every so many seconds."""
    state, within, after = fault.state, fault.within + step // 30, fault.after + step // 30
    healthy, short = (20, HEALTHY), max(step / 60, 0.5)
    may, must = (20, 50 + after), (20 + within, 50)
    yield Timeline([healthy, (30, state), (25, HEALTHY)], may, must)
    yield Timeline([(20, ABSENT), (30, state)], may, must)  # from its start
    upgraded = replace(state, restart=state.restart or "main")
    yield Timeline([healthy, (short, DOWN), (30, upgraded)], may=(20, 51), must=(21 + within, 50))
    quiet, little = state.with_traffic(0), state.with_traffic(1)
    if quiet == QUIET:
        yield Timeline([(20, QUIET), (30, quiet)])
    else:
        yield Timeline([(20, QUIET), (30, quiet), (25, QUIET)], may, must)
    if fault.little:
        yield Timeline([(20, LITTLE), (30, little), (25, LITTLE)], may, must)
    if state.partly(1) == state:
        rises = [(10, state.partly(0.05)), (10, state.partly(0.5)), (30, state)]
        yield Timeline([healthy, *rises], may=(20, 70), must=(40 + within, 70))
    if short < 1:
        may = (20, 21 + after) if fault.blip else (0, 0)
        yield Timeline([healthy, (short, state), healthy], may, once=fault.blip)
    flaps = [(2, state), (1, HEALTHY)] * 10
    may = (20, 50 + after) if fault.flapping else (0, 0)
    yield Timeline([healthy, *flaps, (25, HEALTHY)], may, once=fault.flapping)


def series(segments: Segments, step: int) -> list[dict[str, str]]:
    """Return promtool's input for a timeline that is scraped every so many seconds."""
    scrapes: list[dict[str, float]] = []
    others: list[dict[str, float]] = []
    counts = dict[str, float]()
    started = {"main": 0.0, "worker-0": 0.0}
    checked = begin = 0.0
    for minutes, state in segments:
        end = begin + minutes * 60
        for now in range(int(begin) + step, int(end) + step, step):
            restarts = (now - step - begin) % (state.every * 60 or end) < step
            if state.restart == "main" and restarts:
                counts.clear()
                started = dict.fromkeys(started, now)
            elif restarts and state.restart:
                started[state.restart] = now
            checked = now if state.checked else checked
            for name, number in counters(state).items():
                counts[name] = counts.get(name, 0) + number * step / 60
            scrape = {} if state.up is None else {"up": float(state.up)}
            if state.up:
                shown = {name: int(count) for name, count in counts.items()}
                scrape |= {n: count for n, count in shown.items() if count or n in FROM_THE_START}
                scrape |= gauges(state, checked)
                for process, time in started.items():
                    scrape[f'process_start_time_seconds{{process="{process}"}}'] = time
            scrapes.append(scrape)
            others.append({"up": 1.0} if state.others else {})
        begin = end
    names = sorted({name for scrape in scrapes for name in scrape})
    inputs = [(labelled(name, "shop:9100"), values(name, scrapes)) for name in names]
    inputs.append((labelled("up", "shop-2:9100"), values("up", others)))
    return [{"series": name, "values": " ".join(found)} for name, found in inputs]


FROM_THE_START: Final = {
    "petstore_storage_failures_total",
    "petstore_log_lines_dropped_total",
    'process_cpu_seconds_total{process="worker-0"}',
}
"""The counters that are shown before they have counted anything."""


def counters(state: State) -> dict[str, float]:
    """Return by how much each counter rises in a minute."""
    requests, refused = "petstore_http_requests_total", "petstore_refused_requests_total"
    calls = "petstore_storage_duration_seconds_bucket"
    served = state.requests - state.failures - state.internal_errors
    return {
        f'{requests}{{operation="readyz",status="200"}}': state.probes,
        f'{requests}{{operation="listPets",status="200"}}': served,
        f'{requests}{{operation="listPets",status="503"}}': state.failures,
        f'{requests}{{operation="createPet",status="500"}}': state.internal_errors,
        f'{refused}{{reason="overloaded",client="shop-frontend"}}': state.overloaded,
        f'{refused}{{reason="invalid_key",client=""}}': state.invalid / 2,
        f'{refused}{{reason="no_key",client=""}}': state.invalid / 2,
        f'{refused}{{reason="rate_limited",client="shop-frontend"}}': state.limited,
        f'{calls}{{method="list_pets",le="0.5"}}': state.requests - state.slow,
        f'{calls}{{method="list_pets",le="1.0"}}': state.requests,
        f'{calls}{{method="list_pets",le="+Inf"}}': state.requests,
        "petstore_storage_failures_total": state.failures,
        "petstore_log_lines_dropped_total": state.dropped,
        'process_cpu_seconds_total{process="worker-0"}': state.cpu * 60,
    }


def gauges(state: State, checked: float) -> dict[str, float]:
    """Return the values of the gauges; without workers there are few.

    checked -- when the store was
    """
    always = {"petstore_build_info": 1.0}
    if not state.workers:
        return always
    return always | {
        "petstore_storage_check_timestamp_seconds": checked,
        "petstore_storage_writable": float(state.writable),
        "petstore_keys_stale": state.stale,
        "petstore_read_only": state.read_only,
        'process_open_fds{process="worker-0"}': state.descriptors,
        'process_max_fds{process="worker-0"}': 1000,
    }


def values(name: str, scrapes: Sequence[dict[str, float]]) -> Iterator[str]:
    """Return the values of a series, which ends with the first scrape that does not have it."""
    yield "_"
    for before, scrape in pairwise([{}, *scrapes]):
        yield f"{scrape[name]}" if name in scrape else "stale" if name in before else "_"


def expectations(alert: str, timeline: Timeline) -> Iterator[dict[str, object]]:
    """Return what promtool should find in each minute: this alert or none, and never another."""
    fires = [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    end = int(sum(minutes for minutes, _ in timeline.segments))
    for minute in range(1, end):
        must = timeline.must[0] <= minute < timeline.must[1]
        may = timeline.may[0] <= minute <= timeline.may[1]
        expression = FIRING if must or not may else FIRING.replace("{", f'{{alertname!="{alert}",')
        found = fires if must else []
        yield {"expr": expression, "eval_time": f"{minute}m", "exp_samples": found}
    if timeline.once:
        ever = FIRING.replace("ALERTS{", "last_over_time(ALERTS{").replace("})", f"}}[{end}m]))")
        yield {"expr": ever, "eval_time": f"{end}m", "exp_samples": fires}


def run(folder: Path, alert: str, given: Sequence[Timeline], step: int = 15) -> str:
    """Let promtool compare what fires with what should; return what is wrong, if anything is."""
    tests = [
        {
            "interval": f"{step}s",
            "input_series": series(timeline.segments, step),
            "promql_expr_test": [*expectations(alert, timeline)],
        }
        for timeline in given
    ]
    (folder / "alerts.yaml").write_text(RULES)
    whole = {"rule_files": ["alerts.yaml"], "evaluation_interval": f"{step}s", "tests": tests}
    (folder / "test.yaml").write_text(json.dumps(whole))
    ended = promtool(folder, "test rules", "test.yaml")
    return ended.stdout + ended.stderr if ended.returncode else ""


def test_the_rules_are_valid(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(RULES)
    passes(tmp_path, "check rules", "alerts.yaml")


def test_each_alert_has_a_fault() -> None:
    assert [*FAULTS] == ALERTS


@pytest.mark.parametrize("step", [15, 60])
@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_while_its_fault_lasts_and_no_other_does(
    tmp_path: Path, alert: str, step: int
) -> None:
    assert run(tmp_path, alert, [*timelines(FAULTS[alert], step)], step) == ""


CASES: Final[dict[str, tuple[str, Timeline]]] = {
    "restarts and starts": (
        "",
        Timeline(
            [
                (20, ABSENT),
                (1, State(workers=False)),
                (20, HEALTHY),
                (1, DOWN),
                (20, State(restart="main")),
                (20, State(restart="main")),
            ]
        ),
    ),
    "no target": (
        "PetstoreDown",
        Timeline(
            [(20, HEALTHY), (20, State(up=None, others=False)), (20, HEALTHY)],
            may=(20, 40),
            must=(22, 40),
        ),
    ),
    "a health check keeps requests away": (
        "PetstoreStorageUnavailable",
        Timeline(
            [(20, HEALTHY), (2, UNAVAILABLE), (28, UNAVAILABLE.with_traffic(0)), (20, HEALTHY)],
            may=(20, 50),
            must=(22, 50),
        ),
    ),
    "no worker": (
        "PetstoreStorageUnavailable",
        Timeline(
            [(20, HEALTHY), (30, State(workers=False)), (20, HEALTHY)], may=(20, 50), must=(23, 50)
        ),
    ),
    "only writes that come and go": (
        "PetstoreStorageFailing",
        Timeline(
            [(20, HEALTHY), *[(1, UNWRITABLE), (1, HEALTHY)] * 15, (20, HEALTHY)],
            may=(20, 50),
            once=True,
        ),
    ),
    "a worker dies after an upgrade": (
        "PetstoreWorkerDied",
        Timeline(
            [(20, HEALTHY), (1, DOWN), (2, State(restart="main")), (30, State(restart="worker-0"))],
            may=(23, 38),
            must=(24, 37),
        ),
    ),
    "the first error of a new process, before its first scrape": (
        "PetstoreInternalErrors",
        Timeline(
            [(20, ABSENT), (0.25, State(restart="main", internal_errors=8)), (20, HEALTHY)],
            may=(20, 27),
            once=True,
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_case_of_its_own(tmp_path: Path, case: str) -> None:
    alert, timeline = CASES[case]
    assert run(tmp_path, alert, [timeline]) == ""


BROKEN: Final = """
from petstore import cli
from petstore.contract import UnavailableError
from petstore_memory import MemoryRepository
async def create_pet(*_):
    raise RuntimeError
async def list_pets(_, query):
    if query.status:
        raise UnavailableError("no")
    return []
MemoryRepository.create_pet, MemoryRepository.list_pets = create_pet, list_pets
cli.main()
"""


def shown(text: str) -> set[tuple[object, ...]]:
    """Return the names and the labels of the series in a text of Prometheus."""
    families = text_string_to_metric_families(text)
    return {(s.name, *sorted(s.labels.items())) for family in families for s in family.samples}


def test_the_series_of_the_timelines_are_those_of_a_service(start: Start, tmp_path: Path) -> None:
    keys = {"shop-frontend": KEY, "other": OTHER_KEY}
    (tmp_path / "keys").write_text("\n".join(key_line(*client) for client in keys.items()))
    settings = {"api_keys": "", "api_keys_file": f"{tmp_path}/keys", "rate_limit": "4/h"}
    live = start(script=BROKEN, metrics_listen="127.0.0.1:0", max_in_flight="1", **settings)

    def exposed() -> set[tuple[object, ...]]:
        return shown(exposition(live).replace('"main"', '"worker-0"'))  # there is only one process

    counted = shown(" 1\n".join((*counters(HEALTHY), "")))
    assert exposed() & counted == shown(" 1\n".join((*FROM_THE_START, "")))
    others = gauges(HEALTHY, 0).keys() - {"petstore_build_info"}
    expected = counted | shown(" 1\n".join((*others, "")))
    client = live.client
    assert client.get("/readyz").status_code == 200
    responses = [client.get("/v1/pets"), client.get("/v1/pets?status=sold")]
    responses.append(client.post("/v1/pets", json=REX))
    with begin_body(live, "Content-Length: 9\r\nExpect: 100-continue", key=OTHER_KEY) as slow:
        slow.recv(1)  # its body is wanted, so it has the only slot
        responses += [client.get("/v1/pets") for _ in range(2)]
    with live.new_client("wrong") as stranger:
        responses.append(stranger.get("/v1/pets"))
    with live.anonymous() as stranger:
        responses.append(stranger.get("/v1/pets"))
    assert [r.status_code for r in responses] == [200, 503, 500, 503, 429, 401, 401]
    until(lambda: expected <= exposed(), log=lambda: f"missing: {expected - exposed()}")
