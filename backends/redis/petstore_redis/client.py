"""A client of one server: all callers share its connection, and no command is ever sent twice.

Commands of one iteration of the event loop are sent together (pipelining), as far as there is room
in the window; the others wait, in order, until there is. Once a server has failed, calls fail at
once, while the client reconnects in the background.
"""

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import hiredis

from petstore.contract import StorageError, UnavailableError
from petstore_redis.packing import pack
from petstore_redis.replies import handshake_error

RECONNECT_SECONDS: Final = 0.1
"""How long to wait before reconnecting to a server that has failed."""

WINDOW_BYTES: Final = 1024 * 1024
"""How many bytes may be in flight on a connection, unless a single command and its reply are more.

Those of commands without a reply count, and for each the bytes that replies had lately.
"""

_LEAST_EXPECTED: Final = WINDOW_BYTES // 256
"""How many bytes a reply counts at least, as it may be larger than those before it."""

ASKING: Final = pack("ASKING")
"""It is about the command after it: nothing may come between them, not even WAIT."""

_CHECKS: Final = 10
"""How often in the time for a reply a connection is checked for progress."""

Reply = asyncio.Future[Any]
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[tuple[Any, Any]]]
Handshake = Callable[[Callable[..., Reply]], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One connection, from connected to closed. Replies come in the order of the commands.

    name -- the server's name in messages
    seconds -- how long there may be no progress while a reply is due: no byte comes, and the system
        takes none of those to send. A reply that is arriving is never late
    on_close -- called once, when the connection is closed or lost
    on_room -- called after replies have come, if commands wait for room in the window
    held -- whether commands wait for that
    failure -- why it was closed or lost; None while it is open
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        on_close: Callable[["Connection"], None],
        on_room: Callable[[], None],
    ) -> None:
        self.held = False
        self.failure: UnavailableError | None = None
        self._name = name
        self._seconds = seconds
        self._on_close = on_close
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[Reply] = deque()
        self._sent = 0  # commands
        self._packets: deque[tuple[int, int]] = deque()  # commands sent with it, and its bytes
        self._unreplied = 0  # bytes of the packets that have a command that waits
        self._arrived = 0  # bytes since the last reply
        self._expected = WINDOW_BYTES  # bytes of a reply: one at a time until they are known
        self._progress = False  # since the last check
        self._unsent = 0  # bytes at the last check
        self._checks = 0  # since the last progress
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: from now on commands can be sent."""
        self._transport = transport

    def send(self, packed: list[bytes], futures: list[Reply]) -> None:
        """Send packed commands; their replies go to the futures."""
        if self.failure is not None:
            _fail_all(futures, self.failure)
            return
        if not self._waiting:  # the time begins now
            self._progress = True
            if self._timer is None:
                self._schedule_check()
        self._waiting.extend(futures)
        data = b"".join(packed)
        self._sent += len(packed)
        self._packets.append((self._sent, len(data)))
        self._unreplied += len(data)
        self._transport.write(data)

    def fitting(self, packed: list[bytes]) -> int:
        """Return how many of these commands the window has room for; one if nothing waits."""
        expected = self._expected
        room = WINDOW_BYTES - self._unreplied - expected * len(self._waiting)
        if sum(map(len, packed)) + expected * len(packed) <= room:
            return len(packed)
        count = 0
        while (room := room - len(packed[count]) - expected) >= 0:
            count += 1
        return count or int(not self._waiting)

    @property
    def busy(self) -> bool:
        """Whether commands wait for a reply."""
        return bool(self._waiting)

    def call(self, *command: bytes | str | int) -> Reply:
        """Send a command at once; return the future of its reply."""
        future = self._loop.create_future()
        self.send([pack(*command)], [future])
        return future

    def close(self, reason: str | UnavailableError) -> None:
        """Close the connection. Commands that wait for a reply fail: their outcome is unknown."""
        if self.failure is not None:
            return
        self.failure = _failure(self._name, reason)
        self._transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        self._on_close(self)
        _fail_all(self._waiting, self.failure)

    def data_received(self, data: bytes) -> None:
        """Pass the replies to their callers."""
        self._progress = True
        self._arrived += len(data)
        self._reader.feed(data)
        gets, waiting = self._reader.gets, self._waiting
        before = len(waiting)
        try:
            while (reply := gets()) is not False:
                if not waiting:  # such as: max number of clients reached
                    self.close(str(reply))
                    return
                future = waiting.popleft()
                if future.done():  # its caller was cancelled
                    continue
                if isinstance(reply, hiredis.ReplyError):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except hiredis.ProtocolError:
            self.close("it does not speak the Redis protocol")
            return
        if replied := before - len(waiting):
            self._count(replied)
            if self.held:
                self._on_room()

    def _count(self, replied: int) -> None:
        """Count what is no longer in flight, and how large replies are."""
        expected = max(self._arrived // replied, self._expected // 2, _LEAST_EXPECTED)
        self._expected = min(expected, WINDOW_BYTES)
        self._arrived = 0
        packets, received = self._packets, self._sent - len(self._waiting)
        while packets and packets[0][0] <= received:
            self._unreplied -= packets.popleft()[1]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the commands that wait for a reply."""
        self.close(f"the connection was lost{f' ({_reason(exc)})' if exc else ''}")

    def _check(self) -> None:
        """Close the connection if there has been no progress for too long while commands wait.

        Checks are counted, not seconds: while the event loop is busy, bytes that came are not read.
        """
        self._timer = None
        if not self._waiting:
            return
        self._schedule_check()  # first: without it no later check would be made
        unsent = self._transport.get_write_buffer_size()
        self._checks = 0 if self._progress or unsent < self._unsent else self._checks + 1
        self._progress, self._unsent = False, unsent
        if self._checks == _CHECKS:
            self.close(f"no reply within {self._seconds:g} s")

    def _schedule_check(self) -> None:
        self._timer = self._loop.call_later(self._seconds / _CHECKS, self._check)


