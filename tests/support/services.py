"""Running services, for the tests: real processes, and services in a thread of this one."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from msgspec import Struct

from petstore.config import discovery
from petstore.config.keys import Keys
from petstore.config.settings import Settings
from petstore.http import app
from petstore.http.state import ServiceState
from petstore.server.process import bind, make_server
from tests.support import redis_servers
from tests.support.waiting import until

KEY = "test-key-one-of-two"
OTHER_KEY = "test-key-two-of-two"
START_SECONDS = 20
BACKEND = os.environ.get("PETSTORE_TEST_BACKEND", "memory")
"""The backend of services if a test does not choose one."""

CONSECUTIVE_IDS = BACKEND != "redis" or redis_servers.TOPOLOGY != "cluster"
"""Whether a new store assigns the ids 1, 2, 3: the partitions of a cluster take turns."""


class Live:
    """A running service: its address, a client with a valid key, and its process.

    state -- the state of the service, if it runs in a thread
    """

    state: ServiceState

    def __init__(
        self, host: str, port: int, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.url = f"http://{host}:{port}"
        self.key = KEY
        self.process = process
        self.client = self.new_client()

    def new_client(self, key: str = KEY) -> httpx.Client:
        """Return a client with its own connections."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=10)

    def anonymous(self) -> httpx.Client:
        """Return a client without a key."""
        return httpx.Client(base_url=self.url, timeout=10)

    def raw(self, data: bytes, *, half_close: bool = False, seconds: float = 10) -> bytes:
        """Send bytes over a new connection; return everything received until it is closed."""
        with socket.create_connection((self.host, self.port), timeout=seconds) as connection:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return receive_all(connection)

    def stop(self, signal_: int = signal.SIGTERM) -> int:
        """Send a signal to the process; return its exit status."""
        assert self.process is not None
        self.process.send_signal(signal_)
        return self.process.wait(30)

    def kill(self) -> None:
        """Kill the process and its workers with SIGKILL."""
        assert self.process is not None
        workers = self.workers()
        self.process.kill()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        self.process.wait()

    def resident(self) -> int:
        """Return the resident memory of the process in bytes."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def workers(self) -> list[int]:
        """Return the ids of the worker processes that are alive."""
        assert self.process is not None
        return [
            child
            for child in children(self.process.pid)
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
        ]


Start = Callable[..., Live]
"""Starts a service with flags and settings, as the fixture `start` does."""


def receive_all(connection: socket.socket) -> bytes:
    """Return everything received until the connection is closed."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def children(parent: int) -> list[int]:
    """Return the ids of the running child processes of a process."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            state, parent_id, *_ = (directory / "stat").read_text().rpartition(")")[2].split()
            if parent_id == str(parent) and state != "Z":
                found.append(int(directory.name))
    return found


def alive(process_id: int) -> bool:
    """Return whether a process is running."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def place(backend: str, directory: str | Path) -> dict[str, str]:
    """Return the settings that give a backend an empty place in a directory."""
    if backend == "redis":
        return redis_servers.fresh_place()
    return {"sqlite": {"sqlite_path": f"{directory}/pets.sqlite"}}.get(backend, {})


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with these settings instead of its own."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PETSTORE_")}
    return clean | {f"PETSTORE_{name.upper()}": text for name, text in settings.items()}


@contextmanager
def process(directory: Path, *flags: str, script: str = "", **settings: str) -> Iterator[Live]:
    """Run `petstore serve` until the block is left; its log is directory/serve.log.

    script -- Python to run instead, which may change something before it calls `cli.main`
    """
    settings = {
        "backend": "memory",
        "api_keys": f"{KEY},{OTHER_KEY}",
        "listen": "127.0.0.1:0",
    } | settings
    log = directory / "serve.log"
    with log.open("wb") as stderr:
        popen = subprocess.Popen(
            [sys.executable, *(("-c", script) if script else ("-m", "petstore")), "serve", *flags],
            env=environment(**settings),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )

    def started() -> re.Match[str] | None:
        match = re.search(r"serving on http://([^\s:]+|\[[^\]]+\]):(\d+)", log.read_text())
        assert match or popen.poll() is None, log.read_text()
        return match

    try:
        match = until(started, START_SECONDS, log.read_text)
        live = Live(match[1], int(match[2]), popen)
        yield live
        live.client.close()
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()


@contextmanager
def in_thread(
    settings: Settings | None = None,
    plugin: discovery.Plugin | None = None,
    backend: str = BACKEND,
    storage: Struct | None = None,
) -> Iterator[Live]:
    """Run a service in a thread: on an empty place of a backend, or on the plugin's repository."""
    settings = settings or Settings(drain_seconds=0)
    plugin = plugin or discovery.find(backend)
    with tempfile.TemporaryDirectory() as directory:
        values = environment(**place(plugin.name, directory))
        storage = storage or discovery.configure(plugin, values)
        application = app.create_app(settings, plugin, storage, Keys([KEY, OTHER_KEY]))
        with _served(application, settings) as live:
            yield live


@contextmanager
def _served(application: app.Application, settings: Settings) -> Iterator[Live]:
    sock = bind(Settings(listen="127.0.0.1:0"))
    ready = threading.Event()
    running = make_server(application, settings, ready.set)
    thread = threading.Thread(target=running.run, args=([sock],))
    thread.start()
    assert ready.wait(START_SECONDS)
    live = Live(*sock.getsockname())
    live.state = application.state
    try:
        yield live
    finally:
        live.client.close()
        running.should_exit = True
        thread.join()
