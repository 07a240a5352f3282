"""A server that decides what each request gets."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPMessage, parse_headers
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import NamedTuple

from tests.support.services import Live
from tests.support.serving import serving


class Request(NamedTuple):
    """A request, and the port from which its connection comes."""

    port: int
    method: str
    target: str
    headers: HTTPMessage
    body: bytes

    def forward(self, live: Live) -> bytes:
        """Make the request to a service; return its response as bytes."""
        response = live.client.request(
            self.method, self.target, content=self.body, headers=dict(self.headers)
        )
        headers = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        return f"HTTP/1.1 {response.status_code} -\r\n{headers}\r\n{response.text}".encode()


class Relay(ThreadingTCPServer):
    """Sends what a function returns for a request; closes the connection after CLOSE, or nothing.

    idle -- by its port, for how long a connection had been idle when its client closed it
    """

    daemon_threads, block_on_close = True, False

    def __init__(self, respond: Callable[[Request], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.respond = respond
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.idle: dict[int, float] = {}


CLOSE = "\r\nConnection: close"


class _Connection(StreamRequestHandler):
    server: Relay

    def handle(self) -> None:
        port = self.client_address[1]
        begin = time.monotonic()
        with suppress(ConnectionError):
            while line := self.rfile.readline().decode():
                method, target, _ = line.split()
                headers = parse_headers(self.rfile)
                body = self.rfile.read(int(headers.get("Content-Length", 0)))
                response = self.server.respond(Request(port, method, target, headers, body))
                self.wfile.write(response)
                if not response or CLOSE.encode() in response:
                    return
                begin = time.monotonic()
        self.server.idle[port] = time.monotonic() - begin


@contextmanager
def relaying(respond: Callable[[Request], bytes]) -> Iterator[Relay]:
    """Run a relay until the block is left."""
    with serving(relay := Relay(respond)):
        yield relay