class RedisClient:
    """A client of one server. It connects on the first call, and again after each failure.

    connect -- opens a connection for a protocol
    handshake -- prepares a new connection; raises `StorageError` if the server cannot be used, may
        raise `ReplyError`, and `ValueError` for a reply that cannot be read
    name -- the server's name in messages
    seconds -- how long connecting may take, and how long a reply, see `Connection`
    replicas -- how many replicas must confirm a write before its reply is returned (WAIT)
    follower -- another client of the server, which connects anew whenever this one does: another
        server may have taken over the address
    """

    def __init__(
        self, connect: Connect, handshake: Handshake, name: str, seconds: float, replicas: int = 0
    ) -> None:
        self.follower: RedisClient | None = None
        self._connect = connect
        self._handshake = handshake
        self._name = name
        self._seconds = seconds
        self._replicas = replicas
        # It must time out before the client does; servers check ten times a second whether it has.
        self._wait = pack("WAIT", replicas, max(1, round(seconds * 800) - 100))
        self._loop = asyncio.get_running_loop()
        self._packed: list[bytes] = []
        self._futures: list[Reply] = []
        self._connection: Connection | None = None
        self._opener: asyncio.Task[None] | None = None
        self._failure: StorageError | None = None
        self._closed = False

    @property
    def down(self) -> bool:
        """Whether calls fail at the moment."""
        return self._failure is not None

    @property
    def busy(self) -> bool:
        """Whether calls wait for a reply."""
        return bool(self._futures or (self._connection and self._connection.busy))

    def call(self, *command: bytes | str | int) -> Reply:
        """Send a command; return the future of its reply, as `send` does."""
        return self.send(pack(*command))

    def send(self, packed: bytes) -> Reply:
        """Send a packed command; return the future of its reply.

        The future raises `hiredis.ReplyError` for an error reply, `UnavailableError` if there is
        no reply, and the error of the handshake.
        """
        future = self._loop.create_future()
        if self._failure is not None:
            future.set_exception(type(self._failure)(*self._failure.args))
            return future
        if not self._packed:
            self._loop.call_soon(self._flush)
        self._packed.append(packed)
        self._futures.append(future)
        return future

    def disconnect(self, reason: str | UnavailableError) -> None:
        """Close the connection; the client reconnects."""
        if self._connection is not None:
            self._connection.close(reason)

    def restart(self, failure: UnavailableError) -> None:
        """Connect anew, also if there is no connection yet; calls fail until there is one."""
        if self._connection is not None:
            self.disconnect(failure)
        elif not self._closed:
            if self._opener is not None:
                self._opener.cancel()
            self._fail(failure)
            self._opener = self._loop.create_task(self._open())

    def close(self, reason: str | UnavailableError = "the repository is closed") -> None:
        """Close the connection for good: every later call fails for this reason."""
        self._closed = True
        self._fail(_failure(self._name, reason))
        if self._opener is not None:
            self._opener.cancel()
        self.disconnect(reason)

    def _flush(self) -> None:
        """Send the commands of this iteration of the loop, once there is a connection and room.

        With replicas, one packet at a time: each WAIT blocks its connection, so those of many
        packets would add up.
        """
        connection = self._connection
        if connection is None:
            if self._opener is None and self._packed:
                self._opener = self._loop.create_task(self._open())
            return
        packed, futures = self._packed, self._futures
        if not packed:
            return
        count = 0 if self._replicas and connection.busy else connection.fitting(packed)
        while 0 < count < len(packed) and packed[count - 1] == ASKING:
            count += 1
        connection.held = count < len(packed)
        if not count:
            return
        self._packed, self._futures = packed[count:], futures[count:]
        if connection.held:
            packed, futures = packed[:count], futures[:count]
        if self._replicas:
            packed.append(self._wait)
            replies = [self._loop.create_future() for _ in packed]
            replies[-1].add_done_callback(partial(self._replicated, futures, replies))
            futures = replies
        try:
            connection.send(packed, futures)
        except Exception as error:
            connection.close(_reason(error))
            _fail_all(futures, self._failure or UnavailableError(_reason(error)))
            raise

    def _replicated(self, futures: list[Reply], replies: list[Reply], wait: Reply) -> None:
        """Pass on the replies to writes, now that the reply to WAIT is there."""
        error = wait.exception()
        if error is None and wait.result() < self._replicas:
            error = UnavailableError(
                f"{self._name}: {wait.result()} of {self._replicas} replicas confirmed the write in"
                " time, so it may or may not last; connect more replicas or lower"
                " PETSTORE_REDIS_WAIT_REPLICAS"
            )
        for future, reply in zip(futures, replies[:-1], strict=True):
            failure = reply.exception() or error
            if future.done():  # its caller was cancelled
                continue
            if failure is None:
                future.set_result(reply.result())
            else:
                future.set_exception(failure)

    async def _open(self) -> None:
        """Connect, and try again until it succeeds."""
        while self._connection is None:
            try:
                async with asyncio.timeout(self._seconds):
                    connection = await self._connected()
            except StorageError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, try again
                self._fail(_failure(self._name, _reason(error, self._seconds)))
            else:
                self._connection, self._failure = connection, None
                continue
            await asyncio.sleep(RECONNECT_SECONDS)
        self._opener = None
        self._flush()

    async def _connected(self) -> Connection:
        """Return a new connection after the handshake. It is closed if the handshake fails."""
        connection: Connection
        _, connection = await self._connect(
            lambda: Connection(self._name, self._seconds, self._on_close, self._flush)
        )
        try:
            await self._handshake(connection.call)
        except BaseException as error:
            connection.close("the handshake failed")
            if isinstance(error, (hiredis.ReplyError, ValueError)):
                raise handshake_error(self._name, error) from None
            raise
        if connection.failure is not None:  # lost right after the handshake
            raise connection.failure
        return connection

    def _on_close(self, connection: Connection) -> None:
        if connection is self._connection and connection.failure is not None:
            self._connection = None
            failure = connection.failure
            held, self._futures, self._packed = self._futures, [], []
            self._fail(failure)
            _fail_all(held, type(failure)(f"{failure}; this call was not carried out"))
            if self.follower is not None:
                self.follower.restart(failure)
            if not self._closed:
                self._opener = self._loop.create_task(self._open())

    def _fail(self, failure: StorageError) -> None:
        """Fail the commands not yet sent, and all calls until there is a connection."""
        self._failure = failure
        futures, self._futures, self._packed = self._futures, [], []
        _fail_all(futures, failure)


async def authenticate(call: Callable[..., Reply], user: str, password: str) -> None:
    """Log in on a new connection, if there is a password."""
    if password:
        await call("AUTH", *((user, password) if user else (password,)))


def _failure(name: str, reason: str | UnavailableError) -> UnavailableError:
    return reason if isinstance(reason, UnavailableError) else UnavailableError(f"{name}: {reason}")


def _fail_all(futures: Iterable[Reply], failure: StorageError) -> None:
    """Fail each future with its own copy of the error, unless its caller was cancelled."""
    for future in futures:
        if not future.done():
            future.set_exception(type(failure)(*failure.args))


def _reason(error: Exception, seconds: float = 0) -> str:
    """Return why a connection failed, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message.rstrip('.')}); correct it, or"
            " correct PETSTORE_REDIS_URL: the host, or the file of its authority"
            " (?ssl_ca_certs=/path/ca.pem)"
        )
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no reply within {seconds:g} s"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
