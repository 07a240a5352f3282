"""Calls while other sessions hold locks: what needs none continues, collisions are repeated."""

import asyncio

from backends.postgres.tests.places import fresh, opened, session, unavailable, until_waiting
from backends.postgres.tests.servers import Server
from petstore.contract import OrderStatus, Receipt
from tests.support.repositories import AT, REX, again, pets

GAVE_UP = "canceling statement due to "


async def test_calls_that_wait_for_one_row_hold_one_connection(server: Server) -> None:
    """A forgotten transaction, and clients that go on asking for what it has locked."""
    schema = fresh()
    async with opened(server, schema=schema, connections=4, timeout_seconds=8) as repository:
        ids = [(await repository.create_pet(REX)).id for _ in range(30)]
        order = await repository.place_order(ids[0], AT)
        async with session(server) as other:
            await other.execute(f"BEGIN; SELECT FROM {schema}.pets WHERE id < 3 FOR UPDATE")

            async def order_locked(pet_id: int) -> str:
                return await unavailable(repository.place_order(pet_id, AT))

            async def cancel_locked() -> str:
                return await unavailable(repository.update_order(order.id, OrderStatus.CANCELLED))

            waiting = [
                asyncio.create_task(order_locked(ids[1])),
                asyncio.create_task(cancel_locked()),
            ]
            await until_waiting(server, 2)
            for pet_id in ids[2:25]:
                waiting += [
                    asyncio.create_task(order_locked(ids[1])),
                    asyncio.create_task(cancel_locked()),
                ]
                await repository.place_order(pet_id, AT)
                await repository.create_pet(REX)
            assert not any(task.done() for task in waiting), "nothing had to wait for them"
            locked = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            assert len(await asyncio.to_thread(server.fetch, locked)) == 2
            # The server gives up on the first of them, and none is sent without enough time.
            assert all(GAVE_UP in message for message in await asyncio.gather(*waiting))
            # So it does on those that waited for a connection first, and they have no effect later.
            await other.execute(f"SELECT FROM {schema}.pets FOR UPDATE")
            pet_ids = *ids[25:], *[ids[1]] * 4
            waiting = [asyncio.create_task(order_locked(pet_id)) for pet_id in pet_ids]
            await until_waiting(server, 3)
            for task in waiting[-3:]:
                task.cancel()
            assert all(GAVE_UP in message for message in await asyncio.gather(*waiting[:-3]))
        for pet_id in (ids[1], *ids[25:]):
            await again(lambda: repository.place_order(pet_id, AT))  # noqa: B023
        await again(lambda: repository.update_order(order.id, OrderStatus.CANCELLED))


async def test_a_call_that_is_late_does_not_take_others_with_it(server: Server) -> None:
    """It waited for a connection, and those that share its statement have time left."""
    schema = fresh()
    async with opened(server, schema=schema, connections=2, timeout_seconds=2) as repository:
        ids = [(await repository.create_pet(REX)).id for _ in range(2)]
        async with session(server) as other:
            await other.execute(f"BEGIN; SELECT FROM {schema}.pets FOR UPDATE")
            first = asyncio.create_task(unavailable(repository.place_order(ids[0], AT)))
            await until_waiting(server, 1)
            late = asyncio.create_task(unavailable(repository.place_order(ids[1], AT)))
            await asyncio.sleep(1.3)
            order = asyncio.create_task(repository.place_order(ids[1], AT))
            assert all(GAVE_UP in message for message in await asyncio.gather(first, late))
            await other.execute("COMMIT")
        await order


async def test_locks_that_block_all_writes_leave_a_connection_to_reads(server: Server) -> None:
    schema = fresh()
    async with opened(server, schema=schema, connections=3) as repository:
        await repository.create_pet(REX)
        async with session(server) as other:
            await other.execute(f"BEGIN; LOCK TABLE {schema}.pets IN EXCLUSIVE MODE")
            tasks = [
                *(asyncio.create_task(repository.place_order(1, AT)) for _ in range(20)),
                *(asyncio.create_task(repository.create_pet(REX)) for _ in range(20)),
            ]
            await until_waiting(server, 2)
            for _ in range(20):
                assert len(await pets(repository)) == 1
            await other.execute("COMMIT")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(await pets(repository)) == 21
        assert len([result for result in results if not isinstance(result, Exception)]) == 21


async def test_a_deadlock_is_repeated(server: Server) -> None:
    """Another session locks a pet and then an order; completing it locks them in turn."""
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        await other.execute("SET deadlock_timeout = '60s'")  # so that it is not the victim
        pet = await repository.create_pet(REX)
        order = await repository.place_order(pet.id, AT)
        await other.execute(f"BEGIN; SELECT FROM {schema}.pets FOR UPDATE")
        updating = asyncio.create_task(repository.update_order(order.id, OrderStatus.COMPLETED))
        await until_waiting(server, 1)
        await other.execute(f"SELECT FROM {schema}.orders FOR UPDATE; COMMIT")
        assert (await updating).status is OrderStatus.COMPLETED
        assert "deadlock detected" in server.log()


async def test_a_serialization_failure_is_repeated(server: Server) -> None:
    """A role may have a stricter isolation level, and behind PgBouncer the backend sets none."""
    schema = fresh()
    url = server.url(options="-c%20default_transaction_isolation%3Dserializable")
    async with opened(url, schema=schema, pgbouncer=True) as repository, session(server) as other:
        pet = await repository.create_pet(REX)
        await other.execute(f"BEGIN; UPDATE {schema}.pets SET category_id = 8")
        placing = asyncio.create_task(repository.place_order(pet.id, AT))
        await until_waiting(server, 1)
        await other.execute("COMMIT")
        assert await placing == Receipt(1)
        assert "could not serialize access due to concurrent update" in server.log()
