"""The socket that the service listens on, and what Linux tells about its connections."""

import asyncio
import ctypes
import errno
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from petstore.config.addresses import Address
from petstore.config.errors import ConfigurationError
from petstore.server.send_backlog import limit_kernel

BACKLOG: Final = 2048
"""How many connections the kernel queues until the service accepts them."""

MAX_PATH_BYTES: Final = 107

_SO_ATTACH_FILTER: Final = 26
# A program of the packet filter: drop a segment if, of the flags SYN and ACK, it has only SYN.
_DROP_SYN: Final = (
    (0x30, 0, 0, 13),  # load the byte of the flags
    (0x54, 0, 0, 0x12),  # and
    (0x15, 0, 1, 0x02),  # skip one unless equal
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # take
)

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


def refuse(sock: socket.socket) -> None:
    """Let no further client connect to a listening port; those that wait can still be accepted.

    Otherwise clients would connect between the last `accept` and the end of the port, and be reset.
    Their attempts are dropped. They try again after a second, and then the port is closed, or
    another service has it. Where the system is not Linux, this does nothing.
    """
    if sys.platform != "linux" or sock.family == socket.AF_UNIX:
        return
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_SYN)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(_DROP_SYN), ctypes.addressof(buffer))
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def refuses(sock: socket.socket) -> bool:
    """Return whether `refuse` was called for a socket, in any process that has it."""
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, 64))  # SO_GET_FILTER
    except OSError:
        return True


def has_connection(sock: socket.socket) -> bool:
    """Return whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def has_data(transport: asyncio.BaseTransport) -> bool:
    """Return whether something has arrived that was not read yet, or the end of the stream."""
    try:
        return has_connection(transport.get_extra_info("socket"))
    except (OSError, ValueError):  # it is closed
        return False


@contextmanager
def bind(address: Address) -> Iterator[socket.socket]:
    """Yield a socket that is bound to an address.

    A port does not listen yet. The file of a Unix socket is removed at the end of the block.

    Raises `ConfigurationError` if binding fails.
    """
    path = address.path
    try:
        if path is not None:
            sock = _bind_path(path)
        elif address.descriptor is not None:
            sock = _inherit(address.descriptor)
        else:
            sock = bind_port(address.host, address.port)
    except (OSError, UnicodeError) as error:  # the latter: an invalid host name
        raise cannot_listen(address, error, "PETSTORE_LISTEN or --listen") from None
    with sock:
        if path is None:
            yield sock
            return
        own = _identity(path)
        try:
            yield sock
        finally:
            with suppress(OSError):  # it was removed already
                if _identity(path) == own:
                    path.unlink()


def cannot_listen(address: Address, error: Exception, setting: str) -> ConfigurationError:
    """Return the error for an address on which listening failed.

    error -- what the system raised, or `UnicodeError` for an invalid host name
    setting -- the setting that the address comes from
    """
    kind = address.text.partition(":")[0]
    code, text = 0, "the host name is invalid"
    if isinstance(error, OSError):
        code, text = error.errno or 0, error.strerror or str(error)
    reason = _REASONS.get(kind, _REASONS["tcp"]).get(errno.errorcode.get(code, ""), text)
    return ConfigurationError(f"cannot listen on {address}: {reason} ({setting})")


def to_url(host: str, port: int) -> str:
    """Return the URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def display_address(sock: socket.socket) -> str:
    """Return the address of a bound socket for messages: a URL, or ``unix:PATH``."""
    address = sock.getsockname()
    return f"unix:{address}" if sock.family == socket.AF_UNIX else to_url(*address[:2])


def bind_port(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a port. Raises `OSError` or `UnicodeError`."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        limit_kernel(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_path(path: Path) -> socket.socket:
    """Listen on a path, in place of the socket that a killed service has left there.

    It must listen at once: another service would take it for one that was left.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "")
    if os.path.lexists(path):
        if not path.is_socket():
            raise OSError(errno.ENOTSOCK, "")
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
            limit_kernel(sock)
            return sock
    sock.close()
    raise OSError(errno.EINVAL, "")
