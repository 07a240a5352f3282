"""Services in processes of their own, which may be killed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


def send(process: int, signal_: int) -> None:
    """Send a signal to a process, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(process, signal_)


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
