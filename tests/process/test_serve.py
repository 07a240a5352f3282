"""`petstore serve` as it runs: the banner of --dev, signals during the start, open files."""

import os
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from petstore_conformance.harness.cores import children

from petstore.config.keys import new_key
from petstore.server import serve
from tests.support.command import running
from tests.support.ports import free_port
from tests.support.services import KEY, ONE_OR_TWO_WORKERS, process
from tests.support.waiting import HANG_SECONDS, alive, until

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
            processes = children()[popen.pid]
            popen.terminate()
            assert popen.wait(HANG_SECONDS) == 0, (kill, log.read_text())
        assert "Traceback" not in log.read_text()
        until(lambda: not any(map(alive, processes)))  # noqa: B023 - called at once


@pytest.mark.slow
def test_sigterm_to_a_worker_that_starts_ends_it_with_status_0(tmp_path: Path) -> None:
    with process(tmp_path, workers="2", drain_seconds="0") as live:
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
    with process(tmp_path, "--dev", script=NOHUP, api_keys="", workers=workers) as live:
        assert not handles(live.popen.pid, signal.SIGHUP)
        assert live.stop() == 0


FROZEN = """
import atexit, gc, sys
from petstore import cli
atexit.register(lambda: print("frozen:", gc.get_freeze_count(), file=sys.stderr))
cli.main()
"""


def test_full_collections_skip_what_the_start_has_left(tmp_path: Path) -> None:
    with process(tmp_path, script=FROZEN) as live:
        assert live.stop() == 0
    assert int(live.log.read_text().split("frozen:")[1]) > 10_000


FEW_FILES = """
import resource
from petstore import cli
resource.setrlimit(resource.RLIMIT_NOFILE, (70, 70))
cli.main()
"""


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_beyond_the_limit_of_open_files_connections_are_closed_at_once(
    tmp_path: Path, workers: str
) -> None:
    """The log has one line of each worker when it is reached, and one when it is not any more.

    Clients do not take the last ones: a key that was removed stayed valid, as its file could not be
    read, and the storage could not be reached again.
    """
    keys, count = tmp_path / "keys", int(workers)
    keys.write_text(new_key("shop")[1])
    settings = {"workers": workers, "api_keys_file": str(keys)}
    with process(tmp_path, script=FEW_FILES, log="off", **settings) as live:

        def connect() -> socket.socket:
            connection = socket.create_connection((live.host, live.port), timeout=HANG_SECONDS)
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            return connection

        def logged(text: str) -> int:
            return live.log.read_text().count(text)

        for lines in (count, 2 * count):
            with ExitStack() as stack:
                for _ in range(70 * count):
                    stack.enter_context(connect())
                until(lambda: logged("out of file descriptors") == lines)  # noqa: B023 - called at once
                keys.write_text(new_key("shop")[1])
                until(lambda: logged("reloaded the key file") == lines)  # noqa: B023 - likewise
                for _ in range(20):
                    with connect() as refused, suppress(ConnectionResetError):
                        assert refused.recv(100) == b""
            until(lambda: httpx.get(f"{live.url}/livez", timeout=HANG_SECONDS).is_success)
            until(lambda: logged("available again") == lines)  # noqa: B023 - likewise
        assert live.stop() == 0
    assert logged("out of file descriptors") == 2 * count
    assert "Traceback" not in live.log.read_text()


@pytest.mark.parametrize(
    ("workers", "mark"), [("1", ""), ("1", "@"), pytest.param("2", "", marks=pytest.mark.slow)]
)
def test_a_manager_is_told_once_the_port_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str, mark: str
) -> None:
    name = f"{mark}{tmp_path}/notify"
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    listen = f"127.0.0.1:{free_port()}"
    settings = {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets", "workers": workers}
    settings |= {"api_keys": KEY, "listen": listen}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(HANG_SECONDS)
        with running(tmp_path, "serve", **settings):
            assert manager.recv(100) == b"READY=1"
            assert httpx.get(f"http://{listen}/readyz").status_code == 200
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                manager.recv(100)


@pytest.mark.parametrize("name", ["", "/nowhere", "@nobody", "/", "x" * 200, "vsock:2:1"])
def test_a_manager_that_cannot_be_told_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    serve.notify_manager()


def test_a_manager_that_reads_nothing_does_not_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{tmp_path}/notify"
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    monkeypatch.setattr(serve, "NOTIFY_SECONDS", 0.01)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
    ):
        manager.bind(name)
        other.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                other.sendto(b"", name)
        serve.notify_manager()
