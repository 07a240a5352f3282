"""The backend under test: its settings as texts, and its server behind a proxy."""

import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from petstore.contract import Backend, Expected, SettingsError

_ADDRESS: Final = re.compile(
    r"://(?:[^/?#]*@)?((?:\[[0-9A-Fa-f:.]+\]|[^/?#:@,\[\]]+):[0-9]+)(?![,0-9])"
)


class Subject(Struct, frozen=True):
    """A backend, and how a service is configured to use it.

    name -- that of the entry point
    choice -- the setting PETSTORE_BACKEND: the name, or ``distribution:name``
    settings -- those with which it can work; only scratch locations of it are used
    distribution, version -- of the installed distribution that provides it
    """

    name: str
    choice: str
    backend: Backend
    settings: Any
    distribution: str = ""
    version: str = ""

    def texts(self, settings: Any) -> dict[str, str]:
        """Return settings as texts by name, such as "acme_url".

        Raises `SettingsError` if a service could not be given them.
        """
        values = {field: getattr(settings, field) for field in settings.__struct_fields__}
        texts = {field: _text(value) for field, value in values.items() if value is not None}
        given = {field: text.strip() for field, text in texts.items() if text}  # as to a service
        try:
            configured = msgspec.convert(given, type(settings), strict=False)
        except msgspec.ValidationError as error:
            raise SettingsError(f"what `scratch` yields is not valid as texts: {error}") from None
        for field, value in values.items():
            if getattr(configured, field) != value:
                raise SettingsError(
                    f"`scratch` yields {field}={value!r}, which cannot be given to a service as"
                    f" PETSTORE_{self.name.upper()}_{field.upper()}: it reads"
                    f" {getattr(configured, field)!r}"
                )
        return {f"{self.name}_{field}": text for field, text in texts.items()}

    def address(self) -> str | None:
        """Return HOST:PORT of the one server in a URL of the settings, if there is one."""
        for field in self.settings.__struct_fields__:
            found = _ADDRESS.search(str(getattr(self.settings, field)))
            if found:
                return found[1]
        return None

    async def open_scratch(self) -> str:
        """Open a scratch location, and close it.

        Returns the setting that names the file or folder of a store that lasts, such as
        "acme_path", or "". Raises `UnavailableError` if the storage cannot be reached.
        """
        backend = self.backend
        async with backend.scratch(self.settings) as settings, backend.open(settings, Expected()):
            for field in settings.__struct_fields__ if backend.durable else ():
                value = getattr(settings, field)
                own = value != getattr(self.settings, field) and isinstance(value, str | Path)
                if own and os.path.exists(value):  # noqa: ASYNC240, PTH110 - once
                    return f"{self.name}_{field}"
        return ""

    def redirect(self, settings: Any, address: str, proxy: str) -> Any:
        """Return settings in which the HOST:PORT of the server is replaced by that of a proxy.

        Raises `SettingsError` if they do not have it.
        """
        values = {field: getattr(settings, field) for field in settings.__struct_fields__}
        changed = {
            field: value.replace(address, proxy)
            for field, value in values.items()
            if isinstance(value, str) and address in value
        }
        if not changed:
            raise SettingsError(f"no setting of the backend '{self.name}' has the text {address}")
        return msgspec.structs.replace(settings, **changed)


def split(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raises `SettingsError` if it is not that."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SettingsError(f"--server must be HOST:PORT, not {address}")
    return host.strip("[]"), int(port)


def _text(value: object) -> str:
    plain = msgspec.to_builtins(value, enc_hook=str)  # which it calls for a `Path`
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
