"""Connections that take waiting calls, and send those that can be joined as one statement.

A caller waits for its result only. If it is cancelled, its call still runs to the end, or is never
sent; so a connection is never left with half a reply, and a server that stalls holds no caller.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import uniform
from typing import Any, Final, NamedTuple

import asyncpg

from petstore.contract import StorageError, UnavailableError, WrongStoreError
from petstore_postgres.servers import LOST, ReachedServer, Servers, translated_errors
from petstore_postgres.store import Store

RETRY_SECONDS: Final = 0.1
"""How long to wait before connecting again to a server that has failed."""

CROWDED_SECONDS: Final = 10
"""How long to make do with the open connections after a further one was refused."""

TOGETHER_SECONDS: Final = 0.005
"""While a batch is in flight, later calls wait this long to form the next. Then another connection
takes them: one slow call does not delay all that follow."""

LOCKED: Final = object()
"""The result of a call that did nothing, because another transaction has locked what it changes."""

UNKNOWN: Final = "; a write may have taken effect. See the log of the server"

_UNDONE: Final = (
    # Nothing was done, and the next attempt may succeed: two transactions collided.
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
)

_GAVE_UP: Final = asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError

_log = logging.getLogger("petstore.postgres")


class Statement(NamedTuple):
    """A statement that calls send.

    sql -- with a parameter for each argument of a call
    split -- takes the rows and the arguments of all calls; returns a result for each call
    writes -- whether it may have to wait for locks
    joined -- how many calls may share it; with more than 1, each parameter is an array of the
        arguments of all calls
    serialized -- whether only one call with the same first argument, the id of what it locks, is
        sent at a time, with one more parameter: the milliseconds for which it may wait
    waiting -- sends calls again whose result is `LOCKED`; without it, the same statement does
    """

    sql: str
    split: Callable[[Sequence[Any], Sequence[tuple[Any, ...]]], Sequence[Any]]
    writes: bool = False
    joined: int = 1
    serialized: bool = False
    waiting: "Statement | None" = None


_Queue = tuple[Statement, Any]
"""What calls wait in: their statement, and with `serialized` their first argument, too."""


class _Call(NamedTuple):
    arguments: tuple[Any, ...]
    future: "asyncio.Future[Any]"
    end: float


class Pool:
    """Sends calls to the primary over several connections, each call once.

    Only a call that certainly did nothing is repeated, until its time is over. While there is no
    connection, calls fail at once, and the pool connects again in the background. One connection
    is left to reads, which wait for no locks.

    servers -- where to connect to
    store -- what each connection must have
    size -- how many connections there are at most
    first -- the first connection
    begin -- SQL that each further connection begins with, or ""
    """

    def __init__(
        self, servers: Servers, store: Store, size: int, first: ReachedServer, begin: str
    ) -> None:
        self.servers = servers
        self.store = store
        self._size = size
        self._seconds = servers.seconds
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[_Queue, deque[_Call]] = {}
        # Those whose next calls wait for the reply to the last ones, with what ends that earlier.
        self._sent: dict[_Queue, asyncio.TimerHandle | None] = {}
        self._idle = [first.connection]
        self._timelines = {first.connection: first.state.timeline}  # of all that are open
        self._writing = 0
        self._tasks = set[asyncio.Task[None]]()
        self._opener: asyncio.Task[None] | None = None
        self._crowded_until = 0.0
        self._failure: UnavailableError | None = None  # of all calls
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def call(self, statement: Statement, *arguments: Any) -> "asyncio.Future[Any]":
        """Return the future of a result. It raises `UnavailableError`."""
        future = self._loop.create_future()
        self._add(statement, _Call(arguments, future, self._loop.time() + self._seconds))
        return future

    async def close(self) -> None:
        """Wait for the calls that were sent, then close all connections; at once if cancelled."""
        self._fail(UnavailableError(f"{self.servers.name}: the repository is closed"))
        try:
            if self._opener is not None:
                self._opener.cancel()
                await asyncio.wait([self._opener])
            if self._tasks:  # not longer than the time of their calls
                await asyncio.wait(self._tasks)
            closing = (connection.close(timeout=self._seconds) for connection in self._idle)
            await asyncio.gather(*closing, return_exceptions=True)
        finally:
            for connection in self._timelines:
                connection.terminate()

    def leave_replaced(self) -> None:
        """Close the connections to primaries of a lower timeline than the highest seen."""
        for connection, timeline in self._timelines.items():
            if "" < timeline < self.servers.timeline and not connection.is_closed():
                _log.warning("leaving a replaced primary of %s", self.servers.name)
                connection.terminate()

    def stop(self, failure: UnavailableError) -> None:
        """Close all connections, and fail all calls until a new connection can be opened.

        After a `WrongStoreError` none is opened: what is there is another store.
        """
        if isinstance(self._failure, WrongStoreError):
            return
        wrong = isinstance(failure, WrongStoreError)
        if self._failure is None and not wrong:  # the service logs that
            _log.error("%s", failure)
        if self._opener is not None:
            self._opener.cancel()
        self._fail(failure)
        for connection in self._timelines:
            connection.terminate()
        while self._idle:
            self._timelines.pop(self._idle.pop())
        self._opener = None if wrong else self._loop.create_task(self._connect())

    def _add(self, statement: Statement, call: _Call) -> None:
        """Let a call wait for its turn."""
        if self._failure is not None:
            _fail_all([call], self._failure)
            return
        queue = statement, call.arguments[0] if statement.serialized else None
        self._waiting.setdefault(queue, deque()).append(call)
        if not self._scheduled:  # at the end of this iteration, so that its calls travel together
            self._scheduled = True
            self._loop.call_soon(self._dispatch)
        if self._timer is None:
            self._timer = self._loop.call_at(call.end, self._expire)

    def _dispatch(self) -> None:
        """Give the calls that wait to idle connections; open another one if there is none."""
        self._scheduled = False
        while (queue := self._next()) is not None:
            if not self._idle:
                now = self._loop.time()
                crowded = self._timelines and now <= self._crowded_until
                opening = self._opener is not None and not self._opener.done()
                if not opening and len(self._timelines) < self._size and not crowded:
                    self._opener = self._loop.create_task(self._connect())
                return
            connection = self._idle.pop()
            if connection.is_closed():
                self._timelines.pop(connection)
                continue
            if calls := self._take(queue):
                statement, _ = queue
                self._writing += statement.writes
                if statement.serialized:
                    self._sent[queue] = None
                elif statement.joined > 1:
                    timer = self._loop.call_later(TOGETHER_SECONDS, self._release, queue)
                    self._sent[queue] = timer
                task = self._loop.create_task(self._run(connection, queue, calls))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._idle.append(connection)

    def _next(self) -> _Queue | None:
        """Return the queue whose turn it is, of those whose calls may be sent now."""
        may_write = self._writing < max(1, self._size - 1)
        for queue in self._waiting:
            if (may_write or not queue[0].writes) and queue not in self._sent:
                return queue
        return None

    def _take(self, queue: _Queue) -> list[_Call]:
        """Return calls that share the statement, without those whose callers were cancelled."""
        waiting = self._waiting.pop(queue)
        calls = list[_Call]()
        while waiting and len(calls) < queue[0].joined:
            call = waiting.popleft()
            if not call.future.done():
                calls.append(call)
        if waiting:  # behind the other queues
            self._waiting[queue] = waiting
        return calls

    async def _run(self, connection: Any, queue: _Queue, calls: list[_Call]) -> None:
        """Send a statement; pass the results on to the callers."""
        statement, _ = queue
        begin = self._loop.time()
        timer = self._loop.call_at(calls[0].end, connection.terminate)
        try:
            with translated_errors(self.servers.name, self._seconds):
                results = await self._send(connection, statement, calls)
        except Exception as error:  # noqa: BLE001 - raised in each caller
            if isinstance(error.__context__, asyncpg.InternalClientError):
                connection.terminate()  # it is lost, but asyncpg has not noticed
            if connection.is_closed():
                error = self._to_lost(error, calls[0].end)
            if statement.serialized and isinstance(error.__context__, _GAVE_UP):
                if self._loop.time() < begin + self._seconds / 2:  # only the oldest was late
                    for call in calls[1:]:
                        self._add(statement, call)
                    del calls[1:]
                else:  # those behind it have less time: leave the connection to other calls
                    calls.extend(self._waiting.pop(queue, ()))
            _fail_all(calls, error)
            if isinstance(error, WrongStoreError):
                self.stop(error)
        else:
            self._pass_on(statement, calls, results)
        finally:
            timer.cancel()
            self._writing -= statement.writes
            if connection.is_closed():
                self._timelines.pop(connection)
            else:
                self._idle.append(connection)
            self._release(queue)

    def _pass_on(
        self, statement: Statement, calls: Sequence[_Call], results: Sequence[Any]
    ) -> None:
        """Give each caller its result, unless it was cancelled; send again what is locked."""
        for call, result in zip(calls, results, strict=True):
            if call.future.done():
                continue
            if result is LOCKED:
                self._add(statement.waiting or statement, call)
            elif isinstance(result, StorageError):
                call.future.set_exception(result)
            else:
                call.future.set_result(result)

    def _release(self, queue: _Queue) -> None:
        """Send the next calls of a queue: those before them have a reply, or take long."""
        timer = self._sent.pop(queue, None)
        if timer is not None:
            timer.cancel()
        self._dispatch()

    def _to_lost(self, error: Exception, end: float) -> UnavailableError:
        """Return the error of calls whose connection is closed: their outcome is unknown.

        error -- the translated one, or an AttributeError, which asyncpg raises between two steps
        end -- when the pool has closed it, because the time was over
        """
        cause = error.__context__
        if self._loop.time() >= end:
            reason = f"no reply within {self._seconds:g} s"
        elif isinstance(error, UnavailableError) and isinstance(cause, asyncpg.PostgresError):
            lost = isinstance(cause, asyncpg.ConnectionDoesNotExistError)
            return UnavailableError(f"{error}{UNKNOWN}") if lost else error
        else:
            reason = f"{LOST}{UNKNOWN}"
        return UnavailableError(f"{self.servers.name}: {reason}")

    async def _send(
        self, connection: Any, statement: Statement, calls: list[_Call]
    ) -> Sequence[Any]:
        """Send a statement, again if it did nothing; return the result or error of each call."""
        rows = [call.arguments for call in calls]
        arguments: Sequence[Any] = rows[0]
        if statement.joined > 1:
            arguments = [list(column) for column in zip(*rows, strict=True)]
        while True:
            wait = [self._wait_ms(calls[0])] if statement.serialized else []
            try:
                found = await connection.fetch(statement.sql, *arguments, *wait)
            except asyncpg.SequenceGeneratorLimitExceededError:
                if len(calls) == 1:
                    return [StorageError("all ids have been assigned")]
                # A replay needs no id, and there may be one for the first.
                alone = [await self._send(connection, statement, [call]) for call in calls]
                return [result for (result,) in alone]
            except asyncpg.ReadOnlySQLTransactionError:  # it is no longer the primary
                connection.terminate()
                raise
            except _UNDONE:
                pause = uniform(0.001, 0.02)  # noqa: S311 - it keeps nothing secret
                left = calls[0].end - self._loop.time() - pause
                if left < self._seconds / 5 or connection.is_closed():
                    raise
                await asyncio.sleep(pause)
            else:
                return statement.split(found, rows)

    def _wait_ms(self, call: _Call) -> int:
        """Return for how long a call may wait for a lock: until 80 % of its time are over."""
        left = call.end - self._seconds / 5 - self._loop.time()
        return max(1, round(left * 1000))  # 0 is no limit

    async def _connect(self) -> None:
        """Open a connection; if there is none at all, try again until one is open."""
        while True:
            try:
                primary = await self.servers.connect()
                await self._check(primary.connection)
            except WrongStoreError as error:
                self.stop(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, try again
                if self._timelines:
                    self._crowded_until = self._loop.time() + CROWDED_SECONDS
                    _log.warning("continuing with %d connections: %s", len(self._timelines), error)
                    break
                if self._failure is None:
                    _log.error("%s", error)
                self._fail(UnavailableError(str(error)))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if self._failure is not None:
                    _log.info("%s is available again", self.servers.name)
                self._failure = None
                self._timelines[primary.connection] = primary.state.timeline
                self._idle.append(primary.connection)
                self.leave_replaced()
                break
        self._opener = None
        self._dispatch()

    async def _check(self, connection: Any) -> None:
        """Check that a new connection has the store; close it if not."""
        try:
            with translated_errors(self.servers.name, self._seconds):
                async with asyncio.timeout(self._seconds):
                    if self._begin:
                        await connection.execute(self._begin)
                    await self.store.check(connection.fetchrow)
        except BaseException as error:
            lost = isinstance(error, AttributeError) and connection.is_closed()  # asyncpg's own
            connection.terminate()
            if lost:
                raise UnavailableError(f"{self.servers.name}: {LOST}") from None
            raise

    def _fail(self, failure: UnavailableError) -> None:
        """Fail all calls that wait, and all that come, until there is a connection."""
        self._failure = failure
        waiting, self._waiting = self._waiting, {}
        for calls in waiting.values():
            _fail_all(calls, failure)

    def _expire(self) -> None:
        """Fail the calls that have waited for too long to be sent."""
        now = self._loop.time()
        reason = f"{self.servers.name}: no connection was free within {self._seconds:g} s"
        try:
            for statement, calls in list(self._waiting.items()):
                while calls and calls[0].end <= now:
                    _fail_all([calls[0]], UnavailableError(reason))
                    calls.popleft()
                if not calls:
                    del self._waiting[statement]
        finally:
            ends = [calls[0].end for calls in self._waiting.values() if calls]
            self._timer = self._loop.call_at(min(ends), self._expire) if ends else None


def _fail_all(calls: Iterable[_Call], error: Exception) -> None:
    """Fail each call with its own copy of the error, unless its caller was cancelled."""
    for call in calls:
        if not call.future.done():
            copy = type(error)(*error.args) if isinstance(error, StorageError) else error
            call.future.set_exception(copy)
