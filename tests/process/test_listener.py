"""Equal shares of the connections: workers on one socket, some of which stop or hang."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest

from petstore.server import listener
from petstore.server.listener import NOT_LISTENING, Listener, Turns
from tests.support.waiting import HANG_SECONDS, eventually


class Worker:
    """One of several workers, all in this process: it counts its connections."""

    def __init__(self, sock: socket.socket, turns: Turns) -> None:
        self.transports: list[asyncio.BaseTransport] = []
        self.listener = Listener(sock, turns, self.make_connection)

    def make_connection(self) -> asyncio.Protocol:
        worker = self

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                worker.transports.append(transport)

            def connection_lost(self, _: Exception | None) -> None:
                worker.listener.closed()

        return Connection()


def out_of_files(sock: socket.socket) -> Any:
    """Return a socket from which nothing can be accepted at first, for lack of a descriptor."""
    full = Mock(wraps=sock)
    full.accept.side_effect = chain([OSError(errno.EMFILE, "")], repeat(DEFAULT))
    return full


class Workers:
    """Workers that share a socket, of which some are started, and their clients.

    full -- whether the first worker is out of file descriptors
    """

    def __init__(self, sock: socket.socket, count: int, *, full: bool) -> None:
        self.connections = [NOT_LISTENING] * count
        checks = [0] * count
        socks = [sock] * count
        if full:
            socks[0] = out_of_files(sock)
        self.all = [Worker(socks[n], Turns(self.connections, checks, n)) for n in range(count)]
        self.socket = sock
        self.clients: list[socket.socket] = []

    async def connect(self, count: int) -> None:
        """Open connections at once, and wait until all are accepted."""
        expected = len(self.clients) + count
        self.clients += [socket.create_connection(self.socket.getsockname()) for _ in range(count)]
        await eventually(lambda: sum(self.shares) >= expected)

    @property
    def shares(self) -> list[int]:
        """How many connections each worker has been given."""
        return [len(worker.transports) for worker in self.all]


@asynccontextmanager
async def workers(
    count: int, *, started: int | None = None, full: bool = False
) -> AsyncIterator[Workers]:
    """Run workers on one socket."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        running = Workers(sock, count, full=full)
        for worker in running.all[:started]:
            worker.listener.start()
        try:
            yield running
        finally:
            for worker in running.all[:started]:
                worker.listener.close()
                for transport in worker.transports:
                    transport.close()
            for client in running.clients:
                client.close()
            await asyncio.sleep(0)


@pytest.mark.parametrize("connections", [4, 8, 48, 500])
async def test_two_workers_get_equal_shares(connections: int) -> None:
    async with workers(2) as running:
        await running.connect(connections)
        assert max(running.shares) <= 0.6 * connections


async def test_connections_that_come_one_by_one_go_to_the_worker_that_has_fewest() -> None:
    async with workers(4) as running:
        for _ in range(10):
            await running.connect(1)
        assert sorted(running.shares) == [2, 2, 3, 3]
        emptied = running.all[1]
        for transport in emptied.transports:
            transport.close()
        await eventually(lambda: not running.connections[1])
        before = len(emptied.transports)
        await running.connect(2)
        assert len(emptied.transports) == before + 2


async def test_nobody_waits_for_a_worker_that_hangs_or_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "PATIENCE_SECONDS", 0.05)
    async with workers(3, started=2) as running:
        running.connections[2] = 0  # it checks for nothing
        await running.connect(8)
        assert running.shares == [4, 4, 0]
        running.all[0].listener.leave()
        await running.connect(4)
        assert sum(running.shares) == 12


async def test_a_worker_without_file_descriptors_leaves_connections_to_others_meanwhile() -> None:
    async with workers(2, full=True) as running:
        await running.connect(1)
        assert running.shares == [0, 1]
        await eventually(lambda: running.connections == [NOT_LISTENING, 1])
        running.all[0].listener.resume()
        await running.connect(1)
        assert running.shares == [1, 1]


@pytest.mark.parametrize("count", [NOT_LISTENING, 0], ids=["is gone", "hangs"])
async def test_a_worker_without_file_descriptors_closes_connections_if_the_other(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(listener, "PATIENCE_SECONDS", 0.05)
    async with workers(2, started=1, full=True) as running, asyncio.timeout(HANG_SECONDS):
        running.connections[1] = count
        for _ in range(3):
            with socket.create_connection(running.socket.getsockname()) as client:
                client.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        running.all[0].listener.resume()
        await running.connect(1)
        assert running.shares == [1, 0]
