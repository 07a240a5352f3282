"""The servers that a URL names, and connections to the one of them that can be written to."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import asyncpg

from petstore.contract import SettingsError, StorageError, UnavailableError

OTHERS_SECONDS: Final = 0.3
"""How long to wait for the other servers once a writable one has been found."""

_REFUSALS: Final = (
    # What a server refuses until its settings or ours are changed.
    asyncpg.InvalidAuthorizationSpecificationError,  # includes a wrong password
    asyncpg.InvalidCatalogNameError,  # no such database
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedObjectError,  # no such parameter
    asyncpg.InvalidParameterValueError,
    asyncpg.ProtocolViolationError,  # PgBouncer: no such parameter
    asyncpg.FeatureNotSupportedError,
    asyncpg.InterfaceError,  # asyncpg does not understand the URL
)
_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what replies is not PostgreSQL
    OSError,
)

# A primary of a higher timeline was promoted later: the other one has not noticed yet.
_STATE: Final = """SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,
    CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"""


class _Found(NamedTuple):
    timeline: str
    connection: Any


class Servers:
    """The servers of one store, of which one is the primary.

    url -- as `PostgresSettings.url`
    seconds -- how long connecting, and a statement, may take
    pgbouncer -- whether a PgBouncer in front of them pools transactions
    """

    def __init__(self, url: str, seconds: float, *, pgbouncer: bool = False) -> None:
        self._url = url
        self._seconds = seconds
        self._hosts = hosts(url)
        _check_files(url)
        self.name = f"postgres at {','.join(self._hosts) or 'the default socket'}"
        milliseconds = f"{max(1, round(seconds * 800))}"
        self._options: dict[str, Any] = {"timeout": seconds}
        if pgbouncer:  # it gives each transaction another session
            self._options["statement_cache_size"] = 0
        else:
            self._options["server_settings"] = {
                "application_name": "petstore",
                "default_transaction_isolation": "read committed",
                # The server gives up before the client does, which would cost the connection.
                "statement_timeout": milliseconds,
            }

    async def connect(self) -> Any:
        """Return a connection to the primary: of several, that of the highest timeline.

        Raises `SettingsError` if what prevents it will not pass, or else `UnavailableError`.
        """
        places = [_to_place(host) for host in self._hosts] if len(self._hosts) > 1 else [{}]
        tasks = [asyncio.ensure_future(self._connect(place)) for place in places]
        found, failures, pending = list[asyncio.Task[_Found]](), list[StorageError](), set(tasks)
        best = None
        try:
            while pending:
                seconds = OTHERS_SECONDS if found else None
                done, pending = await asyncio.wait(
                    pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for task in done:
                    if isinstance(error := task.exception(), StorageError):
                        failures.append(error)
                    else:
                        found.append(task)
            best = max(found, key=lambda task: task.result().timeline, default=None)
        finally:  # without waiting: if it were cancelled meanwhile, a connection would be lost
            for task in tasks:
                if task is not best:
                    task.cancel()
                    task.add_done_callback(_terminate)
        if best is None:
            raise _combine(failures)
        return best.result().connection

    async def _connect(self, place: dict[str, Any]) -> _Found:
        with translated_errors(self.name, self._seconds, opening=True):
            async with asyncio.timeout(self._seconds):
                connection = await asyncpg.connect(self._url, **place, **self._options)
                try:
                    read_only, timeline = await connection.fetchrow(_STATE)
                except BaseException:
                    connection.terminate()
                    raise
        if read_only:
            connection.terminate()
            reason = "is a standby, or read-only: name the primary"
            raise SettingsError(f"{_name(place) or self.name} {reason}")
        return _Found(timeline, connection)


def _terminate(task: asyncio.Task[_Found]) -> None:
    """Close a connection that is not used."""
    if not task.cancelled() and task.exception() is None:
        task.result().connection.terminate()


def hosts(url: str) -> list[str]:
    """Return the servers that a URL names, as libpq reads it: "host:port", "[::1]:port", "/path".

    Raises `SettingsError`.
    """
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
    except ValueError:  # its message may show a password
        raise SettingsError("PETSTORE_POSTGRES_URL is not a valid URL") from None
    named = parts.netloc.rpartition("@")[2]
    if named:
        return [unquote(name) for name in named.split(",")]
    names = query.get("host", [""])[-1].split(",")
    ports = query.get("port", [""])[-1].split(",")
    if len(ports) == 1:
        ports *= len(names)
    return [
        f"{name}:{port}" if port else name for name, port in zip(names, ports, strict=False) if name
    ]


def _check_files(url: str) -> None:
    """Raise `SettingsError` if a file for TLS cannot be read: asyncpg does not say which."""
    for name, path in parse_qsl(urlsplit(url).query):
        if name in ("sslrootcert", "sslcert", "sslkey", "sslcrl") and not os.access(path, os.R_OK):
            raise SettingsError(f"PETSTORE_POSTGRES_URL has {name}={path}, which cannot be read")


def _to_place(host: str) -> dict[str, Any]:
    """Return the arguments of `asyncpg.connect` for one of several servers."""
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, "5432"
    try:
        return {"host": name.strip("[]"), "port": int(port)}
    except ValueError:
        raise SettingsError(f"PETSTORE_POSTGRES_URL has the port {port!r}") from None


def _name(place: dict[str, Any]) -> str:
    return f"postgres at {place['host']}:{place['port']}" if place else ""


def _combine(failures: list[StorageError]) -> StorageError:
    """Return one error for all servers. One that cannot be reached may be the primary."""
    reasons = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    for failure in failures:
        if isinstance(failure, UnavailableError):
            return UnavailableError(reasons)
    return SettingsError(reasons)


@contextmanager
def translated_errors(name: str, seconds: float, *, opening: bool = False) -> Iterator[None]:
    """Turn errors of asyncpg and of the network into `UnavailableError`.

    opening -- whether an error that will not pass is a `SettingsError`
    """
    try:
        yield
    except _ERRORS as error:
        message = f"{name}: {_reason(error, seconds)}"
        if opening and isinstance(error, _REFUSALS):
            raise SettingsError(message) from None
        raise UnavailableError(message) from None
    except AttributeError:
        if opening:  # asyncpg, if the connection is lost between two steps
            raise UnavailableError(f"{name}: the connection was lost") from None
        raise
    except ValueError:
        if opening:  # asyncpg does not understand the URL; its message may show a password
            raise SettingsError("PETSTORE_POSTGRES_URL is not a valid URL") from None
        raise


def _reason(error: Exception, seconds: float) -> str:
    """Return why a call failed, in one line."""
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no reply within {seconds:g} s"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno).lower() if error.errno > 0 else str(error)
    code = getattr(error, "sqlstate", None)
    return " ".join(f"{error}{f' ({code})' if code else ''}".split())
