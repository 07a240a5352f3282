"""Slow readers: what clients have not read yet of their responses, for how long, and how much.

The kernel keeps a little of it for each connection, and the transport the rest, in this process. A
client that reads nothing for too long is cut off, and one that leaves too much unread gets no
further responses. What is read at once, or is small, is neither counted nor checked.
"""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from contextlib import suppress
from typing import Final

from petstore.http.shares import Share

UNCOUNTED_BYTES: Final = 4096
"""How much of a response may wait in this process uncounted: as much as an idle connection takes.

It is enough for usual pages and for pipelined responses, which are written together.
"""

RESPONSE_SECONDS: Final = 60.0
"""How long a client may read nothing of a response that is ready for it.

What is seen is what its system takes, which is in steps of up to some hundred kilobytes: a client
that reads 4 KB a second has its system take nothing for 30 seconds and more.
"""

KERNEL_BYTES: Final = 128 * 1024
"""How much of an unread response the kernel keeps for each connection; the process has the rest."""

GONE_SECONDS: Final = 60
"""How long the kernel keeps a connection, even a closed one, whose client acknowledges nothing."""


def limit_kernel(sock: socket.socket) -> None:
    """Limit for all connections of a listening socket how much the kernel keeps, and how long."""
    for name, value in (("NOTSENT_LOWAT", KERNEL_BYTES), ("USER_TIMEOUT", GONE_SECONDS * 1000)):
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class SendBacklog:
    """What the client of one connection has not read yet.

    transport -- that of the connection
    unread -- counts the responses that this process keeps while their clients read them slowly;
        None if it does not matter
    size -- the unread bytes when they were last measured, those in the kernel included
    """

    def __init__(self, transport: asyncio.Transport, unread: Share | None) -> None:
        transport.set_write_buffer_limits(UNCOUNTED_BYTES)
        self._transport = transport
        self._unread = unread
        self._counted: tuple[str, int] | None = None  # the client and size of a response
        self.size = 0
        self._since = 0.0  # when the client had last made progress
        self._responses = 0  # how many there had been then

    def begin(self, client: str | None, size: int) -> None:
        """Count a response of so many bytes: its client reads it slowly.

        All of it is counted until its end is in the kernel, because so long the process keeps it.
        A client without a key is not counted: all that it can request is in memory only once.
        """
        if self._unread is not None and client is not None:
            self._unread.count(client, size)
            self._counted = client, size

    def end(self) -> None:
        """Count it no more: the client has read enough, or is gone."""
        if self._unread is not None and self._counted is not None:
            self._unread.release(*self._counted)
            self._counted = None

    def sweep(self, now: float, responses: int) -> None:
        """Measure what is unread by now; cut off a client that has read nothing for too long.

        Between two responses, what is unread only shrinks, so an equal size means that the client's
        system has taken nothing. A further response is progress, whatever the size: the system of a
        client that sends one request after another acknowledges a small response only with the next
        request, so every measurement may find the same size.

        responses -- how many there have been on the connection
        """
        if not self.size and responses == self._responses:
            return
        size = self._transport.get_write_buffer_size() + _unread_in_kernel(self._transport)
        if size != self.size or responses != self._responses:
            self.size, self._responses, self._since = size, responses, now
        elif now - self._since >= RESPONSE_SECONDS:
            _reset(self._transport)


def _unread_in_kernel(transport: asyncio.Transport) -> int:
    """Return how much of what was sent the client's system has not taken; 0 if unknown."""
    try:
        descriptor = transport.get_extra_info("socket").fileno()
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # it is closed, or the system does not say
        return 0


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection at once, so that neither process nor kernel keeps its unread data."""
    with suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()
