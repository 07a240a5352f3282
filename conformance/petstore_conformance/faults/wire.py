"""Connections to a service that may be killed at any time, and come back at another address."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import msgspec

from petstore_conformance.faults.histories import RecordedResponse
from petstore_conformance.faults.services import SERVICE_KEY, RunningService
from petstore_conformance.harness.alarm import OverdueError, within


def set_event() -> asyncio.Event:
    """Return an event that is set."""
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Endpoint:
    """The service that clients connect to.

    live -- the service that runs now, or ran last
    up -- set while a service runs
    unavailable -- how many responses were 503
    lost -- how many requests were in flight when their connection broke
    limit_seconds -- how long a response may take
    late -- the requests that had none then; their connections were closed
    """

    live: RunningService
    limit_seconds: float = inf
    late: list[str] = field(default_factory=list)
    up: asyncio.Event = field(default_factory=set_event)
    unavailable: int = 0
    lost: int = 0


class ClientConnection:
    """A connection that is kept until it breaks."""

    def __init__(self, target: Endpoint) -> None:
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(
        self, method: str, path: str, body: object = None, key: str = "", *, abandon: bool = False
    ) -> RecordedResponse | None:
        """Send a request; return the response, or None if the outcome is unknown.

        abandon -- close the connection without reading the response
        """
        try:
            if self._streams is None:
                self._streams = await self._open()
            reader, writer = self._streams
            writer.write(_encode(method, path, body, key))
            if abandon:
                await asyncio.sleep(0)
                self.close()
                return None
            async with within(self._target.limit_seconds):
                return await self._read_response(reader)
        except (OSError, EOFError, OverdueError) as error:
            if isinstance(error, OverdueError):
                self._target.late.append(f"{method} {path}")
            self._target.lost += 1
            self.close()
            return None

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:  # connecting may be repeated: no request has been sent
            await self._target.up.wait()
            live = self._target.live
            with suppress(OSError):
                return await asyncio.open_connection(live.host, live.port)
            await asyncio.sleep(0.02)

    async def _read_response(self, reader: asyncio.StreamReader) -> RecordedResponse | None:
        """Return a response, or None for a 503."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        content = await reader.readexactly(int(header(head, "content-length")))
        if header(head, "connection") == "close":
            self.close()
        if head[9:12] == "503":
            assert int(header(head, "retry-after")) >= 1
            self._target.unavailable += 1
            await asyncio.sleep(0.1)
            return None
        replayed = header(head, "idempotency-replayed") == "true"
        more = 'rel="next"' in header(head, "link")
        return RecordedResponse(int(head[9:12]), content, header(head, "location"), replayed, more)


def _encode(method: str, path: str, body: object, key: str) -> bytes:
    content = b"" if body is None else msgspec.json.encode(body)
    idempotency = f"Idempotency-Key: {key}\r\n" if key else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SERVICE_KEY}\r\n"
        f"{idempotency}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def header(head: str, name: str) -> str:
    """Return the value of a header, or an empty string if it is missing."""
    found = re.search(rf"\r\n{name}: ([^\r]*)\r\n", head, re.IGNORECASE)
    return found[1] if found else ""
