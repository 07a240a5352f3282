"""Several worker processes on one SQLite file: they share the work and end together."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from petstore_conformance.harness.cores import children

from petstore.config.keys import WATCH_SECONDS
from tests.support.command import running
from tests.support.key_files import key_line, replace
from tests.support.pets import REX
from tests.support.responses import walk
from tests.support.services import KEY, Live, environment, process
from tests.support.waiting import HANG_SECONDS, alive, until

WORKERS = 2
OLD = key_line("old", "old")


def settings_of(directory: Path) -> dict[str, str]:
    """Return the settings of a service of two workers on a new file."""
    path = f"{directory}/pets.sqlite"
    return {"backend": "sqlite", "sqlite_path": path, "workers": f"{WORKERS}", "drain_seconds": "0"}


@contextmanager
def served(directory: Path, **settings: str) -> Iterator[Live]:
    """Run a service of two workers on a new file."""
    with process(directory, **settings_of(directory) | {"log": "off"} | settings) as live:
        yield live


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a key file."""
    path = tmp_path / "keys"
    path.write_text(OLD)
    return path


def worker_of(response: httpx.Response) -> str:
    """Return which process has sent a response: the first part of the request id."""
    return str(response.headers["x-request-id"]).partition("-")[0]


@contextmanager
def client_of_each(live: Live, key: str = KEY) -> Iterator[list[httpx.Client]]:
    """Yield a client for each worker, with a connection to it."""
    found: dict[str, httpx.Client] = {}
    end = time.monotonic() + HANG_SECONDS
    with ExitStack() as stack:
        while len(found) < WORKERS:
            assert time.monotonic() < end, f"only {len(found)} workers respond"
            client = stack.enter_context(live.new_client(key))
            found.setdefault(worker_of(client.get("/livez")), client)
        yield list(found.values())


def check_ended(process_ids: list[int]) -> None:
    """Check that processes end."""
    until(lambda: not any(alive(id_) for id_ in process_ids))


