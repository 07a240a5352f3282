"""Running services, for the tests: real processes, and services in a thread of this one."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from msgspec import Struct

from petstore import app, backends, server
from petstore.auth import Keys
from petstore.service import Service
from petstore.settings import Settings
from tests import deployments

KEY = "test-key"
OTHER_KEY = "other-test-key"
START_SECONDS = 20
BACKEND = os.environ.get("PETSTORE_TEST_BACKEND", "memory")
"""What services run on where a test does not choose."""


class Live:
    """A running service: where it listens, a client with a valid key, and its process.

    service -- its insides, if it runs in a thread
    """

    service: Service

    def __init__(
        self, host: str, port: int, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.url = f"http://{host}:{port}"
        self.key = KEY
        self.process = process
        self.client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=10
        )

    def anonymous(self) -> httpx.Client:
        """Return a client without a key."""
        return httpx.Client(base_url=self.url, timeout=10)

    def raw(self, data: bytes, *, half_close: bool = False, seconds: float = 10) -> bytes:
        """Send bytes over a connection of their own; return all that comes until it is closed."""
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

    def workers(self) -> list[int]:
        """Return the ids of the worker processes that are alive."""
        assert self.process is not None
        return [
            child
            for child in children(self.process.pid)
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
        ]


def receive_all(connection: socket.socket) -> bytes:
    """Return all that comes until the connection is closed."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def children(parent: int) -> list[int]:
    """Return the ids of the processes that a process has started and that have not ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            state, number, *_ = (place / "stat").read_text().rpartition(")")[2].split()
            if number == str(parent) and state != "Z":
                found.append(int(place.name))
    return found


def alive(number: int) -> bool:
    """Return whether a process has not ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def place(backend: str, directory: str | Path) -> dict[str, str]:
    """Return the settings that give a backend an empty place in a directory."""
    if backend == "redis":
        return deployments.fresh_place()
    return {"sqlite": {"sqlite_path": f"{directory}/pets.sqlite"}}.get(backend, {})


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a process: this one's without settings, and these."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PETSTORE_")}
    return clean | {f"PETSTORE_{name.upper()}": text for name, text in settings.items()}


@contextmanager
def process(directory: Path, *flags: str, **settings: str) -> Iterator[Live]:
    """Run `petstore serve` until the block is left; its log is directory/serve.log."""
    settings = {
        "backend": "memory",
        "api_keys": f"{KEY},{OTHER_KEY}",
        "listen": "127.0.0.1:0",
    } | settings
    log = directory / "serve.log"
    with log.open("wb") as stderr:
        popen = subprocess.Popen(
            [sys.executable, "-m", "petstore", "serve", *flags],
            env=environment(**settings),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        end = time.monotonic() + START_SECONDS
        while (
            match := re.search(r"serving on http://([^\s:]+|\[[^\]]+\]):(\d+)", log.read_text())
        ) is None:
            assert popen.poll() is None, log.read_text()
            assert time.monotonic() < end, f"no start within {START_SECONDS} s: {log.read_text()}"
            time.sleep(0.02)
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
    plugin: backends.Plugin | None = None,
    backend: str = BACKEND,
    storage: Struct | None = None,
) -> Iterator[Live]:
    """Run a service in a thread: on an empty place of a backend, or on what `plugin` opens."""
    settings = settings or Settings(drain_seconds=0)
    plugin = plugin or backends.find(backend)
    with tempfile.TemporaryDirectory() as directory:
        values = environment(**place(plugin.name, directory))
        storage = storage or backends.configure(plugin, values)
        application = app.create_app(settings, plugin, storage, Keys([KEY, OTHER_KEY]))
        with _served(application, settings) as live:
            yield live


@contextmanager
def _served(application: app.App, settings: Settings) -> Iterator[Live]:
    sock = server.bind(Settings(listen="127.0.0.1:0"))
    ready = threading.Event()
    running = server.make(application, settings, ready.set)
    thread = threading.Thread(target=running.run, args=([sock],))
    thread.start()
    assert ready.wait(START_SECONDS)
    live = Live(*sock.getsockname())
    live.service = application.service
    try:
        yield live
    finally:
        live.client.close()
        running.should_exit = True
        thread.join()


def key_line(name: str, key: str) -> str:
    """Return a key's line for the key file."""
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}"
