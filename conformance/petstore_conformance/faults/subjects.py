"""What is tested, and how: a backend, its settings and its server, and the options of a run."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from petstore.contract import Backend, Expected, SettingsError

_ADDRESS: Final = re.compile(
    r"://(?:[^/?#]*@)?((?:\[[0-9A-Fa-f:.]+\]|[^/?#:@,\[\]]+):[0-9]+)(?![,0-9])"
)

ServerCommand = str | Callable[[], object]


class Subject(Struct, frozen=True):
    """A backend, and how a service is configured to use it.

    name -- that of the entry point
    choice -- the setting PETSTORE_BACKEND: the name, or ``distribution:name``
    settings -- those with which it can work; only scratch locations of it are used
    distribution, version -- of the installed distribution that provides it
    file -- the setting that names the file or folder of a store that lasts, such as "acme_path"
    """

    name: str
    choice: str
    backend: Backend
    settings: Any
    distribution: str = ""
    version: str = ""
    file: str = ""

    def texts(self, settings: Any) -> dict[str, str]:
        """Return settings as texts by name, such as "acme_url".

        Raises `SettingsError` if a service could not be given them.
        """
        values = structs.asdict(settings)
        texts = {field: _text(value) for field, value in values.items() if value is not None}
        given = {field: text.strip() for field, text in texts.items() if text}  # as to a service
        try:
            configured = msgspec.convert(given, type(settings), strict=False)
        except msgspec.ValidationError as error:
            raise SettingsError(f"what `scratch` yields is not valid as texts: {error}") from None
        for field, value in values.items():
            if (read := getattr(configured, field)) != value:
                raise SettingsError(
                    f"`scratch` yields {field}={value!r}, which cannot be given to a service as"
                    f" PETSTORE_{self.name.upper()}_{field.upper()}: it reads {read!r}"
                )
        return {f"{self.name}_{field}": text for field, text in texts.items()}

    def address(self) -> str | None:
        """Return HOST:PORT of the one server in a URL of the settings, if there is one."""
        matches = (_ADDRESS.search(str(value)) for value in structs.astuple(self.settings))
        return next((match[1] for match in matches if match), None)

    async def opened(self) -> "Subject":
        """Open a scratch location, and close it; return the subject, with its `file` if it has one.

        Raises `UnavailableError` if the storage cannot be reached.
        """
        backend = self.backend
        async with backend.scratch(self.settings) as settings, backend.open(settings, Expected()):
            for field, value in structs.asdict(settings).items() if backend.durable else ():
                own = value != getattr(self.settings, field) and isinstance(value, str | Path)
                if own and os.path.exists(value):  # noqa: ASYNC240, PTH110 - once
                    return structs.replace(self, file=f"{self.name}_{field}")
        return self

    def redirect(self, settings: Any, address: str, proxy: str) -> Any:
        """Return settings in which the HOST:PORT of the server is replaced by that of a proxy.

        Raises `SettingsError` if they do not have it.
        """
        changed = {
            field: value.replace(address, proxy)
            for field, value in structs.asdict(settings).items()
            if isinstance(value, str) and address in value
        }
        if not changed:
            raise SettingsError(f"no setting of the backend '{self.name}' has the text {address}")
        return structs.replace(settings, **changed)


class FaultOptions(Struct, frozen=True, kw_only=True):
    """The options of ``petstore-conformance test NAME --faults``, as its ``--help`` has them.

    minutes -- how long the run takes; the last round is completed
    seed -- determines all random choices
    timeout_seconds -- how long a call of the backend may take, and how long to recover
    server -- HOST:PORT in the settings, which the proxy replaces; None: that of their URL
    server_stop, server_kill ... -- shell commands, or functions to be called in a thread
    only -- the names of faults; all that are possible if there are none

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


def split(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raises `SettingsError` if it is not that."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingsError(f"--server must be HOST:PORT, not {address}")
    return host.strip("[]"), int(port)


def _text(value: object) -> str:
    plain = msgspec.to_builtins(value, enc_hook=str)  # which it calls for a `Path`
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