def is_free(live: Live) -> bool:
    """Return whether the port of a service can be bound again."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((live.host, live.port))
        except OSError:
            return False
    return True


def test_workers_share_connections_equally(tmp_path: Path) -> None:
    with served(tmp_path) as live:
        with ExitStack() as stack:
            connected = [stack.enter_context(live.new_client(KEY)) for _ in range(16)]
            shares = Counter(worker_of(client.get("/livez")) for client in connected)
        assert max(shares.values()) <= 0.6 * len(connected)
        assert live.stop() == 0


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with served(tmp_path) as live:
        before = live.workers()
        assert len(before) == WORKERS
        pet = live.client.post("/v1/pets", json=REX).json()
        os.kill(before[0], signal.SIGKILL)
        for _ in range(20):  # the other worker serves them
            with live.new_client() as client:
                assert client.get(f"/v1/pets/{pet['id']}").json() == pet
        until(lambda: len(set(live.workers()) - {before[0]}) == WORKERS)
        assert before[1] in live.workers()
        with client_of_each(live) as clients:
            for client in clients:
                assert walk(client, "/v1/pets") == [pet]
            assert clients[0].post("/v1/pets", json=REX).json()["id"] > pet["id"]
        assert live.stop() == 0
    log = live.log.read_text()
    assert log.count(f"worker {before[0]} ended with status -9; replacing it") == 1
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_worker_that_cannot_be_replaced_is_replaced_later(tmp_path: Path) -> None:
    """A fork that failed ended the whole service."""
    with served(tmp_path, log="text") as live:
        first, second = live.workers()
        limits = resource.prlimit(live.popen.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(live.popen.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(first, signal.SIGKILL)
        line = f"worker {first} ended with status -9, and cannot be replaced: Too many open files"
        until(lambda: line in live.log.read_text())
        assert live.client.get("/readyz").status_code == 200
        resource.prlimit(live.popen.pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: len(set(live.workers()) - {first, second}) == 1)
        with client_of_each(live):
            pass
        assert "Traceback" not in live.log.read_text()


def test_sigterm_drains_and_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = {"drain_seconds": "600", "shutdown_seconds": "60"}
    with served(tmp_path, **settings) as live, client_of_each(live) as clients:
        processes = children()[live.popen.pid]
        first, last = live.workers()
        live.popen.send_signal(signal.SIGTERM)
        until(lambda: live.log.read_text().count("stopping: draining") == WORKERS)
        for client in clients:
            response = client.post("/v1/pets", json=REX)
            assert (response.status_code, response.headers["connection"]) == (201, "close")
        os.kill(last, signal.SIGSTOP)  # SQLite keeps its log if two close the file at once
        live.popen.terminate()  # ends the drain
        check_ended([first])
        os.kill(last, signal.SIGCONT)
        assert live.popen.wait(HANG_SECONDS) == 0
        check_ended(processes)
        assert is_free(live)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"serve.log", "pets.sqlite"}  # no WAL: the database was closed
    assert "Traceback" not in live.log.read_text()


@contextmanager
def starting(directory: Path) -> Iterator[Live]:
    """Start such a service as the leader of a process group; wait until it has a worker."""
    keys = {"api_keys": KEY, "listen": "127.0.0.1:0"}
    with running(directory, "serve", **settings_of(directory), **keys) as popen:
        live = Live("127.0.0.1", 0, popen)
        until(live.workers)
        yield live


@pytest.mark.slow
def test_a_signal_to_the_whole_group_counts_once_and_a_worker_killed_then_does_not_matter(
    tmp_path: Path,
) -> None:
    with served(tmp_path, drain_seconds="600") as live:
        workers = live.workers()
        for worker in workers:
            os.kill(worker, signal.SIGTERM)
        until(lambda: live.log.read_text().count("stopping: draining") == WORKERS)
        live.popen.terminate()  # which sends it to the workers, too
        for _ in range(100):
            with live.new_client() as client:
                assert client.get("/v1/pets").headers["connection"] == "close"
        killed, other = workers
        os.kill(killed, signal.SIGKILL)
        check_ended([killed])
        for id_ in (other, live.popen.pid):
            os.kill(id_, signal.SIGTERM)
        assert live.popen.wait(HANG_SECONDS) == 0
    assert f"worker {killed} ended with status -9" in live.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 0.05, 0.2])
def test_an_interrupt_while_workers_start_ends_with_status_0(
    tmp_path: Path, seconds: float
) -> None:
    with starting(tmp_path) as live:
        processes = children()[live.popen.pid]
        time.sleep(seconds)
        os.killpg(live.popen.pid, signal.SIGINT)
        assert live.popen.wait(HANG_SECONDS) == 0
        check_ended(processes)
    assert "Traceback" not in (tmp_path / "stderr").read_text()


SIGNALED_WHILE_IT_STARTS_A_WORKER = """
import os, signal
from petstore import cli
from petstore.server import workers

class Supervisor(workers.Supervisor):
    def _start(self, name):
        process = super()._start(name)
        if not self._signals:
            os.kill(os.getpid(), signal.SIGTERM)
        return process

