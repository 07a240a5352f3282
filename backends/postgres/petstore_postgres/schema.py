"""The schema of a store: created, upgraded, checked, dropped."""

from importlib import resources
from typing import Any, Final

import asyncpg

from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    SettingsError,
    UnavailableError,
    WrongStoreError,
)
from petstore_postgres.servers import TO_USE_IT, translated_errors

SQL: Final = resources.files("petstore_postgres") / "sql"
"""The folder of the SQL. N.sql turns the tables of schema version N - 1 into those of N, where 0 is
no schema; functions.sql makes the functions of the newest version."""

NEWEST_SCHEMA: Final = 3

LOCK_SECONDS: Final = 2
"""How long an upgrade waits for a table: calls that come after it wait for it, too."""

OPEN_SECONDS: Final = 60
"""How long opening may take: it may have to wait for the upgrade of another process."""

# The plan of a statement outlives the time in which its tables were small. No statement of this
# package needs to read a whole table, gains from compilation, or from a plan for its arguments.
PLANS: Final = (
    "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off"
    " SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off"
    " SET jit = off"
)

_FOUND: Final = """SELECT
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid),
    EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'store')
    FROM pg_namespace n WHERE n.nspname = $1"""

# The first privilege that the user lacks, or NULL.
_MISSING: Final = """SELECT min(format('%s on %s', p.privilege, c.oid::regclass))
    FROM pg_class c CROSS JOIN unnest($2::text[]) p (privilege)
    WHERE c.relnamespace = $1::text::regnamespace AND (
        c.relname IN ('pets', 'orders', 'tokens') AND NOT has_table_privilege(c.oid, p.privilege)
        OR c.relkind = 'S' AND p.privilege IN ('SELECT', 'UPDATE')
            AND NOT has_sequence_privilege(c.oid, p.privilege))"""


async def migrate(connection: Any, name: str, schema: str, expected: Expected) -> None:
    """Create the schema, or upgrade it to the newest version, in one transaction.

    Any number of processes may do this at the same time.

    Raises `WrongStoreError` or `ChangeNeededError` if what is expected forbids that,
    `SettingsError` if the schema is that of another application or of a newer version, or
    if the user lacks a privilege, `UnavailableError` for a lock, and other errors of asyncpg.
    """
    try:
        version = await _version(connection, name, schema)
        if version < NEWEST_SCHEMA:
            _check_allowed(version, name, schema, expected)
            # The default may be stricter: what is read after the lock must be new. An error
            # ends the connection; asyncpg's own transaction would hide that of a lost one.
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            await _upgrade(connection, name, schema)
            await connection.execute("COMMIT")
        needed = ["SELECT"]
        if expected.access is not Access.READ:
            needed += ["INSERT", "UPDATE", "DELETE"]
        if missing := await connection.fetchval(_MISSING, schema, needed):
            raise SettingsError(f"{name}: the user needs {missing}")
    except asyncpg.InsufficientPrivilegeError as error:
        raise SettingsError(
            f"{name}: {error}; the user must be allowed to create the schema {schema}, or to"
            " use it and all that is in it; to upgrade it, the user must own it"
        ) from None
    except asyncpg.LockNotAvailableError:
        raise UnavailableError(
            f"{name}: the schema {schema} must be upgraded, but another session has held one of"
            f" its tables for {LOCK_SECONDS} s; end it (see pg_stat_activity), and start again"
        ) from None
    except asyncpg.QueryCanceledError:
        raise UnavailableError(
            f"{name}: another process has been upgrading the schema {schema} for {OPEN_SECONDS} s"
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
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
    version = await _version(connection, name, schema)
    if version == NEWEST_SCHEMA:  # by now; its functions are in use
        return
    if version == 0:  # nothing else makes a store
        # Even with IF NOT EXISTS it needs the right to create one in the database.
        if not await connection.fetchval("SELECT to_regnamespace($1)", f'"{schema}"'):
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        await connection.execute(f'CREATE TABLE "{schema}".store (version int NOT NULL)')
        await connection.execute(f'INSERT INTO "{schema}".store VALUES (0)')
    newer = (f"{number}.sql" for number in range(version + 1, NEWEST_SCHEMA + 1))
    text = "\n;\n".join((SQL / file).read_text("utf-8") for file in (*newer, "functions.sql"))
    await connection.execute(text.replace("{schema}", f'"{schema}"').replace("{plans}", PLANS))
    await connection.execute(f'UPDATE "{schema}".store SET version = $1', NEWEST_SCHEMA)


def empty_store(name: str, schema: str) -> WrongStoreError:
    """Return the error for a store that has lost its identity."""
    return WrongStoreError(
        f"{name}: the table store in the schema {schema} is empty. Restore its data"
    )


def _check_allowed(version: int, name: str, schema: str, expected: Expected) -> None:
    """Raise an error if a store of this version, 0 for none, must not be created or upgraded."""
    if version == 0 and expected.store is not None:
        raise WrongStoreError(
            f"{name} has no store in the schema {schema}, and {expected.store} is expected there."
            f" Restore its data, or {TO_USE_IT}"
        )
    if version == 0 and expected.access is not Access.CREATE:
        raise ChangeNeededError(f"{name} has no schema {schema} yet, which would be created")
    if expected.access is not Access.CREATE:
        raise ChangeNeededError(
            f"the schema {schema} of {name} would be upgraded from version {version} to"
            f" {NEWEST_SCHEMA}"
        )


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
    version: int | None = await connection.fetchval(f'SELECT version FROM "{schema}".store')
    if version is None:
        raise empty_store(name, schema)
    if version > NEWEST_SCHEMA:
        raise SettingsError(
            f"{name} has schema version {version}, written by a newer petstore-postgres; this one"
            f" supports up to {NEWEST_SCHEMA}. Upgrade petstore-postgres"
        )
    return version
