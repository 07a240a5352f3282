"""The listening socket of a worker, which takes turns with the others if there are any."""

import asyncio
import os
import resource
import select
import socket
import time
from collections.abc import Callable, MutableSequence
from contextlib import suppress
from typing import Final, NamedTuple

from petstore.server.sockets import BACKLOG, has_connection

NOT_LISTENING: Final = 2**32 - 1
"""Stands for the number of connections of a worker that accepts none: larger than any."""

PAUSE_SECONDS: Final = 0.001
"""How long a worker leaves the waiting connections to others before it checks for them again."""

PATIENCE_SECONDS: Final = 0.5
"""How long a connection waits for a worker whose turn it is, but which does not check for it."""

MAX_ACCEPTED: Final = 64
"""How many connections are accepted before requests are served again."""

RESERVED_DESCRIPTORS: Final = 32
"""How many file descriptors clients leave to what may need them later: connections to the storage
and threads that read it, the key file, the log.
"""


class Turns(NamedTuple):
    """What workers tell each other about their connections, in memory that they share.

    connections -- how many each worker has, or `NOT_LISTENING`
    checks -- how often each worker has checked whether one waits
    worker -- which of them this one is; it writes no other's numbers
    """

    connections: "MutableSequence[int] | memoryview[int]"
    checks: "MutableSequence[int] | memoryview[int]"
    worker: int


class Listener:
    """Accepts connections so that every worker has about equally many.

    All workers wait for connections on one socket, and the kernel wakes all of them. A worker
    leaves a connection to those that have fewer: it is their turn. It checks again soon whether the
    connection still waits. A worker that has not checked for a while is taken to hang: nobody waits
    for it until it checks again. The socket keeps what nobody has accepted, so no connection is
    lost with a worker.

    A worker that has no more file descriptors for clients leaves connections to those that have
    some, and closes them at once if there is none: clients need not wait to learn that nobody
    serves them.

    uvicorn's server uses it in place of asyncio's, so `close` and `wait_closed` are asyncio's.

    sock -- the listening socket, or one that is bound
    turns -- what the workers tell each other
    make_connection -- returns the protocol of a new connection
    full -- whether clients have all descriptors that they may have
    """

    def __init__(
        self, sock: socket.socket, turns: Turns, make_connection: Callable[[], asyncio.Protocol]
    ) -> None:
        self._sock = sock
        self._turns = turns
        self._make_connection = make_connection
        self._loop = asyncio.get_running_loop()
        self._connections = 0
        self._opening: set[asyncio.Task[None]] = set()
        self._arrivals = select.epoll()
        self._later: asyncio.TimerHandle | None = None
        self._leaving = False
        self._most = 0  # how many connections there are descriptors for
        self.full = False
        self._reserve: int | None = None  # one to accept with what is closed at once
        self._first: dict[int, int] = {}  # the workers that come first, and how often they checked
        self._first_since = 0.0
        self._hanging: dict[int, int] = {}  # those that did not check in time, likewise

    def start(self) -> None:
        """Begin to accept."""
        self._sock.listen(BACKLOG)
        self._sock.setblocking(False)
        self._turns.connections[self._turns.worker] = 0
        self._reserve = os.open(os.devnull, os.O_RDONLY)  # its number: so many are in use
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = max(1, limit - self._reserve - RESERVED_DESCRIPTORS)
        # Edge-triggered: each arrival wakes this worker once, even if another one accepts it.
        self._arrivals.register(self._sock, select.EPOLLIN | select.EPOLLET)
        self._loop.add_reader(self._arrivals, self._on_arrival)

    def closed(self) -> None:
        """Count one connection fewer. Called when a connection closes."""
        self._connections -= 1
        self.resume()

    def resume(self) -> None:
        """Accept again, if there are descriptors for clients."""
        self.full = self._connections >= self._most
        self._publish()

    def check(self) -> None:
        """Accept what an error has left, if there are descriptors. To be called once a second."""
        self.resume()
        if not self._arrivals.closed and has_connection(self._sock):
            self._accept()

    def leave(self) -> None:
        """Let nobody wait for this worker from now on; it accepts what the others leave."""
        self._leaving = True
        self._publish()

    @property
    def is_waited_for(self) -> bool:
        """Whether a connection waits to be accepted, or is being opened."""
        return bool(self._opening) or has_connection(self._sock)

    def close(self) -> None:
        """Accept no more. The socket stays open."""
        self.leave()
        self._loop.remove_reader(self._arrivals)
        self._arrivals.close()
        if self._later is not None:
            self._later.cancel()
        if self._reserve is not None:
            os.close(self._reserve)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to wait for."""

    def _on_arrival(self) -> None:
        """Take notice of arrivals, and accept them if it is this worker's turn."""
        self._arrivals.poll(0)
        self._accept()

    def _check_again(self) -> None:
        self._later = None
        if has_connection(self._sock):
            self._accept()
        else:
            self._first = {}

    def _check_later(self, seconds: float) -> None:
        if self._later is None:
            self._later = self._loop.call_later(seconds, self._check_again)

    def _accept(self) -> None:
        self._turns.checks[self._turns.worker] += 1
        for _ in range(MAX_ACCEPTED):
            if not self._has_turn():
                break
            try:
                if self.full:
                    self._refuse()
                    continue
                connection, _address = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                if self.full:  # a thread has taken the reserve
                    self._check_later(PATIENCE_SECONDS)
                    return
                self.full = True
                self._publish()
                continue
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            self._connections += 1
            self.resume()
        self._check_later(PAUSE_SECONDS)

    def _refuse(self) -> None:
        """Close a waiting connection at once. Raises `OSError` if it cannot be accepted."""
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
        try:
            self._sock.accept()[0].close()
        finally:
            with suppress(OSError):
                self._reserve = os.open(os.devnull, os.O_RDONLY)

    def _publish(self) -> None:
        """Tell the other workers how many connections this one has."""
        self._turns.connections[self._turns.worker] = (
            NOT_LISTENING if self._leaving or self.full else self._connections
        )

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_connection, connection)
        except BaseException as error:
            connection.close()
            self.closed()
            if not isinstance(error, OSError):  # the client is gone
                raise

    def _has_turn(self) -> bool:
        """Return whether no worker that can accept a waiting connection has clearly fewer."""
        connections, checks, _ = self._turns
        own = NOT_LISTENING if self.full else self._connections
        first = {
            worker: checks[worker]
            for worker, count in enumerate(connections)
            if count + count // 4 < own and self._hanging.get(worker) != checks[worker]
        }
        now = time.monotonic()
        if first != self._first:
            self._first, self._first_since = first, now
        if first and now - self._first_since < PATIENCE_SECONDS:
            return False
        self._hanging.update(first)
        return True
