"""The alert rules in Prometheus: real faults of a real service, and a minute of a few seconds."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw
import httpx
import pytest

from tests.support.documents import ROOT, blocks
from tests.support.environments import program
from tests.support.interface import ORDERS, PETS
from tests.support.ports import free_port
from tests.support.promtool import FIRING, RULES
from tests.support.services import NO_TLS, Live, Start
from tests.support.waiting import HANG_SECONDS, PATIENCE, until

pytestmark = pytest.mark.slow

MINUTE: Final = 5 * PATIENCE
"""How many seconds a minute of the rules takes at least: the store is checked once a second."""

Ask = Callable[[str], set[str]]
"""Returns the alerts that an expression finds now; if it finds anything else, an empty name."""

FIRED: Final = 'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1h]))'

(CONFIGURATION,) = (
    text for text in blocks((ROOT / "docker/README.md").read_text(), "yaml") if "scrape_" in text
)


def scaled(rules: str, minute: float) -> str:
    """Return the rules with other durations, and with other thresholds in seconds.

    minute -- the seconds that take the place of a minute
    """
    rules = re.sub(r"\b(\d+)m\b", lambda found: milliseconds(int(found[1]) * minute), rules)
    seconds = r"(?<=[<>] )\d{2,}\b"
    return re.sub(seconds, lambda found: f"{int(found[0]) * minute / 60:.3f}", rules)


def milliseconds(seconds: float) -> str:
    """Return a duration as Prometheus reads it."""
    return f"{seconds * 1000:.0f}ms"


@contextmanager
def prometheus(folder: Path, target: str, minute: float) -> Iterator[Ask]:
    """Run Prometheus as docker/README.md says, on scaled rules, until the block is left.

    It gets the rules after its first scrape, which takes longer than a scaled minute.
    """
    rules = folder / "alerts.yaml"
    rules.write_text("groups: []")
    interval = milliseconds(minute / 10)
    times = f"global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}\n"
    configuration = CONFIGURATION.replace("127.0.0.1:9100", target)
    (folder / "prometheus.yaml").write_text(times + configuration)
    address = f"127.0.0.1:{free_port()}"
    command = (
        program("prometheus"),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/series",
        f"--query.lookback-delta={milliseconds(5 * minute)}",
        f"--web.listen-address={address}",
    )
    log = folder / "prometheus.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as popen,
        httpx.Client(base_url=f"http://{address}", timeout=HANG_SECONDS, verify=NO_TLS) as client,
    ):

        def ask(expression: str) -> set[str]:
            response = client.get("/api/v1/query", params={"query": expression})
            assert response.status_code == 200, response.text
            found = response.json()["data"]["result"]
            return {series["metric"].get("alertname", "") for series in found}

        try:
            until(lambda: client.get("/-/ready").is_success, log=log.read_text)
            until(lambda: ask("up == 1"), log=log.read_text)
            rules.write_text(scaled(RULES, minute))
            popen.send_signal(signal.SIGHUP)
            until(lambda: client.get("/api/v1/rules").json()["data"]["groups"], log=log.read_text)
            yield ask
        finally:
            popen.kill()


def test_alerts_fire_during_their_faults_and_at_no_other_time(start: Start, tmp_path: Path) -> None:
    file, away = tmp_path / "pets.sqlite", tmp_path / "away"
    target = f"127.0.0.1:{free_port()}"
    settings = {"sqlite_path": str(file), "workers": "2", "metrics_listen": target}

    def served() -> Live:
        return start(backend="sqlite", drain_seconds="0", **settings)

    begin = time.monotonic()
    live = served()
    minute = max(MINUTE, time.monotonic() - begin)  # a restart must take less than that

    with prometheus(tmp_path, target, minute) as ask:

        def wait(holds: Callable[[], object], *paths: str) -> None:
            """Request these paths until a condition holds, for three minutes of the rules.

            The rates of the rules are those of five minutes: an alert must end before its rate.
            """

            def requested() -> object:
                for path in paths:
                    live.client.get(path)
                return holds()

            until(requested, 3 * minute, lambda: f"firing: {ask(FIRING)}")

        wait(lambda: ask(f"up offset {milliseconds(minute)} == 1"), PETS)
        assert live.stop() == 0
        live = served()
        worker = 'process_start_time_seconds{process="worker-0"}'
        wait(lambda: ask(f"changes({worker}[1h]) == 1 and time() - {worker} > {minute}"), PETS)
        assert ask(FIRED) == set()

        file.rename(away)
        wait(lambda: ask(FIRING) == {"PetstoreStorageUnavailable"}, "/readyz")
        assert live.client.get("/readyz").status_code == 503
        away.rename(file)
        wait(lambda: ask(FIRING) == set(), "/readyz")

        with closing(apsw.Connection(str(file))) as connection:
            connection.execute("ALTER TABLE orders RENAME TO hidden")
            wait(lambda: ask(FIRING) == {"PetstoreStorageFailing"}, PETS, ORDERS)
            connection.execute("ALTER TABLE hidden RENAME TO orders")
            wait(lambda: ask(FIRING) == set(), PETS, ORDERS)

        os.kill(live.workers()[0], signal.SIGKILL)
        wait(lambda: ask(FIRING) == {"PetstoreWorkerDied"})
        faults = {"PetstoreStorageUnavailable", "PetstoreStorageFailing", "PetstoreWorkerDied"}
        assert ask(FIRED) == faults
