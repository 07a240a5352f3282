"""The servers that a URL names, and connections to the primary, or to one that can be read."""

import asyncio
import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, NamedTuple

import asyncpg

from petstore.contract import SettingsError, StorageError, UnavailableError, WrongStoreError
from petstore_postgres.address import hide_unreadable_home, parse
from petstore_postgres.arrays import ArrayConnection

OTHERS_SECONDS: Final = 0.3
"""How long to wait for the other servers once a writable one has been found."""

ASK_SECONDS: Final = 1.0
"""How long all servers may take to say what they are."""

LOST: Final = "the connection was lost"

TO_USE_IT: Final = "restart the service without PETSTORE_STORE to use what is there now"

_TO_CHECK: Final = "check PETSTORE_POSTGRES_URL"
_REMEDIES: Final = {
    # By SQLSTATE, what a server refuses until its settings or ours are changed, and what to do.
    "08P01": "behind PgBouncer, set PETSTORE_POSTGRES_PGBOUNCER=true, and no parameters in"
    " PETSTORE_POSTGRES_URL but those of TLS",
    "28000": "check the user in PETSTORE_POSTGRES_URL, and pg_hba.conf",
    "28P01": "check the user and the password in PETSTORE_POSTGRES_URL",
    "42704": "correct its name in PETSTORE_POSTGRES_URL, or leave it out",
    "3D000": "create it, or name another in PETSTORE_POSTGRES_URL",
    "0A000": _TO_CHECK,  # a feature that it does not support
    "22023": _TO_CHECK,  # the value of a parameter
    "42501": _TO_CHECK,  # a privilege
}

_GONE: Final = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError)
_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the connection was lost between two steps of asyncpg
    OSError,
)

STATE: Final = """SELECT
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
    pg_postmaster_start_time(), current_setting('server_version_num')::int / 10000,
    current_setting('server_version'), current_setting('fsync'),
    current_setting('synchronous_commit'), current_setting('full_page_writes'),
    current_setting('synchronous_standby_names')"""
"""Reads the fields of a `ServerState`; also in a transaction that is read-only for a snapshot."""

_log = logging.getLogger("petstore.postgres")


class ServerState(NamedTuple):
    """What a server is, and what it promises.

    timeline -- of a primary, 8 hexadecimal digits: a higher one was promoted later, which the
        other one may not have noticed
    """

    read_only: bool
    timeline: str
    started: datetime
    major: int
    version: str
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    standbys: str


class ReachedServer(NamedTuple):
    """A connection to a server."""

    name: str
    state: ServerState
    connection: Any


