"""How long each proxy of docker/README.md uses an idle connection to the service."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import httpx
import pytest

from petstore.config.settings import Settings
from tests.clients.proxies import DOCKER, PROXIES, in_front

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

BEFORE = Settings().keep_alive_seconds - 5
"""A pause after which no proxy may use a connection: the service is about to close it."""

FIGURES = {
    "nginx": (60, "| nginx with `keepalive`, as in nginx.conf | 60 s |"),
    "HAProxy": (5, "| HAProxy | 5 s;"),
    "Varnish": (60, "| Varnish | 60 s |"),
    "Caddy": (60, "| `keepalive 60s`, as above |"),
    "Apache httpd": (None, "| Apache httpd | never | `ttl=60`"),
}
"""After how many seconds each closes an idle connection, and what the page says."""


class Backend(ThreadingTCPServer):
    """Responds to every request.

    used -- the connection of each request, by its client's port
    idle -- for how long each connection was idle when its client closed it
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.used: list[int] = []
        self.idle: dict[int, float] = {}


class Connection(StreamRequestHandler):
    """A connection to the backend."""

    server: Backend

    def handle(self) -> None:
        """Respond until the client closes the connection."""
        port = self.client_address[1]
        begin = time.monotonic()
        with suppress(ConnectionResetError):
            while line := self.rfile.readline():
                if line == b"\r\n":
                    self.server.used.append(port)
                    begin = time.monotonic()
                    response = (
                        b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n"
                    )
                    self.wfile.write(response)
        self.server.idle[port] = time.monotonic() - begin


@contextmanager
def serving() -> Iterator[Backend]:
    """Run a backend until the block is left."""
    with Backend() as backend:
        Thread(target=backend.serve_forever, daemon=True).start()
        yield backend
        backend.shutdown()


def measured(name: str, directory: Path) -> float | None:
    """Return after how many seconds a proxy closes a connection; check that it is not used late."""
    directory.mkdir()
    with (
        serving() as backend,
        in_front(PROXIES[name], backend.server_address[1], directory) as url,
    ):
        httpx.get(f"{url}/v1/pets")
        first = backend.used[-1]
        time.sleep(BEFORE)
        idle = backend.idle.get(first)
        httpx.get(f"{url}/v1/pets")
        assert backend.used[-1] != first, name
        return idle


def test_each_proxy_gives_up_an_idle_connection_after_what_the_page_says(tmp_path: Path) -> None:
    page = (DOCKER / "README.md").read_text()
    directories = [tmp_path / name.split()[0] for name in FIGURES]
    with ThreadPoolExecutor(len(FIGURES)) as pool:
        found = dict(zip(FIGURES, pool.map(measured, FIGURES, directories), strict=True))
    for name, (seconds, text) in FIGURES.items():
        assert text in page, name
        assert found[name] == (seconds and pytest.approx(seconds, abs=2)), (name, found)
