"""Connections to a service that may be killed and come back elsewhere at any time."""

import asyncio
import json
import re
from contextlib import suppress

from tests.histories import Answer
from tests.live import KEY, Live


class Target:
    """Where the service is now.

    up -- set while there is one
    unavailable -- how many requests were answered 503
    lost -- how many were under way when the connection broke
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.up = asyncio.Event()
        self.up.set()
        self.unavailable = self.lost = 0


class Connection:
    """A connection that is kept until it breaks."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(
        self, method: str, path: str, body: object = None, key: str = ""
    ) -> Answer | None:
        """Return the answer to a request, or None if nobody knows what became of it."""
        try:
            if self._streams is None:
                self._streams = await self._open()
            content = b"" if body is None else json.dumps(body).encode()
            fields = f"Idempotency-Key: {key}\r\n" if key else ""
            head = (
                f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n{fields}"
                f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            return await self._exchange(head.encode() + content, *self._streams)
        except (OSError, EOFError):
            self._target.lost += 1
            self.close()
            return None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:  # what was never sent has no unknown outcome
            await self._target.up.wait()
            live = self._target.live
            with suppress(OSError):
                return await asyncio.open_connection(live.host, live.port)
            await asyncio.sleep(0.02)

    async def _exchange(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Answer | None:
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        content = await reader.readexactly(int(field(answer, "content-length")))
        if field(answer, "connection") == "close":
            self.close()
        if answer[9:12] == "503":
            assert int(field(answer, "retry-after")) >= 1
            self._target.unavailable += 1
            await asyncio.sleep(0.1)
            return None
        replayed = field(answer, "idempotency-replayed") == "true"
        return Answer(int(answer[9:12]), content, field(answer, "location"), replayed)


def field(head: str, name: str) -> str:
    """Return the value of a header field, or nothing."""
    found = re.search(rf"\r\n{name}: ([^\r]*)\r\n", head, re.IGNORECASE)
    return found[1] if found else ""