workers.Supervisor = Supervisor
cli.main(["serve"])
"""


@pytest.mark.slow
def test_a_signal_while_a_worker_is_being_started_reaches_that_worker(tmp_path: Path) -> None:
    keys = {"api_keys": KEY, "listen": "127.0.0.1:0"}
    subprocess.run(
        [sys.executable, "-c", SIGNALED_WHILE_IT_STARTS_A_WORKER],
        env=environment(**settings_of(tmp_path), **keys),
        timeout=HANG_SECONDS,
        check=True,
    )


@pytest.mark.parametrize("drains", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_end_if_their_parent_is_killed_and_the_next_start_gets_the_port_at_once(
    tmp_path: Path, drains: bool
) -> None:
    with served(tmp_path, drain_seconds="600") as live:
        workers = live.workers()
        assert len(workers) == WORKERS
        if drains:
            live.popen.terminate()
            until(lambda: live.log.read_text().count("stopping: draining") == WORKERS)
        live.popen.kill()
        live.popen.wait(HANG_SECONDS)
        with served(tmp_path, listen=f"{live.host}:{live.port}") as successor:
            assert successor.client.get("/v1/pets").json() == []
        check_ended(workers)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.4])
def test_workers_end_if_their_parent_is_killed_while_they_start(
    tmp_path: Path, seconds: float
) -> None:
    with starting(tmp_path) as live:
        until(lambda: len(live.workers()) == WORKERS)
        workers = live.workers()
        time.sleep(seconds)
        live.popen.kill()
        live.popen.wait(HANG_SECONDS)
        try:
            check_ended(workers)
        finally:
            for worker in filter(alive, workers):
                os.kill(worker, signal.SIGKILL)


def test_a_worker_that_replaces_another_needs_neither_files_nor_the_directory(
    tmp_path: Path, file: Path
) -> None:
    """It has the settings of the start, and the keys that the others have by then."""
    assert WATCH_SECONDS < 5
    config = tmp_path / "petstore.toml"
    config.write_text('PETSTORE_ROOT_PATH = "/shop"\n')
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os; os.chdir({str(gone)!r}); from petstore import cli; cli.main()"
    paths = {"api_keys_file": "../keys", "sqlite_path": "../pets.sqlite"}
    with served(tmp_path, script=script, config=str(config), **paths) as live:
        before = live.workers()
        replace(file, key_line("new", "new").encode())
        with client_of_each(live, "old") as clients:
            until(lambda: {client.get("/v1/pets").status_code for client in clients} == {401})
        time.sleep(WATCH_SECONDS)  # the parent has no port to ask
        file.unlink()
        config.unlink()
        gone.rmdir()
        line = f"cannot read the key file {file} of"
        until(lambda: live.log.read_text().count(line) == WORKERS)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len({*live.workers()} - {before[0]}) == WORKERS, log=live.log.read_text)
        for key, status in ("old", 401), ("new", 200), (KEY, 200):
            with client_of_each(live, key) as clients:
                assert [client.get("/v1/pets").status_code for client in clients] == [status] * 2
        until(lambda: live.log.read_text().count(line) == WORKERS + 1)
        assert live.stop() == 0
    assert "Traceback" not in live.log.read_text()


CANNOT_REPLACE = """
import pathlib
from petstore import cli
from petstore.server import workers

class Supervisor(workers.Supervisor):
    def _replace_dead_workers(self):
        workers.GIVE_UP_SECONDS, workers.QUEUE_SECONDS = {give_up}, {queue}
        if pathlib.Path("{possible}").exists():
            super()._replace_dead_workers()

workers.Supervisor = Supervisor
cli.main()
"""


def test_a_service_without_workers_gives_up(tmp_path: Path) -> None:
    script = CANNOT_REPLACE.format(give_up=2, queue=60, possible="/nowhere")
    with served(tmp_path, script=script) as live:
        for worker in live.workers():
            os.kill(worker, signal.SIGKILL)
        assert live.popen.wait(HANG_SECONDS) == 1
        assert is_free(live)
    log = live.log.read_text()
    assert "no worker could start for 2 s: giving up" in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_connections_do_not_wait_for_workers_that_never_come(tmp_path: Path) -> None:
    possible = tmp_path / "possible"
    script = CANNOT_REPLACE.format(give_up=600, queue=0, possible=possible)
    with served(tmp_path, script=script) as live:
        for worker in live.workers():
            os.kill(worker, signal.SIGKILL)
        # Not a ReadTimeout.
        with (
            pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)),
            live.new_client() as client,
        ):
            client.get("/livez")
        possible.touch()

        health = f"{live.url}/livez"
        assert until(lambda: httpx.get(health, timeout=HANG_SECONDS)).status_code == 200
