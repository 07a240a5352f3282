"""Restoring into several partitions: an order is stored with its pet, whatever its id.

The record of a token is stored in the partition of the token, unless it is stored already.
"""

import asyncio
import re
import subprocess
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace
from petstore_conformance.clauses.records import read_records
from petstore_conformance.model.values import record_of

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.stores import fresh, opened, unavailable
from petstore.contract import (
    ConflictError,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetQuery,
    PetStatus,
    Receipt,
    TokenRecord,
    TokenReusedError,
)
from tests.support.environments import program
from tests.support.repositories import AT, REX, again, make_token

PETS = [Pet(pet_id, "Rex", 7, PetStatus.PENDING) for pet_id in (1, 2, 3)]


async def test_of_two_orders_with_one_id_the_first_is_restored(valkey: Server) -> None:
    async with opened(valkey, partitions=3) as repository:
        await repository.restore(PETS)
        for one, two in ((1, 2), (2, 1), (3, 1), (1, 3)):
            orders = [
                Order(10 * one + two, pet_id, OrderStatus.CANCELLED, AT) for pet_id in (one, two)
            ]
            with pytest.raises(ConflictError):
                await repository.restore(orders)
            assert await repository.get_order(orders[0].id) == orders[0]
            stored = await repository.list_orders(OrderQuery(0, 99))
            assert [order.id for order in stored].count(orders[0].id) == 1


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (3, 2)])
async def test_records_move_from_any_partitions_to_any_others(
    valkey: Server, sizes: tuple[int, int]
) -> None:
    """The record of an order is where its pet is; a retry finds it from the token's partition."""
    source, target = (opened(valkey, partitions=size) for size in sizes)
    async with source as one, target as other:
        pets = [(make_token(n), (await one.create_pet(REX, make_token(n))).id) for n in (1, 2)]
        orders = []
        for number, (_, pet_id) in enumerate(pets * 2):
            token = make_token(10 + number, pet_id)
            order = (await one.place_order(pet_id, AT, token)).id
            await one.update_order(order, OrderStatus.CANCELLED)
            orders.append((token, order))
        found = await read_records(one, 1, 0)
        assert found == {record_of(*pair) for pair in (*pets, *orders)}
        stored = [*await one.list_pets(PetQuery(0, 9)), *await one.list_orders(OrderQuery(0, 9))]
        for _ in range(2):  # again without effect
            await one.restore([*stored, *found])
            await other.restore([*stored, *found])
        assert await read_records(other, 100, 0) == found == await read_records(one, 100, 0)
        for token, pet_id in pets:
            assert await other.create_pet(REX, token) == Receipt(pet_id, replayed=True)
        for (token, order), (_, pet_id) in zip(orders, pets * 2, strict=True):
            assert await other.place_order(pet_id, AT, token) == Receipt(order, replayed=True)
            with pytest.raises(TokenReusedError):
                await other.place_order(pet_id, AT, replace(token, fingerprint=bytes(32)))
        for repository in (one, other):
            for record in found:
                with pytest.raises(ConflictError):
                    await repository.restore([replace(record, id=record.id + 1)])
            assert await read_records(repository, 100, 0) == found
        assert await read_records(other, 100, 1000) == set()


async def test_a_walk_through_records_finds_all_of_them_whatever_happens_to_the_server(
    tmp_path: Path,
) -> None:
    """After a restart the server has another order of the same records."""
    with single(tmp_path, *AOF) as server:
        async with opened(server, partitions=2) as repository:
            tokens = [make_token(number) for number in range(2000)]
            await repository.restore([record_of(token, 1) for token in tokens])
            found, cursor = list[TokenRecord](), ""
            for pages in count():
                page = await again(lambda: repository.list_tokens(cursor, 100, 0))
                found += page.records
                if not (cursor := page.next):
                    break
                if pages in (3, 14):
                    await asyncio.to_thread(server.restart)
            assert {record.value for record in found} == {token.value for token in tokens}
            assert len(found) > len(tokens)  # it began again


async def test_records_are_read_while_replicas_are_missing(server: Server) -> None:
    prefix = fresh()
    async with opened(server, prefix=prefix) as repository:
        await repository.restore([record_of(make_token(1), 7)])
    async with opened(server, prefix=prefix, wait_replicas=1, timeout_seconds=1) as repository:
        assert await read_records(repository, 9, 0) == {record_of(make_token(1), 7)}


async def test_a_retry_of_a_pet_that_was_deleted_by_hand_names_the_record(server: Server) -> None:
    prefix = fresh()
    async with opened(server, prefix=prefix) as repository:
        receipt = await repository.create_pet(REX, make_token(1))
        server.call("DEL", f"{{{prefix}:0}}:pets")
        message = await unavailable(repository.create_pet(REX, make_token(1)))
        assert f"pet {receipt.id} is not stored, but is recorded" in message
        [command] = re.findall("HDEL .*", message)
        client = program("redis-cli"), "-p", f"{server.port}"
        run = partial(subprocess.run, client, input=command.encode(), capture_output=True)
        assert (await asyncio.to_thread(run)).stdout == b"1\n"
        assert not (await repository.create_pet(REX, make_token(1))).replayed
