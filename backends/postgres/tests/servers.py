"""Real PostgreSQL servers on free loopback ports, for the tests.

A server can be stopped, killed, frozen, and started again with its data.
"""

import asyncio
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import asyncpg
from petstore_conformance.harness.alarm import send

from backends.postgres.tests.binaries import NEW, USER, environment, own, reachable, run, template
from tests.support import waiting
from tests.support.ports import free_port
from tests.support.waiting import HANG_SECONDS, alive

START_SECONDS: Final = HANG_SECONDS
CONFIGURATION: Final = """
listen_addresses = '127.0.0.1'
max_connections = 60
shared_buffers = 32MB
dynamic_shared_memory_type = mmap  # nothing is left in /dev/shm by a server that is killed
huge_pages = off
max_wal_senders = 4
log_min_messages = warning
"""


def until(holds: Callable[[], object], seconds: float = START_SECONDS) -> None:
    """Wait until a condition holds without an error of PostgreSQL or of the network."""
    waiting.until(holds, seconds, errors=(asyncpg.PostgresError, OSError))


class Server:
    """One server process. Its data directory is a copy of one that `initdb` has made.

    lines -- more lines of its configuration, which win over those above
    primary -- the server whose standby it is
    """

    def __init__(
        self, directory: Path, binaries: Path, *lines: str, primary: "Server | None" = None
    ) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self.directory = directory
        self.binaries = reachable(binaries)
        self.data = directory / "data"
        self.process: subprocess.Popen[bytes] | None = None
        own(directory)
        places = f"port = {self.port}", f"unix_socket_directories = '{directory}'"
        self._lines = (*CONFIGURATION.splitlines(), *places, *lines)
        if primary:
            self.follow(primary)
        else:
            shutil.copytree(template(self.binaries), self.data)
            self.configure(*self._lines)

    def follow(self, primary: "Server") -> None:
        """Replace its data with a copy of another server's; it then starts as its standby."""
        assert self.process is None
        self._release()
        shutil.rmtree(self.data, ignore_errors=True)
        source = f"host={primary.host} port={primary.port} user=postgres"
        command = ("pg_basebackup", "-D", self.data, "-d", source, "-R", "--no-sync")
        run(self.binaries, self.directory, *command, "--checkpoint=fast")
        self.configure(*self._lines)

    def configure(self, *lines: str) -> None:
        """Add lines to the configuration, for the next start."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join([*lines, ""]))
        for path in (self.data, *self.data.rglob("*")):
            own(path)

    def start(self, *, wait: bool = True) -> Self:
        """Start it with the data in its directory; wait until it accepts connections."""
        assert self.process is None
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=environment(self.binaries),
                **USER,
            )
        if wait:
            until(self.ready)
        return self

    def ready(self) -> bool:
        """Return whether it accepts connections."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return bool(self.fetch("SELECT 1"))

    def until_listening(self) -> None:
        """Wait until it accepts connections of anybody, also if it refuses this user."""

        def listens() -> bool:
            with suppress(asyncpg.InvalidAuthorizationSpecificationError):
                return self.ready()
            return True

        until(listens)

    def url(self, **parameters: str) -> str:
        """Return its URL."""
        query = "&".join(f"{name}={text}" for name, text in parameters.items())
        return f"postgresql://postgres@{self.host}:{self.port}/postgres{'?' * bool(query)}{query}"

    def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """Return the rows of a statement, over a new connection."""
        return self.fetch_from(self.url(sslmode="disable"), sql, *arguments)

    @staticmethod
    def fetch_from(url: str, sql: str, *arguments: Any) -> list[Any]:
        """Return the rows of a statement, over a new connection to any server."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(url, timeout=5, statement_cache_size=0)
            try:
                return list(await connection.fetch(sql, *arguments, timeout=HANG_SECONDS))
            finally:
                connection.terminate()

        with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
            return thread.submit(lambda: asyncio.run(run())).result()

    def reload(self, **settings: str) -> None:
        """Change settings while it runs."""
        for setting, text in settings.items():
            self.fetch(f"ALTER SYSTEM SET {setting} = '{text}'")
        self.fetch("SELECT pg_reload_conf()")

    def log(self) -> str:
        """Return its log."""
        return (self.directory / "server.log").read_text()

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT disconnects clients, SIGQUIT does so without a checkpoint."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(START_SECONDS)
            self.process = None

    def kill(self) -> None:
        """Kill all its processes with SIGKILL; they may be frozen."""
        if self.process is not None:
            processes = self._freeze()
            for process in processes:
                send(process, signal.SIGKILL)
            self.process.wait()
            self.process = None
            until(lambda: not any(map(alive, processes)))

    def freeze(self) -> None:
        """Suspend all its processes; their connections stay open."""
        self._freeze()

    def resume(self) -> None:
        """Resume a frozen server."""
        assert self.process is not None
        for process in [self.process.pid, *_children(self.process.pid)]:
            send(process, signal.SIGCONT)

    def close(self) -> None:
        """Stop it, if it runs."""
        if self.process is not None:
            self.resume()
        self.stop(signal.SIGQUIT)
        self._release()

    def _release(self) -> None:
        """Release the shared memory of a server that was killed."""
        with suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            if len(lines) > 6:  # the key and the id of its segment
                subprocess.run(["ipcrm", "-m", lines[6].split()[1]], check=False)

    def _freeze(self) -> list[int]:
        """Suspend the server, which starts no more processes then; return all its processes."""
        assert self.process is not None
        send(self.process.pid, signal.SIGSTOP)
        children = _children(self.process.pid)
        for child in children:
            send(child, signal.SIGSTOP)
        return [self.process.pid, *children]


@contextmanager
def single(
    *lines: str, binaries: Path | None = None, start: bool = True, primary: Server | None = None
) -> Iterator[Server]:
    """Run one server until the block exits."""
    with tempfile.TemporaryDirectory(prefix="pg-") as directory:
        server = Server(Path(directory), binaries or NEW, *lines, primary=primary)
        try:
            yield server.start() if start else server
        finally:
            server.close()


def _children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(child) for child in text.split()]
