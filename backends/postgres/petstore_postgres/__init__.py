"""Pets and orders on PostgreSQL."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import parent_process
from secrets import token_hex
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from petstore.contract import Access, Backend, Expected, SettingsError, UnavailableError
from petstore_postgres import schema
from petstore_postgres.pool import Pool
from petstore_postgres.repository import PostgresRepository
from petstore_postgres.servers import Servers, translated_errors
from petstore_postgres.store import Store

__all__ = ["PostgresRepository", "PostgresSettings", "backend"]

_log = logging.getLogger("petstore.postgres")

# `reserved_connections` is new in PostgreSQL 16.
_ACCEPTED: Final = """SELECT current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true), '0')::int"""


class PostgresSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the servers are, and how their connections are used."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^(jdbc:)?postgres(ql)?(\+[a-z0-9]+)?://",  # `address` says more
            description="a URL: postgresql://user:password@host:5432/database",
            examples=["postgresql://petstore@127.0.0.1:5432/petstore"],
        ),
    ]
    schema: Annotated[
        str,
        Meta(
            pattern=r"^[a-z_][a-z0-9_]{0,39}\Z",
            description="the schema of the store: up to 40 of a to z, 0 to 9 and '_'",
        ),
    ] = "petstore"
    connections: Annotated[
        int, Meta(ge=1, le=1000, description="a number from 1 to 1000: how many each process opens")
    ] = 8
    timeout_seconds: Annotated[float, Meta(ge=0.05, le=60, title="how long a call may take")] = 2
    pgbouncer: Annotated[bool, Meta(description="true behind PgBouncer, or else false")] = False


@asynccontextmanager
async def open_postgres(
    settings: PostgresSettings, expected: Expected
) -> AsyncIterator[PostgresRepository]:
    """Find the primary, check it, create or upgrade the schema.

    If no write may come, a standby, or a server that is read-only, will do.
    """
    servers = Servers(
        settings.url,
        settings.timeout_seconds,
        pgbouncer=settings.pgbouncer,
        writes=expected.access is not Access.READ,
    )
    if servers.ignored and parent_process() is None:  # else the parent has said so
        _log.info("no effect: %s", ", ".join(servers.ignored))
    store = Store(servers.name, settings.schema, expected)
    try:
        first = await servers.connect()
    except UnavailableError as error:
        raise UnavailableError(f"{error}; check PETSTORE_POSTGRES_URL") from None
    # Without this, opening would wait for ever for a server that stalls now.
    timer = asyncio.get_running_loop().call_later(
        schema.OPEN_SECONDS + 1, first.connection.terminate
    )
    try:
        with translated_errors(servers.name, schema.OPEN_SECONDS, opening=True):
            await _check_room(first.connection, servers.name, settings, expected.processes)
            await schema.migrate(first.connection, servers.name, settings.schema, expected)
            await store.check(first.connection.fetchrow)
            begin = await _begin_snapshot(first.connection) if expected.snapshot else ""
    except BaseException:
        first.connection.terminate()
        raise
    finally:
        timer.cancel()
    pool = Pool(servers, store, settings.connections, first, begin)
    try:
        yield PostgresRepository(pool)
    finally:
        servers.close()
        await pool.close()


async def _check_room(
    connection: Any, name: str, settings: PostgresSettings, processes: int
) -> None:
    """Raise `SettingsError` if the server accepts fewer connections than all processes may open."""
    needed = processes * settings.connections
    accepted = await connection.fetchval(_ACCEPTED)
    if needed > accepted and not settings.pgbouncer:
        raise SettingsError(
            f"{name} accepts {accepted} connections (max_connections, less those that are"
            f" reserved), but {processes} x {settings.connections} = {needed} may be opened:"
            " PETSTORE_WORKERS x PETSTORE_POSTGRES_CONNECTIONS. Lower one of them or raise"
            " max_connections; behind PgBouncer, set PETSTORE_POSTGRES_PGBOUNCER=true"
        )


async def _begin_snapshot(connection: Any) -> str:
    """Begin a transaction whose snapshot others can share; return the SQL that begins theirs.

    The SQL fails when the transaction has ended, so that no call sees another moment.
    """
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    await connection.execute(begin)
    name = await connection.fetchval("SELECT pg_export_snapshot()")
    return f"{begin}; SET TRANSACTION SNAPSHOT '{name}'"


@asynccontextmanager
async def scratch_postgres(settings: PostgresSettings) -> AsyncIterator[PostgresSettings]:
    """Yield settings with a schema that no store has, and drop it at the end."""
    name = f"{settings.schema[:20]}_scratch_{token_hex(5)}"
    try:
        yield replace(settings, schema=name)
    finally:
        servers = Servers(settings.url, settings.timeout_seconds, pgbouncer=settings.pgbouncer)
        await schema.drop((await servers.connect()).connection, servers.name, name)


backend = Backend(
    contract=2,
    settings=PostgresSettings,
    open=open_postgres,
    scratch=scratch_postgres,
    shared=True,
    durable=True,
    snapshots=True,
)
