"""What a client has not read yet of its responses: how much that is, and for how long."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from petstore.server import sockets

RESPONSE_SECONDS: Final = 30.0
"""How long a client may read nothing of a response that is ready for it."""

CountBacklog = Callable[[dict[str, Any], int], None]
"""Counts the bytes of responses that wait in this process for clients to read them.

It is given the scope of a request and by how much its bytes have changed.
"""


class SendBacklog:
    """What the client of one connection has not read yet.

    transport -- that of the connection
    count -- is told how much waits in this process while the client reads slowly; None if it does
        not matter
    size -- the unread bytes when it was last checked, those in the kernel included
    """

    def __init__(self, transport: asyncio.Transport, count: CountBacklog | None) -> None:
        self._transport = transport
        self._count = count
        self._scope: dict[str, Any] | None = None  # whose response is read slowly
        self._counted = 0  # bytes of that response
        self.size = 0
        self._since = 0.0  # when the size had last changed

    def begin(self, scope: dict[str, Any]) -> None:
        """Count what waits of the response to a request: the client reads it slowly."""
        self._scope = scope
        self._recount(self._transport.get_write_buffer_size())

    def end(self) -> None:
        """Count nothing any more: the client has read enough, or is gone."""
        self._recount(0)
        self._scope = None

    def check(self, now: float) -> None:
        """Measure what is unread by now; cut off a client that has read nothing for too long."""
        waiting = self._transport.get_write_buffer_size()
        self._recount(waiting)
        size = waiting + sockets.unread_bytes(self._transport)
        if size != self.size:
            self.size, self._since = size, now
        elif size and now - self._since >= RESPONSE_SECONDS:
            sockets.reset(self._transport)

    def _recount(self, waiting: int) -> None:
        if self._count is not None and self._scope is not None:
            self._count(self._scope, waiting - self._counted)
            self._counted = waiting
