"""Servers that continue from the same state, each unaware of the others: no id is the same.

Failovers in a row, and a master that restarts on its side of a partition, leave several servers
that each continue the store as they know it.
"""

import asyncio
from pathlib import Path

import pytest

from backends.redis.tests.servers import AOF, QUICK, VALKEY, Server, servers
from backends.redis.tests.stores import fresh, opened
from petstore.contract import PetQuery
from tests.support.repositories import AT, REX

pytestmark = pytest.mark.slow


async def assign(server: Server, prefix: str, partitions: int) -> tuple[list[int], list[int]]:
    """Add pets to a store on this server and order them; return the ids of both."""
    async with opened(server, prefix=prefix, partitions=partitions) as repository:
        known = await repository.list_pets(PetQuery(0, 999))
        pets = [(await repository.create_pet(REX)).id for _ in range(30)]
        for pet in known:  # walks from page to page find the new ones
            assert pet.id < min(id_ for id_ in pets if (id_ - pet.id) % partitions == 0)
        orders = [(await repository.place_order(pet, AT)).id for pet in pets]
        return pets, orders


@pytest.mark.parametrize("partitions", [1, 3])
def test_no_two_servers_of_one_history_assign_the_same_id(tmp_path: Path, partitions: int) -> None:
    prefix = fresh()

    async def begin(server: Server) -> None:
        async with opened(server, prefix=prefix, partitions=partitions) as repository:
            for _ in range(partitions):
                pet = await repository.create_pet(REX)
                await repository.place_order(pet.id, AT)

    with servers(tmp_path, VALKEY, 4) as make:
        master = make(0, *QUICK, *AOF).start()
        replicas = [make(number, *QUICK, *AOF).start() for number in (1, 2, 3)]
        for replica in replicas:  # not in its settings: it must stay a master after a restart
            replica.call("REPLICAOF", "127.0.0.1", master.port)
        asyncio.run(begin(master))
        master.until_replicated(3)
        for replica in replicas:  # before the others continue: they never hear of each other
            replica.call("REPLICAOF", "NO", "ONE")
        master.restart()
        separated = (master, *replicas)
        histories = [asyncio.run(assign(server, prefix, partitions)) for server in separated]
        # One that has gone on restarts, and one gets a replica, which takes over.
        replicas[0].restart()
        replicas[2].call("REPLICAOF", "127.0.0.1", replicas[1].port)
        replicas[1].until_replicated()
        replicas[2].call("REPLICAOF", "NO", "ONE")
        separated = (replicas[2], replicas[0], master, replicas[1])
        histories += [asyncio.run(assign(server, prefix, partitions)) for server in separated]
    for kind in (0, 1):
        assigned = [id_ for history in histories for id_ in history[kind]]
        assert len(set(assigned)) == len(assigned) == 30 * len(histories)
