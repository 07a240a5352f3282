"""Fault injection: each saboteur is caught by the kind of its violation, correct ones pass."""

import json
import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, NoReturn, cast

import msgspec
import pytest
from msgspec import Struct
from petstore_conformance.commands import main
from petstore_conformance.faults import session
from petstore_conformance.faults.proxy import Proxy
from petstore_conformance.faults.rounds import Rounds
from petstore_conformance.faults.session import Tally
from petstore_conformance.faults.stages import PROXY_FAULTS
from petstore_conformance.faults.subjects import FaultOptions, Subject
from petstore_conformance.faults.verdicts import Findings, RoundOutcome
from petstore_conformance.harness import cores
from petstore_conformance.harness.cores import INCONCLUSIVE, children

from conformance.tests import faulty, filed, mistakes
from petstore.contract import SettingsError, UnavailableError
from tests.support.documents import ROOT
from tests.support.installed import KIT, conformance, install
from tests.support.services import environment
from tests.support.serving import serving
from tests.support.waiting import HANG_SECONDS, alive, until

SEEDS = range(int(os.environ.get("PETSTORE_SEEDS", "1")))

CAUGHT = {
    ("LosesTheLastWrite", "kill-service"): "lost",
    ("ForgetsTokens", "kill-service"): "retried_twice",
    ("SellsTwice", "kill-worker"): "sold_twice or not_linearizable",
    ("LooksForItsFile", "server-empty"): "emptied",
    ("ServesAnOlderCopy", "server-restore"): "emptied",
    ("Hangs", "stall"): "too_late",
    ("ReadsNoOrderAgain", "calls"): "not_recovered",
    ("Stubborn", "calls"): "not_cancelled",
    ("SendsTwiceAfterItsSecondRequest", "calls"): "sent_twice",
    ("ClosesInTwoRequests", "calls"): "otherwise_wrong",
    ("FailsWhileStarting", "server-kill"): "wrong_error",
}
"""A saboteur, the fault that shows it, and the kind of the violation, or the kinds."""

SLOW = ("ForgetsTokens", "Hangs", "FailsWhileStarting", "SellsTwice")
"""Those that take seconds of CPU."""

CORRECT = {
    "Slow": ["kill-service"],
    "Filed": ["kill-service", "kill-worker", "server-restore"],
    "LooksInItsCheck": ["server-empty"],
    "Served": ["calls", "stall", "server-kill", "drop", "refuse"],
}
"""Correct backends, and the faults that each of them survives."""

KINDS = vars(faulty) | vars(mistakes)
SOURCE = """from conformance.tests import filed
from {0.__module__} import {0.__name__} as kind
backend = filed.backend(kind)
"""
IDLE = """from petstore_conformance.harness import cores
cores.read = dict
"""
"""On a machine that is never too busy, so that each saboteur is judged."""

BUSY = """import itertools
from petstore_conformance.harness import cores
waited = itertools.count(0, 10**12)
cores.read = lambda: {"1": (0, next(waited))}
"""
NEVER_SERVED = """from petstore_conformance.faults import services
services.SERVING_SECONDS = 0
"""


class _Connection(StreamRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):
            while self.rfile.read(1):
                self.wfile.write(b"!")


class Replies(ThreadingTCPServer):
    """A server that replies with a byte to every byte."""

    daemon_threads, block_on_close = True, False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port = self.server_address[1]


@pytest.fixture
def server() -> Iterator[Replies]:
    with serving(replies := Replies()):
        yield replies


def run(
    directory: Path, server: Replies, repository: str, seed: int, *options: str, machine: str = ""
) -> tuple[int, dict[str, Any], str]:
    """Run the level on a backend; return the status, the report and the output."""
    install("tried", directory, machine + SOURCE.format(KINDS[repository]))
    settings = {"tried_location": "unused"}
    if issubclass(KINDS[repository], faulty.Served):
        down = directory / "down"
        settings |= {"tried_url": f"tcp://127.0.0.1:{server.port}", "tried_down": str(down)}
        options += (f"--server-kill=touch {shlex.quote(str(down))}",)
        options += (f"--server-start=rm {shlex.quote(str(down))}",)
    options += (
        '--server-empty=flock "$PETSTORE_TRIED_LOCATION.lock" rm "$PETSTORE_TRIED_LOCATION"',
    )
    report = directory / "report.json"
    flags = ("--faults", f"--seed={seed}", "--minutes=0.03", f"--json={report}", *options)
    ran = conformance("tried", directory, *flags, **settings)
    found = json.loads(report.read_text()) if report.exists() else {}
    return ran.returncode, found, ran.stdout + ran.stderr


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("repository", "fault"),
    [pytest.param(*one, marks=[pytest.mark.slow] * (one[0] in SLOW)) for one in CAUGHT],
)
def test_a_saboteur_is_caught_by_the_kind_of_its_violation(
    tmp_path: Path, server: Replies, repository: str, fault: str, seed: int
) -> None:
    options = (f"--fault={fault}", "--timeout-seconds=2")
    status, report, output = run(tmp_path, server, repository, seed, *options, machine=IDLE)
    assert status == 1, output
    assert any(report["violations"][kind] for kind in CAUGHT[repository, fault].split(" or "))


