"""Running services, for the tests: real processes, and services in a thread of this one."""

import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from msgspec import Struct
from petstore_conformance.faults import services
from petstore_conformance.faults.services import SERVICE_KEY, RunningService

from petstore.config import discovery
from petstore.config.addresses import Address
from petstore.config.keys import Keys
from petstore.config.loading import Configuration
from petstore.config.settings import Settings
from petstore.http import app
from petstore.http.request import ServiceState
from petstore.server.listener import Turns
from petstore.server.process import Server
from petstore.server.sockets import bind
from tests.support import postgres_servers, redis_servers
from tests.support.waiting import HANG_SECONDS

KEY = SERVICE_KEY
OTHER_KEY = "test-key-two-of-two"
BACKEND = os.environ.get("PETSTORE_TEST_BACKEND", "memory")
"""The backend of services if a test does not choose one."""

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: without it each would read all certificate authorities, in 30 ms."""

ONE_OR_TWO_WORKERS = ["1", pytest.param("2", marks=pytest.mark.slow)]
"""Values of a parameter `workers`: each worker that is started takes a second."""

CONSECUTIVE_IDS = BACKEND != "redis" or redis_servers.TOPOLOGY != "cluster"
"""Whether a new store assigns the ids 1, 2, 3: the partitions of a cluster take turns."""


class Live(RunningService):
    """A running service: its address, a client with a valid key, and its process.

    state -- the state of the service, if it runs in a thread
    log -- the file that its log is written to, if it is a process
    """

    state: ServiceState
    log: Path

    def __init__(
        self, host: str, port: int, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        super().__init__(host, port, process)
        self.url = f"http://{host}:{port}"
        self.key = KEY
        self.client = self.new_client()

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        """The process, of a service that has one of its own."""
        assert self.process is not None
        return self.process

    def new_client(self, key: str = KEY) -> httpx.Client:
        """Return a client with its own connections."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=HANG_SECONDS, verify=NO_TLS)

    def anonymous(self) -> httpx.Client:
        """Return a client without a key."""
        return httpx.Client(base_url=self.url, timeout=HANG_SECONDS, verify=NO_TLS)

    def raw(self, data: bytes, *, half_close: bool = False) -> bytes:
        """Send bytes over a new connection; return everything received until it is closed."""
        with socket.create_connection((self.host, self.port), HANG_SECONDS) as connection:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return receive_all(connection)

    def stop(self, signal_: int = signal.SIGTERM) -> int:
        """Send a signal to the process; return its exit status."""
        self.popen.send_signal(signal_)
        return self.popen.wait(HANG_SECONDS)

    def resident(self) -> int:
        """Return the resident memory of the process in bytes."""
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


def unix_client(path: str | Path, key: str = KEY) -> httpx.Client:
    """Return a client of a service that listens on a Unix socket."""
    transport = httpx.HTTPTransport(uds=str(path))
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(
        transport=transport, base_url="http://localhost", headers=headers, timeout=HANG_SECONDS
    )


Start = Callable[..., Live]
"""Starts a service with flags and settings, as the fixture `start` does."""


def receive_all(connection: socket.socket) -> bytes:
    """Return everything received until the connection is closed."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def place(backend: str, directory: str | Path) -> dict[str, str]:
    """Return the settings that give a backend an empty place in a directory."""
    if backend == "redis":  # several tests at a time share one cluster: a call may take longer
        return {"redis_timeout_seconds": "5", **redis_servers.fresh_place()}
    if backend == "postgres":
        return postgres_servers.fresh_place()
    return {"sqlite": {"sqlite_path": f"{directory}/pets.sqlite"}}.get(backend, {})


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with these settings instead of its own."""
    return services.environment(settings)


@contextmanager
def process(directory: Path, *flags: str, script: str = "", **settings: str) -> Iterator[Live]:
    """Run `petstore serve` until the block is left; its log is `Live.log`, in the directory.

    Without a backend it runs on memory; if the settings say how many workers there are, on a file
    in the directory, which they can share.

    script -- Python to run instead, which may change something before it calls `cli.main`
    """
    if "backend" not in settings:
        backend = "sqlite" if "workers" in settings else "memory"
        settings = {"backend": backend, **place(backend, directory)} | settings
    settings = {"api_keys": f"{KEY},{OTHER_KEY}", "listen": "127.0.0.1:0"} | settings
    program = ("-c", script) if script else ("-m", "petstore")
    command = (*program, "serve", *flags)
    service = services.launch(directory / "serve.log", settings, HANG_SECONDS, command)
    assert service.process is not None
    try:
        live = Live(service.host, service.port, service.process)
        live.log = directory / "serve.log"
        with closing(live.client):  # a socket left open would fail a later test
            yield live
    finally:
        if service.process.poll() is None:
            service.process.kill()
        service.process.wait()


@contextmanager
def in_thread(
    settings: Settings | None = None,
    plugin: discovery.Plugin | None = None,
    backend: str = BACKEND,
    storage: Struct | None = None,
    *,
    turns: Turns | None = None,
) -> Iterator[Live]:
    """Run a service in a thread: on an empty place of a backend, or on the plugin's repository.

    turns -- what other workers would tell it
    """
    settings = settings or Settings(drain_seconds=0)
    plugin = plugin or discovery.find(backend)
    with tempfile.TemporaryDirectory() as directory:
        values = environment(**place(plugin.name, directory))
        storage = storage or discovery.configure(plugin, values)
        keys = Keys([KEY, OTHER_KEY])
        application = app.create_app(Configuration(settings, plugin, storage, keys))
        with _served(application, settings, turns) as live:
            yield live


@contextmanager
def _served(
    application: app.Application, settings: Settings, turns: Turns | None
) -> Iterator[Live]:
    ready = threading.Event()
    running = Server(application, settings, ready.set, turns=turns)
    with bind(Address.parse("127.0.0.1:0")) as sock:
        thread = threading.Thread(target=running.run, args=([sock],))
        thread.start()
        while thread.is_alive() and not ready.wait(0.1):
            pass
        assert ready.is_set(), "the service could not start"
        live = Live(*sock.getsockname())
        live.state = application.state
        try:
            yield live
        finally:
            live.client.close()
            running.should_exit = True
            thread.join()
