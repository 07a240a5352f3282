"""Addresses to listen on, written ``HOST:PORT``."""

import errno
import ipaddress
import re

from petstore.config.errors import PREFIX, ConfigurationError, shorten


def split_address(listen: str, setting: str = f"{PREFIX}LISTEN") -> tuple[str, int]:
    """Split ``HOST:PORT`` or ``[IPV6]:PORT``. Port 0 means any free port.

    setting -- the setting that it comes from

    Raises `ConfigurationError` if it is malformed.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+)):([0-9]{1,5})", listen)
    if match is None or int(match[3]) > 65535:
        port = 8000 if setting == f"{PREFIX}LISTEN" else 9100  # proposes none that is in use
        raise ConfigurationError(
            f"{setting} must be HOST:PORT, for instance 127.0.0.1:{port} or [::1]:{port};"
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
    code, text = (error.errno, error.strerror) if isinstance(error, OSError) else (0, None)
    reason = {
        "EADDRINUSE": "the port is in use; stop the other program, or choose another port",
        "EACCES": "permission denied; choose a port above 1023",
        "EADDRNOTAVAIL": "this machine has no such address",
    }.get(errno.errorcode.get(code or 0, ""), text or "the host name is invalid")
    return ConfigurationError(f"cannot listen on {listen}: {reason} ({setting})")


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