@pytest.mark.parametrize(
    ("repository", "fault", "machine", "said"),
    [
        ("Hangs", "stall", BUSY, "too late: "),
        pytest.param(
            *("Slow", "kill-service", NEVER_SERVED, "it never served within 0 s"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_a_busy_machine_delays_is_not_judged(  # noqa: PLR0917 - of parameters
    tmp_path: Path, server: Replies, repository: str, fault: str, machine: str, said: str
) -> None:
    options = (f"--fault={fault}", "--timeout-seconds=1")
    status, report, output = run(tmp_path, server, repository, 1, *options, machine=machine)
    assert status == 75, output
    assert not any(report["violations"].values())
    assert said in report["inconclusive"][0]
    assert output.splitlines()[-1].startswith("tried was inconclusive; repeat this ")


@pytest.mark.slow
def test_on_a_busy_machine_what_is_lost_is_lost(tmp_path: Path, server: Replies) -> None:
    options = ("--fault=kill-service", "--timeout-seconds=2")
    status, report, output = run(tmp_path, server, "LosesTheLastWrite", 1, *options, machine=BUSY)
    assert status == 1, output
    assert report["violations"]["lost"]
    assert "\nnot shared: one process serves at a time\n" in output
    assert "\nno URL with one HOST:PORT in its settings, and no --server: no proxy\n" in output


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("repository", CORRECT)
def test_a_correct_backend_survives(
    tmp_path: Path, server: Replies, repository: str, seed: int
) -> None:
    faults = [f"--fault={fault}" for fault in CORRECT[repository]]
    status, report, output = run(tmp_path, server, repository, seed, *faults)
    if status == INCONCLUSIVE:
        pytest.skip(output)
    assert status == 0, output
    assert report["counts"]["requests"] >= 10  # in the shortest run
    assert not any(report["violations"].values())


def subject(settings: Any, *, durable: bool = True) -> Subject:
    """Return a subject whose service would be given these settings."""
    backend = msgspec.structs.replace(filed.FILED, durable=durable)
    return Subject("tried", "tried", backend, settings)


URLS = {
    "acme://server:7000": "server:7000",
    "acme://user:se:cret@server:7000/3?a=b": "server:7000",
    "acme://[::1]:7000,": None,
    "acme://[::1]:7000": "[::1]:7000",
    "acme://one:7000,two:7000": None,
    "acme://server": None,
    "server:7000": None,
}


@pytest.mark.parametrize("url", URLS)
def test_the_proxy_replaces_the_one_server_in_a_url(url: str) -> None:
    tried = subject(filed.FileSettings("x", url))
    assert tried.address() == URLS[url]
    if address := URLS[url]:
        changed = tried.redirect(tried.settings, address, "127.0.0.1:1")
        assert changed.url == url.replace(address, "127.0.0.1:1")
        assert changed.location == "x"


class ManySettings(Struct, frozen=True):
    """Settings of every type that a text can be read as."""

    check: bool = False
    count: int = 7
    seconds: float = 0.5
    name: str = "x"
    password: str | None = None


def test_settings_become_texts_that_configure_equal_ones() -> None:
    settings = ManySettings(check=True)
    texts = {"tried_check": "true", "tried_count": "7", "tried_seconds": "0.5", "tried_name": "x"}
    assert subject(settings).texts(settings) == texts
    padded = ManySettings(name=" x")
    with pytest.raises(SettingsError, match="`scratch` yields name=' x', which cannot be given"):
        subject(padded).texts(padded)
    wrong = ManySettings(count=cast("int", "seven"))
    with pytest.raises(SettingsError, match="what `scratch` yields is not valid as texts"):
        subject(wrong).texts(wrong)


def plans(seed: int, front: Proxy | None = None, *only: str, durable: bool = True) -> list[Any]:
    """Return the faults of the first rounds of a seed."""
    tried = subject(filed.FileSettings("x"), durable=durable)
    rounds = Rounds(tried, FaultOptions(seed=seed, only=only, server_empty="true"), front)
    return list(islice(rounds.plans(), 12))


def test_a_seed_repeats_the_faults_and_every_fault_comes_soon() -> None:
    with Proxy("127.0.0.1", 1) as front:
        assert plans(1, front) == plans(1, front) != plans(2, front)
        names = {name for plan in plans(3, front) for name in plan}
        assert names == {"kill-service", "kill-worker", *PROXY_FAULTS, "calls", "server-empty"}
        assert all(len(plan) == 1 for plan in plans(3, front) if "calls" in plan)


def test_what_ends_a_store_is_the_last_fault_of_a_round() -> None:
    assert all("kill-service" not in plan[:-1] for plan in plans(1, durable=False))
    assert all("server-empty" not in plan[:-1] for plan in plans(1))


def test_a_fault_that_is_not_possible_is_refused() -> None:
    with pytest.raises(SettingsError, match="--fault: stall is not possible here, only kill-"):
        plans(1, None, "stall")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--faults", "--clause=closed"), "--clause and --faults exclude each other"),
        (("--minutes=1",), "--minutes needs --faults"),
        (("--fault=stall",), "--fault needs --faults"),
        (("--faults", "--json"), "--json needs a FILE with --faults"),
        (("--faults", "--minutes=0"), "--minutes must be above 0"),
        (("--faults", "--timeout-seconds=nan"), "--timeout-seconds must be above 0"),
        (("--faults", "--server-kill=true"), "--server-start needs"),
        (("--faults", "--server-save=true"), "--server-save and --server-restore need each other"),
        (("--faults", "--server=nowhere"), "--server must be HOST:PORT, not nowhere"),
        (("--faults", "--json=/nothing/x"), "--json /nothing/x: No such file or directory"),
        (("--faults", "--json=/"), "--json /: Is a directory"),
        (("--faults", "--server=h:1"), "no setting of the backend 'memory' has the text h:1"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PETSTORE_REQUIRE_SERVICES", raising=False)  # it is no setting
    with pytest.raises(SystemExit, match="2"):
        main(["test", "memory", *options])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"petstore-conformance: {message}")
    assert len(printed.err.splitlines()) == 1


def test_a_command_that_fails_ends_the_run(tmp_path: Path, server: Replies) -> None:
    options = ("--server-stop=exit 3", "--fault=server-stop")
    status, _, output = run(tmp_path, server, "Served", 1, *options)
    assert status == 2
    said = "petstore-conformance: --server-stop has ended with the status 3: exit 3\n"
    assert output.endswith(f"repeat this run with --seed 1\n{said}"), "nothing else on stderr"


@pytest.mark.parametrize(("minutes", "rounds"), [(1000, 3), (0, 1)])
def test_rounds_end_when_time_is_over(minutes: float, rounds: int) -> None:
    tally = Tally(minutes)
    session.repeat((RoundOutcome("stall") for _ in range(3)), tally)
    assert tally.counts["rounds"] == rounds


def test_rounds_end_when_the_storage_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "read", dict)  # it is judged on a busy machine, too
    unreachable = msgspec.structs.replace(filed.FILED, scratch=refused)
    tried = Subject("tried", "tried", unreachable, filed.FileSettings("x"))
    (outcome,) = Rounds(tried, FaultOptions(), None)
    assert outcome.found == {"not recovered": ["no location can be made: down"]}


def refused(_: filed.FileSettings) -> NoReturn:
    raise UnavailableError("down")


@pytest.mark.slow
def test_functions_may_kill_the_server(
    tmp_path: Path, server: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("tried", tmp_path, SOURCE.format(faulty.FailsWhileStarting))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    down = tmp_path / "down"
    settings = filed.FileSettings("unused", f"tcp://127.0.0.1:{server.port}", str(down))
    tried = Subject("tried", "tried", filed.backend(faulty.FailsWhileStarting), settings)

    def options(down: Path) -> FaultOptions:
        return FaultOptions(
            minutes=0.01,
            seed=1,
            timeout_seconds=2,
            server_kill=down.touch,
            server_start=down.unlink,
            only=("server-kill",),
        )

    assert session.run(tried, options(down)).found["wrong error"]
    with pytest.raises(SettingsError, match="server_kill has raised FileNotFoundError"):
        session.run(tried, options(tmp_path / "nothing" / "down"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_service_and_no_location(tmp_path: Path, number: int) -> None:
    """Even if a service is just being started."""
    locations = tmp_path / "places"
    locations.mkdir()
    run = subprocess.Popen(
        [KIT, "test", "sqlite", "--faults"],
        env=environment(sqlite_path=str(tmp_path / "pets.sqlite")) | {"TMPDIR": str(locations)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Before there is a location, a child process may be one that an import has started.
    services = until(lambda: children()[run.pid] if any(locations.iterdir()) else None)
    run.send_signal(number)
    output, errors = run.communicate(timeout=HANG_SECONDS)
    assert (run.returncode, errors) == (130, "")
    assert "interrupted in round 1, which is not counted\n0 violations: 0 rounds" in output
    assert not any(alive(service) for service in services)
    assert list(locations.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["places"]


def test_each_round_is_a_line_and_the_figures_come_at_the_end() -> None:
    tally = Tally(2)
    drop = RoundOutcome("drop", Counter(requests=7))
    both = RoundOutcome("stall, cut", Counter(requests=5), Findings({"lost": ["pet 7"]}))
    assert tally.add(drop) == "round 1: 7 requests, drop: ok"
    assert tally.add(both) == "round 2: 5 requests, stall, cut: 1 VIOLATIONS"
    assert tally.lines()[0].startswith("1 violations: 2 rounds, 12 requests")
    assert "        round 2: pet 7" in tally.lines()
