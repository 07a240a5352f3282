"""A connection without a socket: the cost of the server itself, for `benchmarks.stages`."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from benchmarks.subjects import KEY

BODY = b'{"id":1,"name":"pet00000","categoryId":0,"status":"available"}'
GET = f"GET /v1/pets/{{}} HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nAuthorization: Bearer {KEY}\r\n\r\n"


class Transport(asyncio.Transport):
    """Takes what a protocol writes and keeps the last chunk."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 50_000)})
        self.written = b""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: nothing is buffered."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the chunk."""
        self.written = bytes(data)

    def is_closing(self) -> bool:
        """Stay open."""
        return False

    def close(self) -> None:
        """Stay open."""

    def pause_reading(self) -> None:
        """Read nothing anyway."""

    def resume_reading(self) -> None:
        """Read nothing anyway."""


async def constant(_: Any, __: Any, send: Any) -> None:
    """Send a constant response: the rest of the cost is the server's."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def served(app: Any, kind: Callable[..., Any], ids: list[int]) -> Callable[[], Awaitable[object]]:
    """Return a call that sends a GET through a connection of this kind and an application.

    The application must respond without waiting for anything.

    ids -- each call asks for the next one
    """
    requests = itertools.cycle([GET.format(id_).encode() for id_ in ids])
    config = uvicorn.Config(app, log_config=None, access_log=False, proxy_headers=False)
    transport = Transport()
    config.load()
    protocol = kind(config, ServerState(), {})
    protocol.connection_made(transport)

    async def call() -> None:
        transport.written = b""
        protocol.data_received(next(requests))
        await asyncio.sleep(0)  # the task of the request runs first
        if not transport.written:
            raise AssertionError("there was no immediate response")

    return call
