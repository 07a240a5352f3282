"""Services in processes of their own, which may be killed, and connections to them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from petstore_conformance.faults.histories import RecordedResponse
from petstore_conformance.harness.alarm import OverdueError, send, within
from petstore_conformance.harness.cores import children

SERVICE_KEY: Final = "test-key-one-of-two"  # the API key of the clients
SERVING_SECONDS: Final = 60  # how long a service may take to start; it only stops a hang
_SERVE: Final = ("-m", "petstore", "serve")  # what Python runs as the service


class NotServingError(Exception):
    """The service has ended, or does not serve in time: its log, and whether it has ended."""


@dataclass(eq=False)
class RunningService:
    """A running service: its address, and its process if it has one of its own."""

    host: str
    port: int
    process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """Kill the process and its workers with SIGKILL."""
        assert self.process is not None
        workers = self.workers()
        self.process.kill()
        for worker in workers:
            send(worker, signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """Return the ids of the worker processes that are alive."""
        assert self.process is not None
        found = list[int]()
        for child in children()[self.process.pid]:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
        return found


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with these settings instead of its own."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PETSTORE_")}
    return clean | {f"PETSTORE_{name.upper()}": text for name, text in settings.items()}


def launch(
    log: Path, settings: Mapping[str, str], seconds: float, command: Sequence[str] = _SERVE
) -> RunningService:
    """Run `petstore serve`, with its log in a file; return once it serves.

    settings -- such as "sqlite_path"; others than these are not set
    seconds -- how long it may take until it serves
    command -- what Python runs

    Raises `NotServingError`, after which no process is left.
    """
    with log.open("wb") as stderr:
        arguments, env = [sys.executable, *command], environment(settings)
        process = subprocess.Popen(arguments, env=env, stdout=subprocess.DEVNULL, stderr=stderr)
    end = time.monotonic() + seconds
    with ExitStack() as cleanup:
        cleanup.callback(RunningService("", 0, process).kill)
        while True:
            ended = process.poll() is not None
            text = log.read_text(errors="replace")
            if serving := re.search(r"serving on http://([^\s:]+|\[[^\]]+\]):(\d+)", text):
                cleanup.pop_all()
                return RunningService(serving[1], int(serving[2]), process)
            if ended or time.monotonic() > end:
                raise NotServingError(text, ended)
            time.sleep(0.02)


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
