"""Addresses to listen on: ``HOST:PORT``, ``unix:PATH``, or ``fd:N``, an inherited socket."""

import ipaddress
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from petstore.config.errors import PREFIX, ConfigurationError
from petstore.text.phrases import shorten

_LISTEN: Final = f"{PREFIX}LISTEN"


class Address(Struct, frozen=True):
    """Where to listen: a host and a port, or the path of a Unix socket, or a descriptor.

    text -- as it was given, for messages
    port -- 0 for any free port
    """

    text: str
    host: str = ""
    port: int = 0
    path: Path | None = None
    descriptor: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return the address in PETSTORE_LISTEN. Raises `ConfigurationError` if it is malformed."""
        kind, _, rest = text.partition(":")
        if kind == "unix" and rest.startswith("/"):
            return cls(text, path=Path(rest))
        if kind == "fd" and re.fullmatch("[0-9]{1,5}", rest):
            return cls(text, descriptor=int(rest))
        return cls.parse_port(text)

    @classmethod
    def parse_port(cls, text: str, setting: str = _LISTEN) -> "Address":
        """Return the address ``HOST:PORT`` or ``[IPV6]:PORT``.

        setting -- the setting that it comes from

        Raises `ConfigurationError` if it is malformed.
        """
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+)):([0-9]{1,5})", text)
        if match is None or int(match[3]) > 65535:
            port = 8000 if setting == _LISTEN else 9100  # suggest none that the other setting uses
            others = ", or unix:/PATH, or fd:N" if setting == _LISTEN else ""
            raise ConfigurationError(
                f"{setting} must be HOST:PORT, for instance 127.0.0.1:{port} or"
                f" [::1]:{port}{others}; it is {shorten(repr(text))}"
            )
        return cls(text, match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return self.text

    @property
    def is_public(self) -> bool:
        """Whether programs on other machines may be able to reach it."""
        if not self.host:
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"
