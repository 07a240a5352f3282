"""A gateway in front of a running service, whose own errors are not the service's."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Final

from tests.clients.relay import CLOSE, Request, relaying
from tests.support.services import Live

FAULTS: Final = {
    "502": "502 Bad Gateway\r\nContent-Length: 0",
    "503": "503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "504": "504 Gateway Timeout\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "429": "429 Too Many Requests\r\nContent-Length: 0\r\nRetry-After: DATE",
    "cut": '201 Created\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"id": 1',
}
"""What clients get instead of the service's response. DATE is in one to two seconds."""


BLANK: Final = "\r\n\r\n"


class Gateway:
    """Forwards requests; clients lose one response of each operation.

    url -- where it is
    requests -- how many of each operation have come
    early -- the operations that were repeated before the date in `Retry-After`
    """

    url: str

    def __init__(self, live: Live) -> None:
        self.live = live
        self.lose("502")

    def lose(self, fault: str, after: int = 0, seconds: float = 0) -> None:
        """Begin anew: clients get a fault instead of the first response, or that after others.

        fault -- one of FAULTS; any other closes the connection, after so many seconds
        """
        self._fault, self._after, self._seconds, self._date = fault, after, seconds, 0
        self.requests, self.early = Counter[str](), set[str]()

    def respond(self, request: Request) -> bytes:
        """Return what a client gets for its request."""
        served = request.forward(self.live)
        operation = f"{request.method} {request.target.partition('?')[0]}"
        if time.time() < self._date:
            self.early.add(operation)
        self.requests[operation] += 1
        if self.requests[operation] != self._after + 1:
            return served
        if self._fault not in FAULTS:
            time.sleep(self._seconds)
            return b""
        fault = FAULTS[self._fault]
        if "DATE" in fault:
            self._date = int(time.time()) + 2
        head, _, body = fault.replace("DATE", formatdate(self._date, usegmt=True)).partition(BLANK)
        return f"HTTP/1.1 {head}{CLOSE}{BLANK}{body}".encode()


@contextmanager
def gateway(live: Live) -> Iterator[Gateway]:
    """Run a gateway in front of a service until the block is left."""
    running = Gateway(live)
    with relaying(running.respond) as relay:
        running.url = relay.url
        yield running
