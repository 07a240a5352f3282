"""The check of each second: of all servers, of what they promise, and of the store."""

from typing import Any

from petstore.contract import SettingsError, UnavailableError, WrongStoreError
from petstore_postgres.pool import Pool, Statement
from petstore_postgres.rows import split_rows
from petstore_postgres.servers import STATE, Servers, ServerState
from petstore_postgres.store import Store


async def check(servers: Servers, store: Store, pool: Pool) -> None:
    """Check once; make the pool leave what must not be used.

    Raises `WrongStoreError` for another store or an older copy, then and ever after, and
    `UnavailableError` if no server, or more than one, is a primary with the right settings.
    """

    async def fetch_row(sql: str) -> Any:
        return await pool.call(Statement(sql, split_rows))

    pool.check_refused()
    try:
        await servers.check()
    except UnavailableError as error:  # two primaries
        pool.stop(str(error))
        raise
    pool.leave_replaced()
    try:
        servers.approve(ServerState(*await fetch_row(STATE)))
        await store.check(fetch_row)
    except SettingsError as error:
        pool.stop(str(error))
        raise UnavailableError(str(error)) from None
    except WrongStoreError as error:
        pool.refuse(str(error))
        raise
