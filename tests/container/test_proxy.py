"""nginx.conf in a real nginx, in front of a real service."""

import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.container.engine import DOCKER, missing, program, run
from tests.live import KEY, Live

PET = {"name": "Rex", "categoryId": 7, "status": "available"}
JSON = {"Content-Type": "application/json"}
CONFIGURATION = (DOCKER / "nginx.conf").read_text()
README = (DOCKER / "README.md").read_text()
PREFIX = re.findall(r"^```nginx\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

MAIN = """
user root;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{
{server}
}}
"""

Start = Callable[..., Live]


class Proxy:
    """A running nginx: a client with a valid key, where it listens, and its log of requests."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.tls = ssl.create_default_context(cafile=directory / "petstore.crt")
        self.client = httpx.Client(
            base_url=f"https://localhost:{port}",
            headers={"Authorization": f"Bearer {KEY}"},
            verify=self.tls,
        )

    def connect(self) -> ssl.SSLSocket:
        """Open a connection."""
        plain = socket.create_connection(("localhost", self.port), timeout=20)
        return self.tls.wrap_socket(plain, server_hostname="localhost")

    def answers(self) -> bool:
        """Connect and leave again; fail while nobody listens."""
        self.connect().close()
        return True

    def log(self) -> str:
        """Return the log of requests."""
        return (self.directory / "petstore.log").read_text()


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        number: int = sock.getsockname()[1]
        return number


@contextmanager
def proxy(directory: Path, service: Live, configuration: str = CONFIGURATION) -> Iterator[Proxy]:
    """Run nginx in front of a service: as configured, but for names, places and ports."""
    if os.geteuid() != 0:
        missing("nginx has its folders where only root may write")
    certificate = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj"
    key, crt = directory / "petstore.key", directory / "petstore.crt"
    names = ("/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    run("openssl", *certificate.split(), *names, "-keyout", key, "-out", crt)
    port = free_port()
    for old, new in (
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("  listen [::]:443 ssl;\n", ""),
        ("127.0.0.1:8000", f"{service.host}:{service.port}"),
        ("/etc/nginx/", f"{directory}/"),
        ("/var/log/nginx/", f"{directory}/"),
    ):
        assert old in configuration
        configuration = configuration.replace(old, new)
    file = directory / "nginx.conf"
    file.write_text(MAIN.format(directory=directory, server=configuration))
    tested = run("nginx", "-t", "-c", file)
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr
    process = subprocess.Popen([program("nginx"), "-c", file], stderr=subprocess.DEVNULL)
    try:
        running = Proxy(directory, port)
        until(running.answers)
        yield running
        running.client.close()
    finally:
        process.terminate()
        process.wait(20)


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true and does not fail."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if true():
                return
        except OSError:
            pass
        time.sleep(0.05)
    pytest.fail("it did not come about")


def test_a_request_goes_through(tmp_path: Path, start: Start) -> None:
    with proxy(tmp_path, start()) as running:
        answer = running.client.post("/v1/pets", json=PET, headers={"X-Request-Id": "mine-1"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (201, "mine-1")
        assert "max-age" in answer.headers["strict-transport-security"]
        made = running.client.get(answer.headers["location"]).headers["x-request-id"]
        until(lambda: "mine-1" in running.log() and made in running.log())
        for path in ("/v1/pets%2F1", "//v1/pets", "/v1/./pets"):  # as the service alone
            with running.connect() as raw:
                raw.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                assert b" 404 " in raw.recv(1000).partition(b"\r\n")[0], path


def test_what_nginx_refuses_looks_like_what_the_service_does(tmp_path: Path, start: Start) -> None:
    live = start(drain_seconds="0")
    with proxy(tmp_path, live) as running:
        for size in (100_000, 2_000_000):  # over the limit of the service, and that of nginx
            large = running.client.post("/v1/pets", content=b" " * size, headers=JSON)
            assert (large.status_code, large.json()["code"]) == (413, "payload_too_large")
        with ExitStack() as stack:
            head = f"POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            for _ in range(50):
                connection = stack.enter_context(running.connect())
                connection.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
            until(lambda: running.client.get("/v1/pets").status_code == 429)
            many = running.client.get("/v1/pets")
            assert (many.json()["code"], many.headers["retry-after"]) == ("rate_limited", "1")
        until(lambda: running.client.get("/v1/pets").status_code == 200)
        live.stop()
        gone = running.client.get("/v1/pets")
        assert (gone.status_code, gone.json()["code"]) == (503, "unavailable")
        assert gone.headers["retry-after"] == "1"


def test_a_prefix_is_stripped_and_nothing_else_is_changed(tmp_path: Path, start: Start) -> None:
    path, place = PREFIX
    configuration = CONFIGURATION.replace("location / {", place.split("\n")[0])
    configuration = configuration.replace("proxy_pass http://petstore;", place.split("\n")[1])
    with proxy(tmp_path, start(root_path="/shop"), path + configuration) as running:
        answer = running.client.post("/shop/v1/pets", json=PET)
        assert answer.headers["location"] == "/shop/v1/pets/1"
        assert running.client.get(answer.headers["location"]).json() == answer.json()
        assert running.client.get("/shop/v1/pets%2F1").json()["code"] == "not_found"
        assert running.client.get("/shop/v1/pets?limit=1&status=sold").json() == []
        assert running.client.get("/v1/pets").status_code == 404
