"""A server that can only be read: it is used if no write may come, and only then."""

import asyncio
from unittest.mock import AsyncMock
from uuid import UUID

from msgspec.structs import replace
from petstore_postgres import PostgresRepository
from petstore_postgres.store import Store

from backends.postgres.tests.places import fresh, opened, refusal, session, unavailable
from backends.postgres.tests.servers import Server, until
from backends.postgres.tests.standbys import pair, url_of
from petstore.contract import Access, Expected
from tests.support.repositories import AT, REX, again, make_token, pets

STORE = UUID(int=7)
READING = Expected(access=Access.READ)
SNAPSHOT = Expected(access=Access.READ, snapshot=True)
MESSAGE = (
    "is a standby, or read-only: name the primary in PETSTORE_POSTGRES_URL, or serve it with"
    " PETSTORE_READ_ONLY=true"
)


async def fill(place: Server | str, schema: str) -> None:
    async with opened(place, schema=schema) as repository:
        await repository.create_pet(REX, make_token(1))
        await repository.place_order(1, AT)


async def check_reads(repository: PostgresRepository) -> None:
    assert len(await pets(repository)) == 1
    assert await repository.get_order(1) is not None
    assert len((await repository.list_tokens("", 10, 0)).records) == 1


async def test_a_standby_is_read_while_there_is_no_primary() -> None:
    schema = fresh()
    with pair() as (primary, standby):
        await fill(primary, schema)
        [(written,)] = primary.fetch("SELECT pg_current_wal_lsn()")
        until(lambda: standby.fetch("SELECT pg_last_wal_replay_lsn()")[0][0] >= written)
        async with opened(standby, READING, schema=schema, watched=False) as alone:
            await check_reads(alone)
            await alone.check()
            assert "read-only" in await unavailable(alone.create_pet(REX))
            both = url_of(standby, primary)
            async with opened(both, READING, schema=schema) as repository:
                await asyncio.to_thread(primary.stop)
                await again(lambda: check_reads(repository))
                await repository.check()
            async with opened(both, SNAPSHOT, schema=schema, watched=False) as repository:
                await check_reads(repository)
        assert MESSAGE in await asyncio.to_thread(refusal, standby, schema=schema)


async def test_a_standby_may_be_behind_another() -> None:
    """Behind the primary, too: its sequences are ahead, as what the primary has cached is used."""
    seen = Store("server", "petstore", replace(READING, store=str(STORE)))
    for timeline, position, ids in (("", 9, 40), ("", 8, 39), ("00000001", 9, 8), ("", 7, 38)):
        row = (str(STORE), 2, 7, timeline, position, ids, 5, ids, 5)
        await seen.check(AsyncMock(return_value=row))


async def test_a_read_only_database_and_a_user_who_may_only_read(failing: Server) -> None:
    schema = fresh()
    await fill(failing, schema)
    async with session(failing) as other:
        await other.execute(f"""ALTER DATABASE postgres SET default_transaction_read_only = on;
            SET default_transaction_read_only = off; CREATE ROLE reader LOGIN;
            GRANT USAGE ON SCHEMA {schema} TO reader;
            GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader;
            GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO reader;
            SELECT setval('{schema}.pet_ids', 1, false)""")  # behind the pets, as after a restore
    assert MESSAGE in await asyncio.to_thread(refusal, failing, schema=schema)
    url = failing.url().replace("postgres@", "reader@")
    async with opened(url, READING, schema=schema, watched=False) as repository:
        await check_reads(repository)
        await repository.check()
