"""Addresses to listen on: ``HOST:PORT``, ``unix:PATH``, or ``fd:N``, an inherited socket."""

import errno
import ipaddress
import re
from pathlib import Path
from typing import Final

from petstore.config.errors import PREFIX, ConfigurationError, shorten

_LISTEN: Final = f"{PREFIX}LISTEN"


def parse_listen(listen: str) -> tuple[str, int] | Path | int:
    """Return host and port, the path of a Unix socket, or the number of a descriptor.

    Raises `ConfigurationError` if it is malformed.
    """
    kind, _, rest = listen.partition(":")
    if kind == "unix" and rest.startswith("/"):
        return Path(rest)
    if kind == "fd" and re.fullmatch("[0-9]{1,5}", rest):
        return int(rest)
    return split_address(listen)


def split_address(listen: str, setting: str = _LISTEN) -> tuple[str, int]:
    """Split ``HOST:PORT`` or ``[IPV6]:PORT``. Port 0 means any free port.

    setting -- the setting that it comes from

    Raises `ConfigurationError` if it is malformed.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+)):([0-9]{1,5})", listen)
    if match is None or int(match[3]) > 65535:
        port = 8000 if setting == _LISTEN else 9100  # suggest none that the other setting uses
        others = ", or unix:/PATH, or fd:N" if setting == _LISTEN else ""
        raise ConfigurationError(
            f"{setting} must be HOST:PORT, for instance 127.0.0.1:{port} or [::1]:{port}{others};"
            f" it is {shorten(repr(listen))}"
        )
    return match[1] or match[2], int(match[3])


def to_url(host: str, port: int) -> str:
    """Return the URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def cannot_listen(listen: str, error: Exception, setting: str) -> ConfigurationError:
    """Return the error for an address on which listening failed.

    error -- what the system raised, or `UnicodeError` for an invalid host name
    setting -- the setting that the address comes from
    """
    kind = listen.partition(":")[0]
    code, text = 0, "the host name is invalid"
    if isinstance(error, OSError):
        code, text = error.errno or 0, error.strerror or str(error)
    reason = _REASONS.get(kind, _REASONS["tcp"]).get(errno.errorcode.get(code, ""), text)
    return ConfigurationError(f"cannot listen on {listen}: {reason} ({setting})")


_REASONS: Final = {
    "tcp": {
        "EADDRINUSE": "the port is in use; stop the other program, or choose another port",
        "EACCES": "permission denied; choose a port above 1023",
        "EADDRNOTAVAIL": "this machine has no such address",
    },
    "unix": {
        "EADDRINUSE": "another program listens there; stop it, or choose another path",
        "ENOTSOCK": "there is a file or a folder, not a socket; choose another path",
        "ENAMETOOLONG": "the path is too long; the limit is 107 bytes",
        "EACCES": "permission denied; choose a folder that the service may write",
        "ENOENT": "its folder does not exist; create it",
    },
    "fd": {
        "EBADF": "no such descriptor was inherited; what starts the service must pass it",
        "ENOTSOCK": "it is not a socket",
        "EINVAL": "it is not a bound stream socket that can listen",
    },
}


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
