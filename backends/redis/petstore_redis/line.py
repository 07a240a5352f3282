"""A line to one server: all callers share its connection, and nothing is ever sent twice.

What is called in one turn of the event loop travels together. Once a server has failed, calls fail
at once, while the line tries to reach it again in the background.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import hiredis

from petstore.contract import StorageError, UnavailableError

RETRY_SECONDS: Final = 0.1
"""How long to wait before a server that has failed is tried again."""

_pack: Callable[[Any], bytes] = hiredis.pack_command  # its stub knows tuples of one part only

Answer = asyncio.Future[Any]
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[Any, Any]]]
Hello = Callable[[Callable[..., Answer]], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One connection, while it lasts: answers come in the order of the commands.

    name -- what messages call the server
    seconds -- how long an answer may take
    lost -- called once, when the connection is gone
    failure -- why it is gone; None while it is not
    """

    def __init__(self, name: str, seconds: float, lost: Callable[["Connection"], None]) -> None:
        self.failure: UnavailableError | None = None
        self._name = name
        self._seconds = seconds
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[Answer, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = transport

    def send(self, packed: list[bytes], futures: list[Answer]) -> None:
        """Send packed commands; their answers go to the futures."""
        if self.failure is not None:
            fail(futures, self.failure)
            return
        end = self._loop.time() + self._seconds
        self._waiting.extend([(future, end) for future in futures])
        if self._timer is None:
            self._timer = self._loop.call_at(end, self._check)
        self._transport.write(b"".join(packed))

    @property
    def busy(self) -> bool:
        """Whether commands wait for an answer."""
        return bool(self._waiting)

    def ask(self, *command: bytes | str | int) -> Answer:
        """Send a command at once; return what becomes its answer."""
        future = self._loop.create_future()
        self.send([_pack(command)], [future])
        return future

    def close(self, reason: str) -> None:
        """Close the connection. What waits for an answer fails: its outcome is unknown."""
        if self.failure is not None:
            return
        self.failure = UnavailableError(f"{self._name}: {reason}")
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._lost(self)
        fail([future for future, _ in self._waiting], self.failure)

    def data_received(self, data: bytes) -> None:
        """Give the answers to those who wait for them."""
        self._reader.feed(data)
        gets, waiting = self._reader.gets, self._waiting
        try:
            while (answer := gets()) is not False:
                if not waiting:  # such as: max number of clients reached
                    self.close(str(answer))
                    return
                future, _ = waiting.popleft()
                if future.done():  # its caller was cancelled
                    continue
                if isinstance(answer, hiredis.ReplyError):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except hiredis.ProtocolError:
            self.close("what answers there does not speak Redis")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits for an answer."""
        self.close(f"the connection was lost{f' ({_reason(exc)})' if exc else ''}")

    def _check(self) -> None:
        """Close the connection if the oldest command has waited for too long."""
        self._timer = None
        if self._waiting:
            end = self._waiting[0][1]
            if end <= self._loop.time():
                self.close(f"no answer within {self._seconds:g} s")
            else:
                self._timer = self._loop.call_at(end, self._check)


class Line:
    """The way to one server; opened by the first call.

    connect -- opens a connection for a protocol
    hello -- greets the server on a new connection; raises the `StorageError` that is wrong with it
    name -- what messages call the server
    seconds -- how long connecting, and an answer, may take
    replicas -- how many replicas must have what was sent before it counts as answered (WAIT)
    """

    def __init__(
        self, connect: Connect, hello: Hello, name: str, seconds: float, replicas: int = 0
    ) -> None:
        self._connect = connect
        self._hello = hello
        self._name = name
        self._seconds = seconds
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self._packed: list[bytes] = []
        self._futures: list[Answer] = []
        self._connection: Connection | None = None
        self._opener: asyncio.Task[None] | None = None
        self._failure: StorageError | None = None
        self._closed = False

    @property
    def down(self) -> bool:
        """Whether calls fail at present."""
        return self._failure is not None

    @property
    def busy(self) -> bool:
        """Whether calls wait for an answer."""
        return bool(self._futures or (self._connection and self._connection.busy))

    def call(self, *command: bytes | str | int) -> Answer:
        """Send a command; return what becomes its answer.

        It fails with `hiredis.ReplyError` for an error that the server answers, with
        `UnavailableError` where there is no answer, and with what `hello` raised.
        """
        future = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(type(self._failure)(*self._failure.args))
            return future
        if not self._packed:
            self._loop.call_soon(self._flush)
        self._packed.append(_pack(command))
        self._futures.append(future)
        return future

    def drop(self, reason: str) -> None:
        """Close the connection, for this server is not, or no longer, the right one."""
        if self._connection is not None:
            self._connection.close(reason)

    async def close(self, reason: str = "the repository is closed") -> None:
        """Close the connection for good: every later call fails."""
        self._closed = True
        self._fail(self._unavailable(reason))
        if self._opener is not None:
            self._opener.cancel()
            await asyncio.wait([self._opener])
        self.drop(reason)

    def _flush(self) -> None:
        """Send what was called in this turn of the loop, once there is a connection."""
        if self._connection is None:
            if self._opener is None and self._packed:
                self._opener = self._loop.create_task(self._open())
            return
        packed, futures = self._packed, self._futures
        if not packed:
            return
        self._packed, self._futures = [], []
        if self._replicas:
            # WAIT is over before the line gives up, and stands for all that went before it. Servers
            # look ten times a second whether it is.
            wait = ("WAIT", self._replicas, max(1, round(self._seconds * 800) - 100))
            packed.append(_pack(wait))
            answers = [self._loop.create_future() for _ in packed]
            answers[-1].add_done_callback(partial(self._replicated, futures, answers))
            futures = answers
        self._connection.send(packed, futures)

    def _replicated(self, futures: list[Answer], answers: list[Answer], wait: Answer) -> None:
        """Hand on the answers to writes, once it is known how many replicas have them."""
        error = wait.exception()
        if error is None and wait.result() < self._replicas:
            has = f"{wait.result()} of {self._replicas} replicas have the write in time"
            error = self._unavailable(f"{has}; it may or may not last")
        for future, answer in zip(futures, answers[:-1], strict=True):
            failure = answer.exception() or error
            if future.done():  # its caller was cancelled
                continue
            if failure is None:
                future.set_result(answer.result())
            else:
                future.set_exception(failure)

    async def _open(self) -> None:
        """Open a connection, again and again until there is one."""
        while self._connection is None:
            try:
                async with asyncio.timeout(self._seconds):
                    connection = await self._greeted()
            except StorageError as error:
                self._fail(error)
            except OSError as error:
                self._fail(self._unavailable(_reason(error, self._seconds)))
            else:
                self._connection, self._failure = connection, None
                continue
            await asyncio.sleep(RETRY_SECONDS)
        self._opener = None
        self._flush()

    async def _greeted(self) -> Connection:
        """Return a connection that the server has welcomed. It is closed if that fails."""
        connection: Connection
        _, connection = await self._connect(
            lambda: Connection(self._name, self._seconds, self._lose)
        )
        try:
            await self._hello(connection.ask)
        except BaseException:
            connection.close("it is of no use")
            raise
        if connection.failure is not None:  # in the same moment
            raise connection.failure
        return connection

    def _lose(self, connection: Connection) -> None:
        if connection is self._connection and connection.failure is not None:
            self._connection = None
            self._fail(connection.failure)
            if not self._closed:
                self._opener = self._loop.create_task(self._open())

    def _fail(self, failure: StorageError) -> None:
        """Let what was not sent fail, and all further calls until there is a connection."""
        self._failure = failure
        futures, self._futures, self._packed = self._futures, [], []
        fail(futures, failure)

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(f"{self._name}: {reason}")


def fail(futures: list[Answer], failure: StorageError) -> None:
    """Let each future fail with an error of its own, unless its caller was cancelled."""
    for future in futures:
        if not future.done():
            future.set_exception(type(failure)(*failure.args))


def _reason(error: Exception, seconds: float = 0) -> str:
    """Return what has gone wrong with a connection, in one line."""
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no answer within {seconds:g} s"
    return (isinstance(error, OSError) and error.strerror) or str(error)
