"""A server that is emptied under the service, or comes back without its data, is unavailable.

Otherwise ids would begin at 1 again, and another service could start on it with other partitions.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from petstore_redis import RedisRepository
from redis.crc import key_slot

from backends.redis.tests.places import fresh, opened, unavailable, unavailable_for
from backends.redis.tests.servers import AOF, QUICK, VALKEY, Server, servers, single, until
from backends.redis.tests.topologies import Cluster, sentinel
from petstore.contract import Order, OrderStatus, Pet, PetStatus
from tests.support.repositories import AT, REX, again, make_token, pets


def writes(repository: RedisRepository, pet: int, order: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each kind of write; the order is not of the pet."""
    restored = Pet(77, "Rex", 7, PetStatus.PENDING)
    cancelled = Order(77, pet, OrderStatus.CANCELLED, AT)
    return {
        "create": lambda: repository.create_pet(REX),
        "create with a token": lambda: repository.create_pet(REX, make_token(1)),
        "place": lambda: repository.place_order(pet, AT),
        "place with a token": lambda: repository.place_order(pet, AT, make_token(pet)),
        "update": lambda: repository.update_order(order, OrderStatus.COMPLETED),
        "restore a pet": lambda: repository.restore([restored]),
        "restore an order": lambda: repository.restore([cancelled]),
    }


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("number", range(7))
def test_no_write_changes_a_server_that_was_emptied(
    server: Server, number: int, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with opened(server, partitions=partitions) as repository:
            free, pet = [(await repository.create_pet(REX, make_token(n))).id for n in (3, 6)]
            order = (await repository.place_order(pet, AT)).id
            server.call("FLUSHALL")
            with caplog.at_level(logging.ERROR, "petstore.redis"):
                await unavailable(list(writes(repository, free, order).values())[number]())
                await unavailable_for("emptied", lambda: pets(repository))
                assert await unavailable(repository.list_pets(0, 1, None))  # as readiness asks
            assert server.call("KEYS", "*") == []
            assert [r.levelname for r in caplog.records if "was emptied" in r.getMessage()] == [
                "ERROR"
            ]

    asyncio.run(run())


def test_the_store_is_used_again_once_its_data_are_back(server: Server) -> None:
    async def run() -> None:
        prefix = fresh()
        meta = f"{{{prefix}:0}}:meta"
        async with opened(server, prefix=prefix) as repository:
            receipt = await repository.create_pet(REX)
            with server.client(decode_responses=False) as admin:
                kept = {key: admin.dump(key) for key in admin.keys(f"{{{prefix}:*")}
                admin.flushall()
                async with opened(server, prefix=prefix) as other:  # a new store in its place
                    await unavailable(repository.create_pet(REX))
                    assert (await other.create_pet(REX)).id == 1
                    await unavailable_for("emptied", lambda: pets(repository))
                admin.flushall()
                for key, value in kept.items():
                    admin.restore(key, 0, value)
            assert (await again(lambda: repository.create_pet(REX))).id > receipt.id
            assert next(pet.id for pet in await pets(repository)) == receipt.id
            assert server.call("HGET", meta, "store")

    asyncio.run(run())


def test_a_store_from_before_stores_had_ids_is_given_one(server: Server) -> None:
    async def run() -> None:
        prefix = fresh()
        async with opened(server, prefix=prefix) as repository:
            await repository.create_pet(REX)
        server.call("HDEL", f"{{{prefix}:0}}:meta", "store", "lane")
        async with opened(server, prefix=prefix) as one, opened(server, prefix=prefix) as two:
            ids = [(await repository.create_pet(REX)).id for repository in (one, two)]
            assert ids == [2, 3]

    asyncio.run(run())


def test_a_master_that_restarts_empty_with_its_replicas_is_unavailable(tmp_path: Path) -> None:
    """Without AOF, a restart that is faster than the failover empties the replicas, too."""

    async def run(master: Server, replica: Server) -> None:
        async with opened(master, wait_replicas=1, timeout_seconds=1) as repository:
            made = [(await repository.create_pet(REX)).id for _ in range(5)]
            await asyncio.to_thread(master.restart)
            await unavailable_for("emptied", lambda: repository.create_pet(REX))
            await unavailable_for("emptied", lambda: repository.get_pet(made[0]))
            await asyncio.to_thread(until, lambda: not replica.call("KEYS", "*"))

    with servers(tmp_path, VALKEY, 2) as make:
        master = make(0, *QUICK).start()
        replica = make(1, *QUICK, f"replicaof 127.0.0.1 {master.port}").start()
        with master.client() as client:
            until(lambda: client.set("a", "1") and client.wait(1, 1000) == 1)
        asyncio.run(run(master, replica))


def test_a_node_of_a_cluster_that_was_emptied_is_unavailable_and_the_others_are_not(
    nodes: Cluster,
) -> None:
    async def run() -> None:
        prefix = fresh()
        async with opened(nodes, prefix=prefix, partitions=4) as repository:
            made = [(await repository.create_pet(REX, make_token(4 + n))).id for n in range(8)]
            owners = [nodes.owner(key_slot(f"{{{prefix}:{n}}}".encode())) for n in range(4)]
            kept = next(n for n in range(4) if owners[n] is not owners[0])
            for key in owners[0].call("KEYS", f"{{{prefix}:*"):
                owners[0].call("DEL", key)
            await unavailable(repository.create_pet(REX, make_token(100)))
            await unavailable_for("emptied", lambda: repository.get_pet(made[0]))
            assert await repository.get_pet(made[kept]) is not None

    asyncio.run(run())


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_the_settings_of_a_new_master_are_checked(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with opened(group, timeout_seconds=0.5) as repository:
            await repository.create_pet(REX)
            old = group.master()
            for server in group.data:
                if server is not old:
                    server.call("CONFIG", "SET", "maxmemory-policy", policy)
                    server.call("CONFIG", "SET", "appendfsync", "everysec")
            old.kill()
            await asyncio.to_thread(until, lambda: group.failed_over(old))
            if policy == "noeviction":
                await again(lambda: repository.create_pet(REX))
                assert caplog.text.count("does not sync each write") == 1
                return
            await unavailable_for("maxmemory-policy", lambda: repository.create_pet(REX))
            assert caplog.text.count("set maxmemory-policy noeviction") == 1
            group.master().call("CONFIG", "SET", "maxmemory-policy", "noeviction")
            await again(lambda: repository.create_pet(REX))

    with sentinel(tmp_path, *AOF, hasty=True) as group, caplog.at_level("WARNING"):
        asyncio.run(run())


def test_a_single_server_that_restarts_with_its_data_is_used_again(tmp_path: Path) -> None:
    async def run(server: Server) -> None:
        async with opened(server) as repository:
            receipt = await repository.create_pet(REX)
            await asyncio.to_thread(server.restart)
            assert (await again(lambda: pets(repository)))[0].id == receipt.id

    with single(tmp_path, *AOF) as server:
        asyncio.run(run(server))
