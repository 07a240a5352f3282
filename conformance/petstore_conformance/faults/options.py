"""What a run of fault injection is asked to do."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

ServerCommand = str | Callable[[], object]


class FaultOptions(Struct, frozen=True, kw_only=True):
    """The options of ``petstore conformance NAME --faults``.

    minutes -- how long the run takes; the last round is completed
    seed -- determines all random choices
    timeout_seconds -- how long the longest call of the backend may take, and how long it may take
        to recover
    server -- HOST:PORT in the settings, which the proxy replaces; None: that of their URL
    server_stop, server_kill, server_start, server_empty -- shell commands, or functions to be
        called in a thread
    only -- the names of faults; all that are possible if there are none
    report -- the file of the JSON report
    """

    minutes: float = 2
    seed: int = 0
    timeout_seconds: float = 10
    server: str | None = None
    server_stop: ServerCommand | None = None
    server_kill: ServerCommand | None = None
    server_start: ServerCommand | None = None
    server_empty: ServerCommand | None = None
    only: tuple[str, ...] = ()
    report: Path | None = None
