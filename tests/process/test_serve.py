"""`petstore serve` as it runs: the banner of --dev, signals during the start, open files."""

import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from petstore_conformance.faults.services import children

from tests.support.command import running
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, alive, process
from tests.support.waiting import HANG_SECONDS, until

KILLS = int(os.environ.get("PETSTORE_KILLS", "4"))


def handles(process_id: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) & 1 << number - 1)


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_sigterm_during_the_start_ends_with_status_0(tmp_path: Path, workers: str) -> None:
    settings = {
        "backend": "sqlite",
        "sqlite_path": str(tmp_path / "pets.sqlite"),
        "api_keys": KEY,
        "workers": workers,
        "drain_seconds": "0",
    }
    serve = ("serve", "--listen", "127.0.0.1:0")
    log = tmp_path / "stderr"
    with running(tmp_path, *serve, **settings) as popen:
        until(lambda: handles(popen.pid, signal.SIGTERM))
        begin = time.monotonic()
        until(lambda: "serving on" in log.read_text())
        whole = time.monotonic() - begin
    for kill in range(KILLS):
        with running(tmp_path, *serve, **settings) as popen:
            until(lambda: handles(popen.pid, signal.SIGTERM))  # until then Python itself starts
            time.sleep(whole * kill / KILLS)
            processes = children(popen.pid)
            popen.terminate()
            assert popen.wait(HANG_SECONDS) == 0, (kill, log.read_text())
        assert "Traceback" not in log.read_text()
        until(lambda: not any(map(alive, processes)))  # noqa: B023 - called at once


@pytest.mark.slow
def test_sigterm_to_a_worker_that_starts_ends_it_with_status_0(tmp_path: Path) -> None:
    storage = {"backend": "sqlite", "sqlite_path": str(tmp_path / "pets.sqlite")}
    with process(tmp_path, workers="2", drain_seconds="0", **storage) as live:
        worker, other = live.workers()
        for kill in range(KILLS):
            os.kill(worker, signal.SIGTERM)
            ended = f"worker {worker} ended with status 0; replacing it"
            until(lambda: ended in live.log.read_text(), log=live.log.read_text)  # noqa: B023 - called at once
            old = {worker, other}
            (worker,) = until(lambda: set(live.workers()) - old)  # noqa: B023 - called at once
            time.sleep(kill / KILLS)  # its start takes about that long
        assert live.stop() == 0
    assert "Traceback" not in live.log.read_text()


NOHUP = """
import signal
from petstore import cli
signal.signal(signal.SIGHUP, signal.SIG_IGN)
cli.main()
"""


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_nohup_keeps_the_development_mode_running(tmp_path: Path, workers: str) -> None:
    storage = {"backend": "sqlite", "sqlite_path": str(tmp_path / "pets.sqlite")}
    flags = ("--dev", "--workers", workers)
    with process(tmp_path, *flags, script=NOHUP, api_keys="", **storage) as live:
        assert live.process is not None
        assert not handles(live.process.pid, signal.SIGHUP)
        assert live.stop() == 0


FEW_FILES = """
import resource
from petstore import cli
resource.setrlimit(resource.RLIMIT_NOFILE, (70, 70))
cli.main()
"""


def test_the_limit_of_open_files_is_one_line_in_the_log(tmp_path: Path) -> None:
    with process(tmp_path, script=FEW_FILES, log="off") as live:
        for times in (1, 2):
            with ExitStack() as stack:
                for _ in range(100):
                    address = (live.host, live.port)
                    stack.enter_context(socket.create_connection(address, timeout=HANG_SECONDS))
                until(lambda: live.log.read_text().count("out of file descriptors") == times)  # noqa: B023 - called at once
            health = f"{live.url}/livez"
            until(lambda: httpx.get(health, timeout=HANG_SECONDS).status_code == 200)  # noqa: B023 - called at once
            until(lambda: live.log.read_text().count("available again") == times)  # noqa: B023 - called at once
        assert live.stop() == 0
    assert live.log.read_text().count("out of file descriptors") == 2
    assert "Traceback" not in live.log.read_text()
