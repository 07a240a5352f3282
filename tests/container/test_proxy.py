"""nginx with docker/nginx.conf in front of a running service; and upgrades behind HAProxy, too."""

import os
import re
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.clients.proxies import DOCKER, PROXIES, Front, changed, in_front
from tests.support.command import running
from tests.support.documents import blocks
from tests.support.pets import AVAILABLE_REX
from tests.support.ports import free_port
from tests.support.raw_http import CLOSE, HOST, head, parse_responses
from tests.support.services import KEY, Live, Start, place, receive_all
from tests.support.waiting import HANG_SECONDS, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("container")]

JSON = {"Content-Type": "application/json"}
CONFIGURATION = (DOCKER / "nginx.conf").read_text()
README = (DOCKER / "README.md").read_text()
PREFIX_MAP, PREFIX_PASS, TWO_SERVERS = blocks(README, "nginx")
*_, HAPROXY_SERVERS = blocks(README, "haproxy")
RESTARTS = int(os.environ.get("PETSTORE_RESTARTS", "2"))


class Proxy:
    """A running proxy: its port, a client with a valid key, and nginx's access log."""

    def __init__(self, directory: Path, front: Front) -> None:
        self.directory = directory
        self.tls = front.tls
        headers = {"Authorization": f"Bearer {KEY}"}
        self.client = httpx.Client(base_url=front.url, headers=headers, verify=front.tls)
        self.port = self.client.base_url.port

    def connect(self) -> ssl.SSLSocket:
        """Open a connection."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=HANG_SECONDS)
        return self.tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def log(self) -> str:
        """Return the access log."""
        return (self.directory / "petstore.log").read_text()


@contextmanager
def proxy(
    directory: Path, service: Live, *changes: tuple[str, str], name: str = "nginx"
) -> Iterator[Proxy]:
    """Run a proxy in front of a service, with changes of its configuration."""
    chosen = PROXIES[name]
    chosen = chosen._replace(configuration=changed(chosen.configuration, *changes))
    with in_front(chosen, service.port, directory) as front:
        assert "[warn]" not in (directory / "log").read_text()
        running = Proxy(directory, front)
        with closing(running.client):
            yield running


def test_a_request_is_forwarded(tmp_path: Path, start: Start) -> None:
    with proxy(tmp_path, start()) as running:
        response = running.client.post(
            "/v1/pets", json=AVAILABLE_REX, headers={"X-Request-Id": "mine-1"}
        )
        assert (response.status_code, response.headers["x-request-id"]) == (201, "mine-1")
        assert "max-age" in response.headers["strict-transport-security"]
        refused = {"X-Request-Id": "not one"}
        found = running.client.get(response.headers["location"], headers=refused).headers
        generated = found["x-request-id"]
        assert " " not in generated
        until(lambda: "mine-1" in running.log() and generated in running.log())


def check_own(error: httpx.Response) -> None:
    """Check the headers of an error of nginx itself."""
    assert error.headers["x-request-id"]
    assert "max-age" in error.headers["strict-transport-security"]


def test_a_method_that_nginx_refuses_is_405_in_the_form_of_the_service(
    tmp_path: Path, start: Start
) -> None:
    live = start()
    with proxy(tmp_path, live) as running:
        error = running.client.request("TRACE", "/v1/pets")
        check_own(error)
        assert (error.status_code, error.json()["code"]) == (405, "method_not_allowed")
        methods = parse_responses(live.raw(head("OPTIONS *", HOST, CLOSE)))[0].headers["allow"]
        assert error.headers["allow"] == methods


def test_errors_of_nginx_look_like_those_of_the_service(tmp_path: Path, start: Start) -> None:
    live = start(drain_seconds="0")
    with proxy(tmp_path, live) as running:
        for size in (100_000, 2_000_000):  # above the limit of the service, and above that of nginx
            large = running.client.post("/v1/pets", content=b" " * size, headers=JSON)
            assert (large.status_code, large.json()["code"]) == (413, "payload_too_large")
        with ExitStack() as stack:
            head = f"POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            for _ in range(50):
                connection = stack.enter_context(running.connect())
                connection.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
            until(lambda: running.client.get("/v1/pets").status_code == 429)
            limited = running.client.get("/v1/pets")
            check_own(limited)
            assert (limited.json()["code"], limited.headers["retry-after"]) == ("rate_limited", "1")
        until(lambda: running.client.get("/v1/pets").status_code == 200)
        live.stop()
        stopped = running.client.get("/v1/pets")
        assert (stopped.status_code, stopped.json()["code"]) == (503, "unavailable")
        assert stopped.headers["retry-after"] == "1"
        check_own(stopped)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"get /livez HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/3.0\r\nHost: x\r\n\r\n", 400),
        (b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 9000), 400),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n" % (b"a" * 9000), 400),
        (b"POST /v1/pets HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"GET /nginx-error/400 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
    ],
)
def test_what_nginx_cannot_parse_looks_like_it_too(
    tmp_path: Path, start: Start, sent: bytes, status: int
) -> None:
    with proxy(tmp_path, start()) as running, running.connect() as raw:
        raw.sendall(sent)
        found = receive_all(raw)
    (error,) = parse_responses(found)
    assert error.status_code == status
    check_own(error)


def test_only_the_prefix_of_a_path_is_changed(tmp_path: Path, start: Start) -> None:
    first = "limit_conn_zone"
    changes = (first, PREFIX_MAP + first), ("    proxy_pass http://petstore;\n", PREFIX_PASS)
    with proxy(tmp_path, start(root_path="/shop"), *changes) as running:
        response = running.client.post("/shop/v1/pets", json=AVAILABLE_REX)
        assert response.headers["location"] == "/shop/v1/pets/1"
        assert running.client.get(response.headers["location"]).json() == response.json()
        assert running.client.get("/shop/v1/pets%2F1").json()["code"] == "not_found"
        assert running.client.get("/shop/v1/pets?limit=1&status=sold").json() == []
        for other in ("/", "/v1/pets", "/shop", "/shop?limit=1", "/%73hop/v1/pets", "//shop/"):
            error = running.client.get(f"https://127.0.0.1:{running.port}{other}")
            assert (error.status_code, error.json()["code"]) == (404, "not_found")


def test_the_unix_socket_of_the_comment_is_forwarded_to(tmp_path: Path) -> None:
    path = tmp_path / "http"
    port = "127.0.0.1:8000"
    assert f"  server {port}; # or, with PETSTORE_LISTEN=unix:/run/petstore/http:" in CONFIGURATION
    settings = {"backend": "memory", "api_keys": KEY, "listen": f"unix:{path}"}
    with (
        running(tmp_path, "serve", **settings),
        proxy(tmp_path, Live("localhost", 0), (f"server {port};", f"server unix:{path};")) as nginx,
    ):
        response = nginx.client.post("/v1/pets", json=AVAILABLE_REX)
        assert (response.status_code, response.headers["location"]) == (201, "/v1/pets/1")


@pytest.mark.parametrize(("name", "lines"), [("nginx", TWO_SERVERS), ("HAProxy", HAPROXY_SERVERS)])
def test_a_rolling_upgrade_of_two_servers_fails_no_request(
    tmp_path: Path, start: Start, name: str, lines: str
) -> None:
    def serve(port: int) -> Live:
        return start(listen=f"127.0.0.1:{port}", backend="sqlite", **place("sqlite", tmp_path))

    def add_pets() -> Counter[int]:
        statuses = Counter[int]()
        while not over.is_set():
            statuses[running.client.post("/v1/pets", json=AVAILABLE_REX).status_code] += 1
        return statuses

    servers = [serve(free_port()) for _ in range(2)]
    over = Event()
    (line,) = re.findall(r"^ +server [a-z ]*127.+\n", PROXIES[name].configuration, re.MULTILINE)
    both = lines.replace("127.0.0.1:8001", f"127.0.0.1:{servers[1].port}")
    with (
        proxy(tmp_path, servers[0], (line, both), name=name) as running,
        ThreadPoolExecutor(8) as pool,
    ):
        clients = [pool.submit(add_pets) for _ in range(8)]
        try:
            for number in [0, 1] * RESTARTS:
                assert servers[number].stop() == 0
                servers[number] = serve(servers[number].port)
        finally:
            over.set()
        responses = sum((client.result() for client in clients), Counter[int]())
    assert set(responses) == {201}, responses
    sys.stdout.write(f"{responses[201]} requests over {2 * RESTARTS} stops\n")
