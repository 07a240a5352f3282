"""HTTP clients of many languages, in world/: programs that make the requests they are told."""

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Final

from httpx import Headers, Response

from tests.clients.page import CLIENTS as PAGE
from tests.clients.proxies import LOCK, Front
from tests.support.environments import captured, missing, node_modules, programs
from tests.support.services import KEY, environment
from tests.support.waiting import HANG_SECONDS

WORLD: Final = Path(__file__).parent / "world"
CLIENTS: Final = {
    "curl": ("bash curl.sh", "curl --version"),
    "requests": ("python requests_session.py", "pip show requests"),
    "httpx": ("python httpx_client.py", "pip show httpx"),
    "aiohttp": ("python aiohttp_session.py", "pip show aiohttp"),
    "Node.js fetch": ("node fetch.mjs", "node --version"),
    "axios": ("node axios.mjs", "grep version ../node_modules/axios/package.json"),
    "Go net/http": ("go run net_http.go", "go version"),
    "Java HttpClient": ("bash java.sh", "java --version"),
    "Ruby Net::HTTP": ("ruby net_http.rb", "ruby --version"),
}
"""What runs each client, and what prints its version.

A client uses its library as that library's users do, with the defaults. It reads requests from
standard input: how often, whether at once, time limit in seconds, method, URL, body, headers,
separated by tabs. It writes status, body and headers of each response, or 0 and the error's name.
"""

TRUSTED: Final = ("CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""The variables that tell clients the file of a certificate."""

Ask = Callable[..., list[Response]]
"""Has a client make a request, perhaps several times; the status code of what it raises is 0."""

WRITTEN: Final = os.environ.get("PETSTORE_WORLD")
"""The page whose table is written from what the tests of this process find."""

LOSSES: Final = ("restart", "GET", "POST", "POST with a key")
"""The columns of the table that say what a client does when a response is lost."""

found: Final[dict[tuple[str, str], str]] = {}
"""What the table of docs/clients.md says about a client, by client and column."""


def table(page: str) -> dict[str, dict[str, str]]:
    """Return the cells of the table of a page, by client and column."""
    lines = re.findall(r"^\| (.*) \|$", page, re.MULTILINE)
    head, _, _, *rows = (line.split(" | ") for line in lines)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def note(client: str, column: str, cell: str) -> None:
    """Note a cell of the table; the page has the same, unless it is written now."""
    found[client, column] = cell
    assert WRITTEN or table(PAGE)[client][column] == cell


@cache
def client_environment() -> dict[str, str]:
    """Install the packages of the clients; return the environment that they run in."""
    node_modules(WORLD)
    python = programs("clients", LOCK)
    return environment() | {"PATH": f"{python}:{os.environ['PATH']}"}


@cache
def version(command: str) -> str:
    """Return the version that a command prints, or skip the test if it fails."""
    done = captured(["bash", "-c", command], cwd=WORLD / "clients", env=client_environment())
    printed = done.stdout + done.stderr
    found = re.search(r"\d+(\.\d+)+", printed)
    if done.returncode or not found:
        missing(f"{command}: {printed}")
    return found[0]


@contextmanager
def running(client: str, front: Front, log: Path) -> Iterator[Ask]:
    """Run a client of a service until the block is left."""
    command, versioned = CLIENTS[client]
    version(versioned)
    trusted = dict.fromkeys(TRUSTED, f"{front.certificate}") if front.certificate else {}

    def ask(
        method: str,
        target: str,
        body: object = None,
        *more: str,
        count: int = 1,
        parallel: bool = False,
        seconds: float = HANG_SECONDS,
        key: str = KEY,
        retry: str = "",
        media: str = "application/json",
    ) -> list[Response]:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":")) if body else ""
        headers = [f"Authorization: Bearer {key}"] if key else []
        headers += [f"Content-Type: {media}"] if body else []
        headers += [f"Idempotency-Key: {retry}"] if retry else []
        how = (f"{count}", "parallel" if parallel else "", f"{seconds}")
        stdin.write("\t".join([*how, method, front.url + target, text, *headers, *more]) + "\n")
        stdin.flush()
        return [response(stdout.readline()) for _ in range(count)]

    def response(line: str) -> Response:
        assert line, log.read_text()
        status, body, *headers = line.rstrip("\n").split("\t")
        pairs = [(name, value) for name, _, value in (field.partition(": ") for field in headers)]
        got = Response(int(status), content=body.encode())
        # Not before: httpx would decode what the client has decoded already.
        got.headers = Headers(pairs)
        return got

    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            shlex.split(command),
            cwd=WORLD / "clients",
            env=client_environment() | trusted,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            encoding="utf-8",
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout
        hang = Timer(2 * HANG_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        hang.start()
        try:
            yield ask
        finally:
            hang.cancel()
