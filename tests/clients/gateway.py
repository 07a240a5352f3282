"""A gateway in front of a running service, whose own errors are not the service's."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tests.support.services import Live

FAULTS: Final = {
    "502": "502 Bad Gateway\r\nContent-Length: 0",
    "503": "503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "504": "504 Gateway Timeout\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "429": "429 Too Many Requests\r\nContent-Length: 0\r\nRetry-After: DATE",
    "cut": '201 Created\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"id": 1',
}
"""What clients get instead of the service's response. DATE is in one to two seconds."""


class Gateway(ThreadingHTTPServer):
    """Forwards requests; clients lose the first response of each operation.

    lost -- the operations whose response was lost
    early -- the operations that were repeated before the date in `Retry-After`
    """

    def __init__(self, live: Live) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.live = live
        self.url = f"http://127.0.0.1:{self.server_port}"

    def lose(self, fault: str) -> None:
        """From now on, clients get this fault instead of a response."""
        self._fault, self._date = FAULTS[fault], 0
        self.lost, self.early = set[str](), set[str]()

    def respond(self, operation: str, served: str) -> str:
        """Return what a client gets when the service has responded to its request."""
        if time.time() < self._date:
            self.early.add(operation)
        if operation in self.lost:
            return served
        self.lost.add(operation)
        if "DATE" in self._fault:
            self._date = int(time.time()) + 2
        return self._fault.replace("DATE", formatdate(self._date, usegmt=True))


class _Connection(BaseHTTPRequestHandler):
    """Serves one request, and closes the connection."""

    server: Gateway

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        response = self.server.live.client.request(
            self.command, self.path, content=content, headers=dict(self.headers)
        )
        headers = "\r\n".join(f"{name}: {value}" for name, value in response.headers.items())
        served = f"{response.status_code} -\r\n{headers}\r\n\r\n{response.text}"
        operation = f"{self.command} {self.path.partition('?')[0]}"
        head, _, body = self.server.respond(operation, served).partition("\r\n\r\n")
        self.wfile.write(f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n{body}".encode())

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


@contextmanager
def gateway(live: Live) -> Iterator[Gateway]:
    """Run a gateway in front of a service until the block is left."""
    with Gateway(live) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()
