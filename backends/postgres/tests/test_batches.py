"""Writes that share a statement: they share a commit, and none waits for what another waits for."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence

from backends.postgres.tests.places import fresh, opened, session, unavailable, until_waiting
from backends.postgres.tests.servers import Server
from petstore.contract import (
    ConflictError,
    Order,
    OrderStatus,
    PetQuery,
    PetStatus,
    Receipt,
    Repository,
    TokenReusedError,
)
from tests.support.repositories import AT, REX, make_token, pets

PLACED, COMPLETED, CANCELLED = OrderStatus
TURNS = 5


async def create(repository: Repository, count: int) -> list[int]:
    """Create available pets; return their ids."""
    receipts = await asyncio.gather(*(repository.create_pet(REX) for _ in range(count)))
    return [receipt.id for receipt in receipts]


async def place(repository: Repository, pet_ids: Sequence[int]) -> list[int]:
    """Place an order of each pet; return their ids."""
    receipts = await asyncio.gather(*(repository.place_order(pet, AT) for pet in pet_ids))
    return [receipt.id for receipt in receipts]


async def count_statuses(repository: Repository) -> Counter[object]:
    """Return how many pets have each status."""
    return Counter(pet.status for pet in await pets(repository))


async def test_writes_of_one_turn_share_a_commit_and_get_ids_in_its_order(server: Server) -> None:
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:

        async def check(table: str, *calls: Awaitable[Receipt | Order]) -> list[int]:
            made = [item.id for item in await asyncio.gather(*calls)]
            assert made == sorted(set(made))
            [[transactions]] = await other.fetch(
                f"SELECT count(DISTINCT xmin::text) FROM {schema}.{table} WHERE id = ANY ($1)", made
            )
            assert transactions == 1
            return made

        place, update = repository.place_order, repository.update_order
        ids = await check("pets", *(repository.create_pet(REX) for _ in range(20)))
        tokens = [make_token(100 - n) for n in range(80)]
        ids += await check("pets", *(repository.create_pet(REX, token) for token in tokens))
        orders = await check(
            "orders",
            *(place(pet, AT) for pet in ids[:20]),
            *(place(pet, AT, make_token(200 - pet)) for pet in ids[20:40]),
        )
        await check(
            "orders",
            *(update(order, COMPLETED) for order in orders[:20]),
            *(update(order, CANCELLED) for order in orders[20:]),
        )


async def test_of_writes_of_one_turn_the_first_takes_effect(server: Server) -> None:
    async with opened(server) as repository:
        one, two = await create(repository, 2)
        for write in (
            lambda: repository.create_pet(REX, make_token(1)),
            lambda: repository.place_order(one, AT, make_token(2)),
        ):
            receipt, again = await asyncio.gather(write(), write())
            assert (receipt.replayed, again) == (False, Receipt(receipt.id, replayed=True))
        for writes in (
            [repository.place_order(two, AT), repository.place_order(two, AT)],
            [repository.update_order(receipt.id, status) for status in (COMPLETED, CANCELLED)],
        ):
            first, second = await asyncio.gather(*writes, return_exceptions=True)
            assert not isinstance(first, Exception)
            assert isinstance(second, ConflictError)


async def test_no_write_is_sent_again_and_again(server: Server) -> None:
    """It would end as unavailable, for which the kit holds a busy machine responsible."""
    async with opened(server) as repository:
        one, two = await create(repository, 2)
        order = await repository.place_order(one, AT, make_token(1, until=10))
        assert (await repository.update_order(order.id, PLACED)).status is PLACED
        assert not (await repository.place_order(two, AT, make_token(1, body=1, now=20))).replayed


async def test_a_token_whose_first_order_is_refused_serves_another(server: Server) -> None:
    async with opened(server) as repository:
        one, two = await create(repository, 2)
        await repository.place_order(one, AT)
        refused, receipt = await asyncio.gather(
            repository.place_order(one, AT, make_token(1)),
            repository.place_order(two, AT, make_token(1, body=1)),
            return_exceptions=True,
        )
        assert isinstance(refused, ConflictError)
        assert await repository.get_order(receipt.id) == Order(receipt.id, two, PLACED, AT)


async def test_what_is_locked_waits_and_the_rest_of_its_batch_does_not(server: Server) -> None:
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        available, reserved = await create(repository, 30), await create(repository, 30)
        orders = await place(repository, reserved)
        locked = available[0], reserved[0]
        await other.execute(
            f"BEGIN; SELECT FROM {schema}.pets WHERE id IN {locked} FOR UPDATE;"
            f" SELECT FROM {schema}.orders WHERE id = {orders[1]} FOR UPDATE"
        )
        placing = [asyncio.create_task(repository.place_order(pet, AT)) for pet in available]
        changing = [
            asyncio.create_task(repository.update_order(order, COMPLETED)) for order in orders
        ]
        refused = asyncio.create_task(repository.place_order(available[0], AT))
        dropped = asyncio.create_task(repository.update_order(orders[0], CANCELLED))
        await asyncio.gather(*placing[1:], *changing[2:])
        await until_waiting(server, 3)
        waiting = placing[0], *changing[:2]
        assert not any(task.done() for task in waiting)
        dropped.cancel()
        await other.execute("COMMIT")
        await asyncio.gather(*waiting)
        assert isinstance((await asyncio.gather(refused, return_exceptions=True))[0], ConflictError)
        assert await count_statuses(repository) == {PetStatus.PENDING: 30, PetStatus.SOLD: 30}


async def test_a_pet_that_another_transaction_is_about_to_sell_is_not_sold_twice(
    server: Server,
) -> None:
    """The order waits for that transaction, and follows what it has done."""
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        for end, error in (("COMMIT", ConflictError), ("ROLLBACK", None)):
            [pet] = await create(repository, 1)
            await other.execute(f"BEGIN; UPDATE {schema}.pets SET status = 'sold' WHERE id = {pet}")
            placing = asyncio.create_task(repository.place_order(pet, AT))
            await until_waiting(server, 1)
            await other.execute(end)
            [result] = await asyncio.gather(placing, return_exceptions=True)
            assert type(result) is (error or Receipt)


async def test_a_token_that_another_transaction_records_undoes_one_batch(server: Server) -> None:
    """Later orders use other connections; the batch is repeated, and finds the record."""
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        ids = await create(repository, 30)
        old = await repository.place_order(ids[29], AT)
        token = make_token(5)
        await other.execute(
            f"BEGIN; INSERT INTO {schema}.tokens SELECT '\\x{token.value.hex()}',"
            f" '\\x{token.fingerprint.hex()}', {old.id}, {token.until}, now()"
        )
        batch = [
            asyncio.create_task(repository.place_order(pet, AT, make_token(number)))
            for number, pet in enumerate(ids[:10])
        ]
        await until_waiting(server, 1)
        await place(repository, ids[10:29])
        assert not any(task.done() for task in batch)
        await other.execute("COMMIT")
        receipts = await asyncio.gather(*batch)
        assert receipts.pop(5) == Receipt(old.id, replayed=True)
        assert not any(receipt.replayed for receipt in receipts)
        assert await count_statuses(repository) == {PetStatus.PENDING: 29, PetStatus.AVAILABLE: 1}


async def test_a_locked_order_is_not_sent_again_by_a_closed_repository(server: Server) -> None:
    schema = fresh()
    async with opened(server, schema=schema, watched=False) as watching:
        ids = await create(watching, 2)
        async with session(server) as one, session(server) as two:
            await one.execute(f"BEGIN; LOCK TABLE {schema}.tokens IN SHARE MODE")
            await two.execute(f"BEGIN; SELECT FROM {schema}.pets WHERE id = {ids[0]} FOR UPDATE")
            async with opened(server, schema=schema, watched=False) as repository:
                placing = [
                    asyncio.create_task(repository.place_order(pet, AT, make_token(pet)))
                    for pet in ids
                ]
                await until_waiting(server, 1)
                # It ends while the repository waits for the call that was sent.
                committing = asyncio.create_task(one.execute("COMMIT"))
            await committing
            assert "closed" in await unavailable(placing[0])
            await placing[1]
        statuses = {pet.id: pet.status for pet in await pets(watching)}
        assert statuses == {ids[0]: PetStatus.AVAILABLE, ids[1]: PetStatus.PENDING}


async def test_batches_over_the_same_pets_in_opposite_orders_never_wait_for_each_other(
    server: Server,
) -> None:
    """Two processes make and order the same pets, with the same tokens, and end the orders."""
    schema = fresh()
    deadlocks = server.log().count("deadlock detected")
    async with opened(server, schema=schema) as one, opened(server, schema=schema) as two:
        for turn in range(TURNS):
            tokens = [make_token(turn * 120 + number) for number in range(120, 0, -1)]
            made = await asyncio.gather(
                *(one.create_pet(REX, token) for token in tokens[60:]),
                *(two.create_pet(REX, token) for token in tokens[:59:-1]),
            )
            ids = sorted(receipt.id for receipt in made[:60])
            assert [receipt.id for receipt in made[60:]] == [r.id for r in made[59::-1]]
            assert Counter(receipt.replayed for receipt in made) == {False: 60, True: 60}
            writes = list(zip(ids, tokens[:60], strict=True))
            placed = await asyncio.gather(
                *(one.place_order(pet, AT, token) for pet, token in writes),
                *(two.place_order(pet, AT, token) for pet, token in reversed(writes)),
            )
            orders = [receipt.id for receipt in placed[:60]]
            assert [receipt.id for receipt in placed[60:]] == orders[::-1]
            assert Counter(receipt.replayed for receipt in placed) == {False: 60, True: 60}
            changed = await asyncio.gather(
                *(one.update_order(order, COMPLETED) for order in orders),
                *(two.update_order(order, CANCELLED) for order in reversed(orders)),
                return_exceptions=True,
            )
            for completed, cancelled in zip(changed[:60], changed[:59:-1], strict=True):
                assert {type(completed), type(cancelled)} == {Order, ConflictError}
            sold = sum(isinstance(result, Order) for result in changed[:60])
            page = await one.list_pets(PetQuery(ids[0] - 1, 60))
            assert Counter(pet.status for pet in page)[PetStatus.SOLD] == sold
    assert server.log().count("deadlock detected") == deadlocks


async def test_batches_with_the_same_tokens_in_opposite_orders_never_wait_for_each_other(
    server: Server,
) -> None:
    """Both wait for a token in their middle first; for each token one of two orders is placed."""
    schema = fresh()
    deadlocks = server.log().count("deadlock detected")
    async with (
        opened(server, schema=schema) as one,
        opened(server, schema=schema) as two,
        session(server) as other,
    ):
        ids = iter(await create(one, 120))
        await other.execute(
            f"BEGIN; INSERT INTO {schema}.tokens"
            f" SELECT '\\x{make_token(30).value.hex()}', '', 1, 1000, now()"
        )
        placing = []
        for repository, numbers in ((one, range(60)), (two, range(59, -1, -1))):
            placing += [
                asyncio.create_task(
                    repository.place_order(next(ids), AT, make_token(number, body=len(placing)))
                )
                for number in numbers
            ]
            await until_waiting(server, len(placing) // 60)
        await other.execute("ROLLBACK")
        placed = await asyncio.gather(*placing, return_exceptions=True)
        for first, second in zip(placed[:60], placed[:59:-1], strict=True):
            assert {type(first), type(second)} == {Receipt, TokenReusedError}
        assert (await count_statuses(one))[PetStatus.PENDING] == 60
    assert server.log().count("deadlock detected") == deadlocks
