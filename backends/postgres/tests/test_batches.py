"""Orders, and changes of orders, that share a statement: each has its own outcome, none waits."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from backends.postgres.tests.places import fresh, opened, session, unavailable, until_waiting
from backends.postgres.tests.servers import Server
from petstore.contract import (
    ConflictError,
    NotFoundError,
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
TURNS = 20


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


async def test_orders_share_a_commit_and_each_has_its_own_outcome(server: Server) -> None:
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        order = repository.place_order
        ids = await create(repository, 60)
        old = await order(ids[50], AT, make_token(1, until=1000))
        await order(ids[51], AT, make_token(2, until=10))
        results = await asyncio.gather(
            *(order(pet, AT) for pet in ids[:20]),
            *(order(pet, AT, make_token(200 - pet, now=20)) for pet in ids[20:40]),
            order(ids[0], AT),
            order(ids[1], AT, make_token(300, now=20)),
            order(ids[20], AT, make_token(200 - ids[20], now=20)),
            order(ids[52], AT, make_token(200 - ids[21], body=1, now=20)),
            order(ids[50], AT, make_token(1, now=20)),
            order(ids[53], AT, make_token(1, body=1, now=20)),
            order(ids[54], AT, make_token(2, body=1, now=20)),
            order(ids[51], AT, make_token(3, now=20)),
            order(1000, AT, make_token(4, now=20)),
            return_exceptions=True,
        )
        sold, again_sold, replayed, reused, *others = results[40:]
        old_replayed, old_reused, expired, gone, no = others
        new = [receipt.id for receipt in results[:40]]
        assert new == sorted(set(new)), "orders of one turn get their ids in its order"
        assert isinstance(sold, ConflictError)
        assert isinstance(again_sold, ConflictError)
        assert replayed == Receipt(new[20], replayed=True)
        assert isinstance(reused, TokenReusedError)
        assert old_replayed == Receipt(old.id, replayed=True)
        assert isinstance(old_reused, TokenReusedError)
        assert expired == Receipt(new[-1] + 1), "the record has expired, so it does not count"
        assert isinstance(gone, ConflictError)
        assert isinstance(no, NotFoundError)
        [[transactions, count]] = await other.fetch(
            f"SELECT count(DISTINCT xmin::text), count(*) FROM {schema}.orders WHERE id >= $1",
            new[0],
        )
        assert (transactions, count) == (1, 41)
        [[recorded]] = await other.fetch(f"SELECT count(*) FROM {schema}.tokens")
        assert recorded == 22, "refused orders record nothing"
        assert await count_statuses(repository) == {PetStatus.PENDING: 43, PetStatus.AVAILABLE: 17}


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


async def test_changes_of_orders_share_a_commit_and_each_has_its_own_outcome(
    server: Server,
) -> None:
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        change = repository.update_order
        ids = await place(repository, await create(repository, 50))
        await change(ids[49], CANCELLED)
        *changed, same, second, kept, repeated, third, missing = await asyncio.gather(
            *(change(order, COMPLETED) for order in ids[:20]),
            *(change(order, CANCELLED) for order in ids[20:40]),
            change(ids[0], COMPLETED),
            change(ids[1], CANCELLED),
            change(ids[40], PLACED),
            change(ids[49], CANCELLED),
            change(ids[49], COMPLETED),
            change(1000, COMPLETED),
            return_exceptions=True,
        )
        assert [order.id for order in changed] == ids[:40]
        assert [order.status for order in changed] == [COMPLETED] * 20 + [CANCELLED] * 20
        assert same == changed[0]
        assert isinstance(second, ConflictError)
        assert kept.status is PLACED
        assert repeated.status is CANCELLED
        assert isinstance(third, ConflictError)
        assert isinstance(missing, NotFoundError)
        [[transactions]] = await other.fetch(
            f"SELECT count(DISTINCT xmin::text) FROM {schema}.orders WHERE id = ANY ($1)", ids[:40]
        )
        assert transactions == 1
        assert await count_statuses(repository) == {
            PetStatus.SOLD: 20,
            PetStatus.AVAILABLE: 21,
            PetStatus.PENDING: 9,
        }


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


async def test_a_token_that_another_transaction_records_undoes_its_batch_only(
    server: Server,
) -> None:
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


async def test_a_locked_order_is_not_sent_again_once_the_repository_is_closed(
    server: Server,
) -> None:
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
    """Two processes place the same orders, with the same tokens, then complete or cancel them."""
    schema = fresh()
    deadlocks = server.log().count("deadlock detected")
    async with opened(server, schema=schema) as one, opened(server, schema=schema) as two:
        for turn in range(TURNS):
            ids = await create(one, 60)
            tokens = [make_token(turn * 60 + number) for number in range(60, 0, -1)]
            writes = list(zip(ids, tokens, strict=True))
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
