"""The socket that the service listens on."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL, ENAMETOOLONG, ENOTSOCK
from pathlib import Path
from typing import Final

from petstore.config.addresses import cannot_listen, parse_listen, to_url

BACKLOG: Final = 2048
"""How many connections the kernel queues until the service accepts them."""

MAX_PATH_BYTES: Final = 107


@contextmanager
def bind(listen: str) -> Iterator[socket.socket]:
    """Yield a socket that is bound to an address as in PETSTORE_LISTEN.

    A port does not listen yet. The file of a Unix socket is removed at the end of the block.

    Raises `ConfigurationError` if binding fails.
    """
    address = parse_listen(listen)
    try:
        if isinstance(address, Path):
            sock = _bind_path(address)
        elif isinstance(address, int):
            sock = _inherit(address)
        else:
            sock = _bind_port(*address)
    except (OSError, UnicodeError) as error:  # the latter: an invalid host name
        raise cannot_listen(listen, error, "PETSTORE_LISTEN or --listen") from None
    with sock:
        if not isinstance(address, Path):
            yield sock
            return
        own = _identity(address)
        try:
            yield sock
        finally:
            with suppress(OSError):  # it was removed already
                if _identity(address) == own:
                    address.unlink()


def display_address(sock: socket.socket) -> str:
    """Return the address of a bound socket for messages: a URL, or ``unix:PATH``."""
    address = sock.getsockname()
    return f"unix:{address}" if sock.family == socket.AF_UNIX else to_url(*address[:2])


def _bind_port(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_path(path: Path) -> socket.socket:
    """Listen on a path, in place of the socket that a killed service has left there.

    It must listen at once: another service would take it for one that was left.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(ENAMETOOLONG, "")
    if os.path.lexists(path):
        if not path.is_socket():
            raise OSError(ENOTSOCK, "")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(str(path))
        sock.listen(BACKLOG)
        path.chmod(0o666)  # as with a port, anyone may connect; the keys decide
    except BaseException:
        sock.close()
        raise
    return sock


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells a file from a later one, which may have the same inode number."""
    stat = path.stat()
    return stat.st_ino, stat.st_ctime_ns


def _inherit(fd: int) -> socket.socket:
    """Take a bound socket from whatever started the service, such as systemd."""
    sock = socket.socket(fileno=fd)
    address = sock.getsockname()
    if sock.type == socket.SOCK_STREAM and address and address[1:2] != (0,):
        with suppress(OSError):
            sock.listen(BACKLOG)
            return sock
    sock.close()
    raise OSError(EINVAL, "")