class Servers:
    """The servers of one store, of which one is the primary.

    url -- as `PostgresSettings.url`
    seconds -- how long connecting, and a statement, may take
    pgbouncer -- whether a PgBouncer in front of them pools transactions
    writes -- whether a server must accept writes; if not, a connection to a standby will do when no
        primary is found
    timeline -- the highest one of a primary so far: one of a lower timeline was replaced
    ignored -- the parameters that have no effect, and where they stand
    """

    def __init__(
        self, url: str, seconds: float, *, pgbouncer: bool = False, writes: bool = True
    ) -> None:
        address = parse(url)
        hide_unreadable_home()
        self.seconds = seconds
        self._writes = writes
        self._addresses = address.servers
        self.name = ", ".join(map(_name, address.servers))
        self.ignored = address.ignored
        self.timeline = ""
        self._promises: tuple[Any, ...] = ()
        self._split_brain = ""
        self._asking: dict[int, asyncio.Task[ReachedServer | None]] = {}  # by number of the address
        self._options: dict[str, Any] = {"dsn": address.dsn, "timeout": seconds, "ssl": address.tls}
        self._options["connection_class"] = ArrayConnection
        self._options["target_session_attrs"] = "any"  # whatever the environment says
        if pgbouncer:  # it gives each transaction another session
            self._options["statement_cache_size"] = 0
        else:
            self._options["server_settings"] = {
                "application_name": address.application_name,
                "default_transaction_isolation": "read committed",
                # The server gives up before the client does, which would cost the connection.
                "statement_timeout": f"{max(1, round(seconds * 800))}",
            }

    async def connect(self) -> ReachedServer:
        """Return a connection to the primary: of several, that of the highest timeline.

        Raises `SettingsError` if what prevents it will not pass, or else `UnavailableError`.
        """
        if self._split_brain:
            raise UnavailableError(self._split_brain)
        tasks = [asyncio.ensure_future(self._reach(address)) for address in self._addresses]
        found: list[asyncio.Task[ReachedServer]] = []
        failures: list[StorageError] = []
        pending, best = set(tasks), None
        try:
            while pending:
                seconds = OTHERS_SECONDS if found else None
                done, pending = await asyncio.wait(
                    pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for task in done:
                    try:
                        self._check_writable(task.result().name, task.result().state)
                        found.append(task)
                    except StorageError as error:
                        failures.append(error)
            chosen = self._choose([task.result() for task in found])
            if chosen is None:
                raise _combine(failures + [self._outdated(task.result()) for task in found])
            self.approve(chosen.state)
            best = next(task for task in found if task.result() is chosen)
        finally:  # without waiting: if it were cancelled meanwhile, a connection would be lost
            for task in tasks:
                if task is not best:
                    task.cancel()
                    task.add_done_callback(_terminate)
        return chosen

    async def check(self) -> None:
        """Ask all servers what they are, over connections that stay open.

        Raises `UnavailableError` if more than one is the primary; `connect` then does, too.
        """
        if len(self._addresses) < 2:
            return
        for number, address in enumerate(self._addresses):
            asked = self._asking.get(number)
            if asked is None or asked.done():
                before = asked.result() if asked else None
                self._asking[number] = asyncio.create_task(self._ask(address, before))
        # One that does not reply in time is not waited for, but may still reply to the next check.
        done, _ = await asyncio.wait(self._asking.values(), timeout=ASK_SECONDS)
        found = [task.result() for task in done if not task.cancelled()]
        self._split_brain = ""
        try:
            self._choose([reached for reached in found if reached is not None])
        except UnavailableError as error:
            self._split_brain = str(error)
            raise

    def approve(self, state: ServerState) -> None:
        """Refuse a server that loses pets by design; warn of settings that may lose some.

        Logs what it promises, and later when that has changed. Raises `SettingsError`.
        """
        self._check_writable(self.name, state)
        if state.major < 14:
            raise SettingsError(f"{self.name} is version {state.version}; 14 or newer is required")
        if state.fsync != "on":
            raise SettingsError(
                f"{self.name} does not sync its files (fsync = off): a power failure may lose"
                " everything; set fsync = on"
            )
        promises = state[4:]
        if promises == self._promises:
            return
        self._promises = promises
        for setting in ("synchronous_commit", "full_page_writes"):
            if getattr(state, setting) == "off":
                _log.warning(
                    "%s has %s = off: a crash of the server may lose acknowledged writes, and"
                    " assign their ids again",
                    self.name,
                    setting,
                )
        _log.info(
            "%s is version %s, synchronous_commit = %s, synchronous standbys: %s",
            self.name,
            state.version,
            state.synchronous_commit,
            state.standbys or "none",
        )

    def close(self) -> None:
        """Close the connections that the checks use. Later checks open none."""
        self._addresses = []
        for task in self._asking.values():
            asyncio.get_running_loop().call_soon(task.cancel)  # once it has its connection
            task.add_done_callback(_terminate)

    def _choose(self, found: list[ReachedServer]) -> ReachedServer | None:
        """Return the primary. Without one, return a server that can only be read, if there is any.

        Return None if all that were found are primaries older than one seen before.

        Raises `UnavailableError` if there are several primaries. Addresses of one server are no
        split brain.
        """
        writable = [reached for reached in found if not reached.state.read_only]
        self.timeline = max([self.timeline, *(reached.state.timeline for reached in writable)])
        primaries = [reached for reached in writable if reached.state.timeline == self.timeline]
        if len({reached.state.started for reached in primaries}) > 1:
            raise UnavailableError(
                f"{' and '.join(sorted(reached.name for reached in primaries))} both accept writes"
                f" (timeline {int(self.timeline, 16)}): stop all but the primary, or make them its"
                " standbys"
            )
        readable = (reached for reached in found if reached.state.read_only)
        return primaries[0] if primaries else next(readable, None)

    def _outdated(self, reached: ReachedServer) -> UnavailableError:
        return UnavailableError(
            f"{reached.name} is on timeline {int(reached.state.timeline, 16)}, but the primary was"
            f" on timeline {int(self.timeline, 16)}: it was replaced. Start the new primary, or"
            " restart the service to use this one"
        )

    def _check_writable(self, name: str, state: ServerState) -> None:
        if state.read_only and self._writes:
            raise SettingsError(
                f"{name} is a standby, or read-only: name the primary in PETSTORE_POSTGRES_URL, or"
                " serve it with PETSTORE_READ_ONLY=true"
            )

    async def _reach(self, address: dict[str, Any]) -> ReachedServer:
        with translated_errors(self.name, self.seconds, opening=True):
            async with asyncio.timeout(self.seconds):
                connection = await asyncpg.connect(**address, **self._options)
        return ReachedServer(_name(address), await self._read(connection), connection)

    async def _ask(
        self, address: dict[str, Any], before: ReachedServer | None
    ) -> ReachedServer | None:
        """Return what a server is now, over the same connection as before if there was one."""
        try:
            if before is None:
                return await self._reach(address)
            return before._replace(state=await self._read(before.connection))
        except StorageError:
            return None

    async def _read(self, connection: Any) -> ServerState:
        """Return what the server of a connection is; close the connection if it fails."""
        with translated_errors(self.name, self.seconds, opening=True):
            async with asyncio.timeout(self.seconds):
                try:
                    return ServerState(*await connection.fetchrow(STATE))
                except BaseException:
                    connection.terminate()
                    raise


def _terminate(task: asyncio.Task[Any]) -> None:
    """Close the connection of a `ReachedServer` that is not used, if there is one."""
    if not task.cancelled() and task.exception() is None and task.result() is not None:
        task.result().connection.terminate()


def _name(address: dict[str, Any]) -> str:
    return f"postgres at {address.get('host', 'the default socket')}:{address['port']}"


def _combine(failures: list[StorageError]) -> StorageError:
    """Return one error for all servers. One that cannot be reached may be the primary."""
    reasons = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    unavailable = any(isinstance(failure, UnavailableError) for failure in failures)
    return UnavailableError(reasons) if unavailable else SettingsError(reasons)


@contextmanager
def translated_errors(name: str, seconds: float, *, opening: bool = False) -> Iterator[None]:
    """Turn errors of asyncpg and of the network into `UnavailableError`.

    opening -- whether an error that will not pass is a `SettingsError`
    """
    try:
        yield
    except _GONE as error:
        raise WrongStoreError(
            f"{name}: {error}: the store, or a part of it, was dropped. Restore its data, or"
            f" {TO_USE_IT}"
        ) from None
    except asyncpg.UndefinedFunctionError as error:
        raise UnavailableError(
            f"{name}: {_reason(error, seconds)}: a newer release has upgraded the store, or it was"
            " damaged; restart the service with that release, or restore the store"
        ) from None
    except _ERRORS as error:
        message = f"{name}: {_reason(error, seconds)}"
        if not opening:
            raise UnavailableError(message) from None
        if remedy := _remedy(error):
            raise SettingsError(f"{message}; {remedy}") from None
        if isinstance(error, ssl.SSLCertVerificationError):
            message += (
                "; correct it, or correct PETSTORE_POSTGRES_URL: the host, or the file of its"
                " authority (sslrootcert=/path/ca.pem)"
            )
        raise UnavailableError(message) from None
    except Exception as error:
        if not opening or isinstance(error, StorageError):
            raise
        if isinstance(error, AttributeError):  # asyncpg's, between two of its steps
            raise UnavailableError(f"{name}: {LOST}") from None
        reason = "" if isinstance(error, ValueError) else f": {error}"  # it may show a password
        raise SettingsError(
            f"{name}: cannot connect ({type(error).__name__}{reason}); check PETSTORE_POSTGRES_URL"
        ) from None


def _remedy(error: Exception) -> str:
    """Return what to do about an error while connecting that will not pass, or the empty string."""
    if isinstance(error, ConnectionError) and "rejected SSL" in str(error):
        return "change sslmode in PETSTORE_POSTGRES_URL, or give the server a certificate"
    if isinstance(error, asyncpg.InterfaceError) and not _is_lost(error):
        return _TO_CHECK  # asyncpg does not understand it
    return _REMEDIES.get(getattr(error, "sqlstate", None) or "", "")


def _is_lost(error: Exception) -> bool:
    """Return whether asyncpg has noticed between two of its steps that the connection is gone."""
    return isinstance(error, asyncpg.InternalClientError) or (
        isinstance(error, asyncpg.InterfaceError) and "connection is closed" in str(error)
    )


def _reason(error: Exception, seconds: float) -> str:
    """Return why a call failed, in one line."""
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no reply within {seconds:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return (os.strerror(error.errno) if error.errno > 0 else str(error.strerror)).lower()
    if isinstance(error, asyncpg.ConnectionDoesNotExistError):
        _, _, said = str(error).partition(": ")  # by the server, before it closed the connection
        return f"{LOST} ({said})" if said else LOST
    if _is_lost(error):
        return LOST
    code = getattr(error, "sqlstate", None)
    return " ".join(f"{error}{f' ({code})' if code else ''}".split())
