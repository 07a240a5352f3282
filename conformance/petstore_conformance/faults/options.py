"""The options of a run of fault injection."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from petstore.contract import SettingsError
from petstore_conformance.faults.subjects import split

ServerCommand = str | Callable[[], object]


class FaultOptions(Struct, frozen=True, kw_only=True):
    """The options of ``petstore-conformance test NAME --faults``.

    minutes -- how long the run takes; the last round is completed
    seed -- determines all random choices
    timeout_seconds -- how long the longest call of the backend may take, and how long it may take
        to recover
    server -- HOST:PORT in the settings, which the proxy replaces; None: that of their URL
    server_stop, server_kill, server_start, server_empty, server_save, server_restore -- shell
        commands, or functions to be called in a thread
    only -- the names of faults; all that are possible if there are none
    report -- the file of the JSON report

    Raises `SettingsError` if options contradict each other.
    """

    minutes: float = 2
    seed: int = 0
    timeout_seconds: float = 10
    server: str | None = None
    server_stop: ServerCommand | None = None
    server_kill: ServerCommand | None = None
    server_start: ServerCommand | None = None
    server_empty: ServerCommand | None = None
    server_save: ServerCommand | None = None
    server_restore: ServerCommand | None = None
    only: Sequence[str] = ()
    report: str | None = None

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if not 0 < self.minutes < 10**6:
            raise SettingsError("--minutes must be above 0 and below 1000000")
        if not 0 < self.timeout_seconds <= 3600:
            raise SettingsError("--timeout-seconds must be above 0 and at most 3600")
        if bool(self.server_stop or self.server_kill) != bool(self.server_start):
            needs = "--server-start needs --server-kill or --server-stop, and they need it"
            raise SettingsError(needs)
        if bool(self.server_save) != bool(self.server_restore):
            raise SettingsError("--server-save and --server-restore need each other")
        if self.server is not None:
            split(self.server)
