"""How long each proxy of docker/README.md uses an idle connection to the service."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx
import pytest

from petstore.config.settings import Settings
from tests.clients.proxies import DOCKER, PROXIES, in_front
from tests.clients.relay import Request, relaying

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

BEFORE = Settings().keep_alive_seconds - 5
"""A pause after which no proxy may use a connection: the service is about to close it."""

FIGURES = {
    "nginx": (60, "| nginx with `keepalive`, as in nginx.conf | 60 s |"),
    "HAProxy": (5, "| HAProxy | 5 s;"),
    "Varnish": (60, "| Varnish | 60 s |"),
    "Caddy": (60, "| `keepalive 60s`, as above |"),
    "Envoy": (60, "| Envoy, and gateways made of it | 1 h ¹ | `idle_timeout: 60s`, as above |"),
    "Squid": (60, "| Squid | 60 s | nothing |"),
    "lighttpd": (0, "| lighttpd | uses a connection once | nothing |"),
    "Apache httpd": (None, "| Apache httpd | never | `ttl=60`"),
}
"""After how many seconds each closes an idle connection, and what the page says."""


OK: Final = b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n"


def measured(name: str, directory: Path) -> float | None:
    """Return after how many seconds a proxy closes a connection; check that it is not used late."""
    directory.mkdir()
    used = list[int]()

    def respond(request: Request) -> bytes:
        used.append(request.port)
        return OK

    with relaying(respond) as relay, in_front(PROXIES[name], relay.port, directory) as front:
        httpx.get(f"{front.url}/v1/pets", verify=front.tls)
        first = used[-1]
        time.sleep(BEFORE)
        idle = relay.idle.get(first)
        httpx.get(f"{front.url}/v1/pets", verify=front.tls)
        assert used[-1] != first, name
        return idle


def test_each_proxy_gives_up_an_idle_connection_after_what_the_page_says(tmp_path: Path) -> None:
    page = (DOCKER / "README.md").read_text()
    directories = [tmp_path / name.split()[0] for name in FIGURES]
    with ThreadPoolExecutor(len(FIGURES)) as pool:
        found = dict(zip(FIGURES, pool.map(measured, FIGURES, directories), strict=True))
    for name, (seconds, text) in FIGURES.items():
        assert text in page, name
        assert found[name] == pytest.approx(seconds, abs=2), (name, found)
