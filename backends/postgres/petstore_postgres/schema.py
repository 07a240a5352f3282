"""The schema of a store: created, upgraded, checked, dropped. And checks of the server."""

import logging
from importlib import resources
from typing import Any, Final

import asyncpg

from petstore.contract import SettingsError, UnavailableError
from petstore_postgres.servers import translated_errors

SQL: Final = resources.files("petstore_postgres") / "sql"
"""The folder of the migrations: N.sql turns schema version N - 1 into N; 0 is no schema."""

NEWEST_SCHEMA: Final = 1

OPEN_SECONDS: Final = 60
"""How long opening may take: it may have to wait for the upgrade of another process."""

# The plan of a statement outlives the time in which its tables were small. No statement of this
# package needs to read a whole table, gains from compilation, or from a plan for its arguments.
_PLANS: Final = " ".join(
    [
        "SET plan_cache_mode = force_generic_plan",
        *(
            f"SET {setting} = off"
            for setting in (
                "enable_seqscan",
                "enable_bitmapscan",
                "enable_hashjoin",
                "enable_mergejoin",
                "jit",
            )
        ),
    ]
)

_SERVER: Final = """SELECT current_setting('server_version_num')::int / 10000,
    current_setting('server_version'), current_setting('fsync'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    current_setting('full_page_writes')"""

_FOUND: Final = """SELECT
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid),
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'store')
    FROM pg_namespace n WHERE n.nspname = $1"""

# The first privilege that the user lacks, or NULL.
_MISSING: Final = """SELECT min(format('%s on %s', p.privilege, c.oid::regclass))
    FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p (privilege)
    WHERE c.relnamespace = $1::text::regnamespace AND (
        c.relname IN ('pets', 'orders', 'tokens') AND NOT has_table_privilege(c.oid, p.privilege)
        OR c.relkind = 'S' AND p.privilege IN ('SELECT', 'UPDATE')
            AND NOT has_sequence_privilege(c.oid, p.privilege))"""

_log = logging.getLogger("petstore.postgres")


async def check_server(connection: Any, name: str) -> None:
    """Refuse a server that loses pets by design; warn of settings that may lose some.

    Logs what the server promises. Raises `SettingsError`, or `UnavailableError` if it fails.
    """
    with translated_errors(name, OPEN_SECONDS, opening=True):
        row = await connection.fetchrow(_SERVER)
    major, version, fsync, commit, standbys, pages = row
    if major < 14:
        raise SettingsError(f"{name} is version {version}; 14 or newer is required")
    if fsync != "on":
        raise SettingsError(
            f"{name} does not sync its files (fsync = off): a power failure may lose everything;"
            " set fsync = on"
        )
    if commit == "off" or pages != "on":
        setting = "synchronous_commit = off" if commit == "off" else "full_page_writes = off"
        _log.warning(
            "%s has %s: a crash of the server may lose acknowledged writes, and assign their ids"
            " again",
            name,
            setting,
        )
    _log.info(
        "%s is version %s, schema version %s, synchronous_commit = %s, synchronous standbys: %s",
        name,
        version,
        NEWEST_SCHEMA,
        commit,
        standbys or "none",
    )


async def migrate(connection: Any, name: str, schema: str) -> None:
    """Create the schema, or upgrade it to the newest version, in one transaction.

    Any number of processes may do this at the same time.

    Raises `SettingsError` if the schema is that of another application or of a newer version, or
    if the user lacks a privilege, `UnavailableError` if the server fails.
    """
    with translated_errors(name, OPEN_SECONDS, opening=True):
        try:
            if await _version(connection, name, schema) < NEWEST_SCHEMA:
                # Explicit, as the default may be stricter: what is read after the lock must be new.
                async with connection.transaction(isolation="read_committed"):
                    await _upgrade(connection, name, schema)
            if missing := await connection.fetchval(_MISSING, schema):
                raise SettingsError(f"{name}: the user needs {missing}")
        except asyncpg.InsufficientPrivilegeError as error:
            raise SettingsError(
                f"{name}: {error}; the user must be allowed to create the schema {schema}, or to"
                " use it and all that is in it"
            ) from None
        except asyncpg.QueryCanceledError:
            raise UnavailableError(
                f"{name}: another process has been upgrading the schema {schema} for"
                f" {OPEN_SECONDS} s"
            ) from None


async def drop(connection: Any, name: str, schema: str) -> None:
    """Drop a schema, if it exists, and close the connection."""
    try:
        with translated_errors(name, OPEN_SECONDS):
            async with connection.transaction():
                await connection.execute(f"SET LOCAL statement_timeout = '{OPEN_SECONDS}s'")
                await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    finally:
        connection.terminate()


async def _upgrade(connection: Any, name: str, schema: str) -> None:
    await connection.execute(f"SET LOCAL statement_timeout = '{OPEN_SECONDS}s'")
    await connection.execute("SET LOCAL client_min_messages = warning")
    # The lock comes before the version is read: another process may be upgrading, too.
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", schema)
    version = await _version(connection, name, schema)
    if version == 0:
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await connection.execute(f'CREATE TABLE "{schema}".store (version int NOT NULL)')
        await connection.execute(f'INSERT INTO "{schema}".store VALUES (0)')
    for newer in range(version + 1, NEWEST_SCHEMA + 1):
        text = (SQL / f"{newer}.sql").read_text("utf-8")
        await connection.execute(text.replace("{schema}", f'"{schema}"').replace("{plans}", _PLANS))
    await connection.execute(f'UPDATE "{schema}".store SET version = $1', NEWEST_SCHEMA)


async def _version(connection: Any, name: str, schema: str) -> int:
    """Return the version of the schema; 0 if it does not exist or is empty."""
    row = await connection.fetchrow(_FOUND, schema)
    used, ours = row or (False, False)
    if used and not ours:
        raise SettingsError(
            f"{name} has a schema {schema} of another application; set PETSTORE_POSTGRES_SCHEMA"
        )
    if not ours:
        return 0
    version: int = await connection.fetchval(f'SELECT version FROM "{schema}".store')
    if version > NEWEST_SCHEMA:
        raise SettingsError(
            f"{name} has schema version {version}, written by a newer petstore-postgres; this one"
            f" supports up to {NEWEST_SCHEMA}. Upgrade petstore-postgres"
        )
    return version
