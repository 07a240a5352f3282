"""Replicas that confirm writes, and the slots of a cluster.

That nothing is lost when a master is replaced, the kit's fault injection shows on both topologies;
and that no id is assigned twice, test_forks.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from petstore_redis.locator import MasterLocator
from redis.crc import key_slot

from backends.redis.tests.servers import AOF
from backends.redis.tests.stores import fresh, opened, unavailable
from backends.redis.tests.topologies import Cluster, pair
from petstore.contract import OrderQuery, OrderStatus
from tests.support.repositories import AT, REX, again, make_token, pets

pytestmark = pytest.mark.slow


async def test_a_write_that_no_replica_confirms_is_unavailable_and_reads_continue(
    tmp_path: Path,
) -> None:
    with pair(tmp_path, *AOF) as (master, replica):
        async with opened(master, wait_replicas=1, timeout_seconds=1) as repository:
            pet = (await repository.create_pet(REX, make_token(1))).id
            other = (await repository.create_pet(REX)).id
            first = (await repository.place_order(pet, AT)).id
            await repository.update_order(first, OrderStatus.CANCELLED)
            order = (await repository.place_order(pet, AT)).id
            writes: list[Callable[[], Any]] = [
                lambda: repository.create_pet(REX),
                lambda: repository.create_pet(REX, make_token(1)),
                lambda: repository.update_order(order, OrderStatus.CANCELLED),
                lambda: repository.update_order(order, OrderStatus.CANCELLED),
                lambda: repository.place_order(other, AT, make_token(2)),
                lambda: repository.place_order(other, AT, make_token(2)),
            ]
            replica.freeze()
            try:
                calls = [
                    asyncio.ensure_future(unavailable(write(), within=1.9)) for write in writes
                ]
                await asyncio.sleep(0.01)
                for _ in range(10):
                    assert await repository.get_pet(pet) is not None
                assert not any(call.done() for call in calls)
                for call in calls:
                    assert (
                        "0 of 1 replicas confirmed the write in time, so it may or may not last"
                        in await call
                    )
            finally:
                replica.resume()
                await asyncio.to_thread(master.until_replicated)
            assert (await again(lambda: repository.create_pet(REX, make_token(1)))).replayed
            assert (await again(lambda: repository.place_order(other, AT, make_token(2)))).replayed
            assert len(await pets(repository)) == 3
            assert len(await repository.list_orders(OrderQuery(0, 9))) == 3


async def test_the_first_and_the_last_slot_of_each_node_are_served(nodes: Cluster) -> None:
    borders = [slot for range_ in nodes.nodes[0].call("CLUSTER", "SLOTS") for slot in range_[:2]]
    assert {0, 16383} < {*borders}
    for border in borders:
        names = (f"{fresh()}-{border}" for _ in count())
        prefix = next(name for name in names if key_slot(f"{{{name}:0}}".encode()) == border)
        async with opened(nodes, prefix=prefix, partitions=1) as repository:
            created = (await repository.create_pet(REX)).id
            assert [pet.id for pet in await pets(repository)] == [created]


async def test_a_slot_that_migrates_is_followed_whatever_fails_meanwhile(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate, errors = MasterLocator.locate, [MemoryError("injected")] * 2

    async def failing(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return await locate(*args)

    prefix = fresh()
    async with opened(nodes, prefix=prefix, partitions=4, timeout_seconds=1) as repository:
        monkeypatch.setattr(MasterLocator, "locate", failing)
        made = [(await repository.create_pet(REX, make_token(4 + n))).id for n in range(40)]
        slot = key_slot(f"{{{prefix}:0}}".encode())
        source = nodes.owner(slot)
        target = next(node for node in nodes.nodes if node is not source)
        ids = {node: node.call("CLUSTER", "MYID") for node in (source, target)}
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        keys = source.call("CLUSTER", "GETKEYSINSLOT", slot, 100)
        assert len(keys) > 3
        to = ("MIGRATE", "127.0.0.1", target.port, "", 0, 1000, "KEYS")
        for some in (keys[:2], keys[2:]):
            source.call(*to, *some)
            assert sorted(pet.id for pet in await pets(repository)) == sorted(made)  # ASK
            assert await repository.get_pet(made[0]) is not None
            assert "TRYAGAIN" in await unavailable(repository.create_pet(REX, make_token(0)))
            made.append((await repository.create_pet(REX, make_token(1001 + 4 * len(made)))).id)
        waiting = asyncio.create_task(repository.create_pet(REX, make_token(0)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        for node in (target, source, *nodes.nodes):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        made.append((await waiting).id)
        calls = (repository.create_pet(REX, make_token(400 + 4 * n)) for n in range(30))
        made += [receipt.id for receipt in await asyncio.gather(*calls)]  # MOVED
        assert sorted(pet.id for pet in await pets(repository)) == sorted(made)
        assert len(set(made)) == len(made)
        assert not errors
