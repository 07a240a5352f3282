"""What the kit does not show: text, plans, records that expire, calls that travel together."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
import pytest
from petstore_conformance.clauses.methods import calls_of, give
from petstore_postgres.arrays import ARRAYS, ArrayConnection

from backends.postgres.tests.places import fresh, opened, session, unavailable
from backends.postgres.tests.servers import Server
from petstore.contract import (
    ConflictError,
    NewPet,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    Receipt,
    TokenRecord,
    TokenReusedError,
    UnavailableError,
)
from tests.support.repositories import AT, REX, make_token, pets


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII", "EUC_JP"])
async def test_every_unicode_text_comes_back_in_a_database_of_any_encoding(
    each: Server, encoding: str
) -> None:
    surrogates = range(0xD800, 0xE000)
    every = "".join(chr(code) for code in range(0x110000) if code not in surrogates)
    names = [every[start : start + 5000] for start in range(0, len(every), 5000)]
    names += ["", "\0", "\0\0x", "\\x00", "\\000", "'; DROP TABLE pets; --", "%s $1 {0}", "e\u0301"]
    database = fresh()
    each.fetch(f"CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    async with opened(f"{each.url()[: -len('postgres')]}{database}") as repository:
        creates = [repository.create_pet(NewPet(name, 7)) for name in names]
        receipts = await asyncio.gather(*creates)
        found = {pet.id: pet.name for pet in await pets(repository)}
        assert [found[receipt.id] for receipt in receipts] == names
        highest = max(found)
        await repository.restore([Pet(highest + 1 + n, x, 7) for n, x in enumerate(names)])
        restored = await repository.list_pets(PetQuery(highest, 1000))
        assert [pet.name for pet in restored] == names


async def test_a_page_reads_only_its_rows_however_deep_and_filtered(each: Server) -> None:
    """The plans were made while the tables were empty; one row in a thousand matches."""
    schema = fresh()
    fill = (
        """pets SELECT id, 7, 'Rex', CASE WHEN id % 1000 = 0 THEN 'sold' ELSE 'pending' END
            FROM generate_series(1, 50000) id""",
        """orders SELECT id, id, now(), CASE WHEN id % 1000 = 0 THEN 'cancelled' ELSE 'completed'
            END FROM generate_series(1, 50000) id""",
    )
    rows_read = """SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
        FROM pg_stat_xact_all_tables WHERE schemaname = $1 AND relname = $2"""
    async with opened(each, schema=schema), session(each) as other:

        async def page(table: str, *arguments: int | str | None) -> int:
            sql = f"SELECT * FROM {schema}.list_{table}($1, $2, $3)"
            return len(await other.fetch(sql, *([argument] for argument in arguments)))

        tables = (("pets", "sold"), ("orders", "cancelled"))
        for table, rare in tables * 8:
            assert await page(table, 0, 20, None) == await page(table, 0, 20, rare) == 0
        for rows in fill:
            await other.execute(f"INSERT INTO {schema}.{rows}")
        for table, rare in tables:
            for after, status in ((0, None), (49_000, None), (0, rare), (30_000, rare)):
                async with other.transaction():
                    before = await other.fetchval(rows_read, schema, table)
                    assert await page(table, after, 20, status) == 20
                    assert await other.fetchval(rows_read, schema, table) == before + 20
            async with other.transaction():
                before = await other.fetchval(rows_read, schema, table)
                found = f"SELECT * FROM {schema}.get_{table}($1)"
                assert len(await other.fetch(found, [7, 70, 70_000])) == 2
                assert await other.fetchval(rows_read, schema, table) == before + 2


async def test_a_page_of_records_ends_after_as_many_as_were_asked_for_expired_or_not(
    server: Server,
) -> None:
    """Otherwise it would read all that have expired, past its timeout."""
    records = [TokenRecord(b"%032d" % n, bytes(32), 1 if n < 20 else 3, 1) for n in range(25)]
    async with opened(server) as repository:
        await repository.restore(records)
        pages = [await repository.list_tokens("", 10, 2)]
        while pages[-1].next:
            pages.append(await repository.list_tokens(pages[-1].next, 10, 2))
        assert [page.records for page in pages] == [[], [], records[20:]]


async def test_a_write_reads_only_what_it_needs(each: Server) -> None:
    """The plans were made when statistics said that the tables had 60 rows."""
    schema = fresh()
    creates = f"""SELECT * FROM {schema}.create_pets_once(
        '{{7}}', '{{Rex}}', '{{available}}', ARRAY[$1::bytea], '{{x}}', '{{0}}', '{{9}}')"""
    orders = f"""SELECT * FROM {schema}.place_orders(
        ARRAY[$2::bigint], '{{now}}', ARRAY[$1::bytea], '{{x}}', '{{0}}', '{{9}}', 0)"""
    updates = f"""SELECT * FROM {schema}.update_orders(
        ARRAY[$1::bigint], '{{completed}}', '{{sold}}', 0)"""
    fill = f"""INSERT INTO {schema}.pets SELECT id, 7, 'Rex', 'available'
            FROM generate_series({{first}}, {{last}}) id;
        INSERT INTO {schema}.orders SELECT id, id, now(), 'cancelled'
            FROM generate_series({{first}}, {{last}}) id;
        INSERT INTO {schema}.tokens SELECT sha256(id::text::bytea), 'x', id, 9, now() + '1 day'
            FROM generate_series({{first}}, {{last}}) id"""
    rows_read = """SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int
        FROM pg_stat_xact_all_tables WHERE schemaname = $1"""
    async with opened(each, schema=schema), session(each) as other:
        await other.execute(fill.format(first=1001, last=1060))
        await other.execute(f"ANALYZE {schema}.pets, {schema}.orders, {schema}.tokens")

        async def write(one: bytes, two: bytes) -> None:
            [[outcome, pet_id]] = await other.fetch(creates, one)
            [[again, _]] = await other.fetch(creates, one)
            [[ordered, order_id]] = await other.fetch(orders, two, pet_id)
            [[repeated, _]] = await other.fetch(orders, two, pet_id)
            [[completed, _, _]] = await other.fetch(updates, order_id)
            found = outcome, again, ordered, repeated, completed
            assert found == ("done", "replayed", "done", "replayed", "done")
            assert [tuple(row) for row in await other.fetch(orders, None, pet_id)] == [
                ("conflict", None)
            ]

        await write(b"a", b"b")
        await other.execute(fill.format(first=2001, last=7000))
        async with other.transaction():
            before = await other.fetchval(rows_read, schema)
            await write(b"c", b"d")
            assert await other.fetchval(rows_read, schema) < before + 100


async def test_an_expired_record_is_deleted_once_it_is_old_by_the_clock_of_the_server(
    server: Server,
) -> None:
    schema = fresh()
    records = f"SELECT count(*) FROM {schema}.tokens"
    async with opened(server, schema=schema) as repository, session(server) as other:
        for number in range(20):
            await repository.create_pet(REX, make_token(number, now=0, until=1000))
        # By a clock that is ahead they have expired, but the server has just seen them.
        await repository.create_pet(REX, make_token(100, now=5000, until=9000))
        assert await other.fetchval(records) == 21
        assert (await repository.create_pet(REX, make_token(3, now=10, until=1000))).replayed
        await other.execute(f"UPDATE {schema}.tokens SET expires = now() - interval '1 s'")
        # By a clock that is behind they have not expired: two are looked at again later.
        await repository.create_pet(REX, make_token(101, now=10, until=1000))
        assert await other.fetchval(records) == 22
        for number in range(200, 210):
            await repository.create_pet(REX, make_token(number, now=5000, until=9000))
        assert await other.fetchval(records) == 22 + 10 - 18
        pet = await repository.create_pet(REX)
        await other.execute(f"UPDATE {schema}.tokens SET expires = now() - interval '1 s'")
        await repository.place_order(pet.id, AT, make_token(300, now=9999, until=99999))
        assert await other.fetchval(records) == 14 + 1 - 2
        # A retry adds none, so it deletes none: there may be millions.
        await repository.create_pet(REX, make_token(400, now=9999, until=99999))
        assert await other.fetchval(records) == 13 + 1 - 2
        receipt = await repository.create_pet(REX, make_token(400, now=9999, until=99999))
        assert receipt.replayed
        assert await other.fetchval(records) == 12


async def test_the_schema_refuses_a_second_live_order_of_a_pet(server: Server) -> None:
    """A second line of defense: a pet that is wrongly available is still not sold twice."""
    schema = fresh()
    async with (
        opened(server, schema=schema, timeout_seconds=2) as repository,
        session(server) as other,
    ):
        pet = await repository.create_pet(REX)
        await repository.place_order(pet.id, AT)
        await other.execute(f"UPDATE {schema}.pets SET status = 'available'")
        with pytest.raises(UnavailableError, match="orders_live"):
            await repository.place_order(pet.id, AT)
        assert len(await repository.list_orders(OrderQuery(0, 9))) == 1
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await other.execute(f"DELETE FROM {schema}.pets")


async def test_a_retry_of_what_was_deleted_by_hand_names_the_record(server: Server) -> None:
    """Neither a receipt of what is not there, nor silently another pet under the same key."""
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:

        async def check(retry: Callable[[], Awaitable[Receipt]], gone: str) -> None:
            for _ in range(2):
                message = await unavailable(retry())
                assert f"{gone} is not stored" in message
            [delete] = re.findall(r"DELETE FROM .*'", message)
            assert await other.execute(delete) == "DELETE 1"

        pet = await repository.create_pet(REX, make_token(1))
        order = await repository.place_order(pet.id, AT, make_token(2))
        await other.execute(f"DELETE FROM {schema}.orders")
        retry_order = partial(repository.place_order, pet.id, AT, make_token(2))
        await check(retry_order, f"order {order.id}")
        with pytest.raises(ConflictError):
            await retry_order()
        kept = await repository.create_pet(REX, make_token(3))
        await other.execute(f"DELETE FROM {schema}.pets WHERE id = {pet.id}")
        retry_pet = partial(repository.create_pet, REX, make_token(1))
        # Others that travel with it are not affected.
        _, receipt, reused = await asyncio.gather(
            check(retry_pet, f"pet {pet.id}"),
            repository.create_pet(REX, make_token(3)),
            repository.create_pet(REX, make_token(1, body=1)),
            return_exceptions=True,
        )
        assert receipt == Receipt(kept.id, replayed=True)
        assert isinstance(reused, TokenReusedError)
        assert (await retry_pet()).id > kept.id


async def test_asyncpg_finds_no_type_that_it_is_not_told_and_would_find_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its query for a type costs more than to connect."""
    find, asked = asyncpg.Connection._introspect_types, list[int]()  # noqa: SLF001 - overridden

    async def ask(connection: Any, oids: list[int], seconds: float) -> Any:
        asked.extend(oids)
        return await find(connection, oids, seconds)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
    async with opened(server) as repository:
        order = Order(2**40, 2**40, OrderStatus.CANCELLED, AT)
        record = TokenRecord(bytes(32), bytes(32), 3, 1)
        await repository.restore([Pet(order.pet_id, "Rex", 7), order, record])
        for call in calls_of(repository, await give(repository, 0)).values():
            await call()
    assert asked == []
    other = await asyncpg.connect(server.url(), connection_class=ArrayConnection)
    assert await other.fetchval("SELECT ARRAY['postgres'::name]") == ["postgres"]
    assert len(asked) == 1
    rows, _ = await find(other, [*ARRAYS], 9)
    other.terminate()
    found = {row["oid"]: dict(row).items() for row in rows}
    assert all(known.items() <= found[oid] for oid, known in ARRAYS.items())
