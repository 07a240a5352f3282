"""Sentinels and nodes that do not know of the last failover, as on the old side of a partition.

They are real, and cut off for good: they have the state of before, and know no address of others.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from petstore_redis import RedisRepository
from redis.crc import key_slot

from backends.redis.tests.servers import AOF, QUICK, VALKEY, Server, redis_port, servers, until
from backends.redis.tests.stores import fresh, opened
from backends.redis.tests.topologies import SERVICE, cluster
from petstore.contract import UnavailableError
from tests.support.repositories import REX, again, pets

PATIENCE = 20


@contextmanager
def two_sides(directory: Path) -> Iterator[tuple[Server, Server, list[Server]]]:
    """Run an old master, the new one, and three Sentinels: the first knows only the old one."""
    with servers(directory, VALKEY, 5) as make:
        old, new = [make(number, *QUICK, *AOF).start() for number in (0, 1)]
        identities = ["0" * 39 + f"{number}" for number in range(3)]
        sentinels = []
        for number, master in enumerate((old, new, new)):
            lines = [
                f"sentinel myid {identities[number]}",
                f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 2",
                f"sentinel down-after-milliseconds {SERVICE} 60000",
                f"sentinel config-epoch {SERVICE} {0 if master is old else 7}",
            ]
            sentinels.append(make(2 + number, *lines).start())
        yield old, new, sentinels


def url(sentinels: list[Server]) -> str:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in sentinels)
    return f"redis+sentinel://{hosts}/{SERVICE}"


async def test_the_sentinel_with_the_highest_epoch_is_believed_whatever_their_order(
    tmp_path: Path,
) -> None:
    with two_sides(tmp_path) as (old, new, sentinels):
        for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
            prefix = fresh()
            async with opened(url([sentinels[n] for n in order]), prefix=prefix) as repository:
                await repository.create_pet(REX)
            assert new.call("KEYS", f"{{{prefix}:*")
            assert not old.call("KEYS", "*")


async def test_a_silent_sentinel_costs_no_time(tmp_path: Path) -> None:
    with two_sides(tmp_path) as (_, _, sentinels):
        sentinels[2].freeze()
        async with asyncio.timeout(PATIENCE / 2):
            async with opened(url(sentinels[::-1]), timeout_seconds=PATIENCE) as repository:
                await repository.create_pet(REX)


async def test_a_service_does_not_return_to_the_side_that_knows_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with two_sides(tmp_path) as (old, _, sentinels):
        async with opened(url(sentinels), timeout_seconds=1) as repository:
            await repository.create_pet(REX)
            for sentinel in sentinels[1:]:
                sentinel.kill()
            await asyncio.to_thread(until, lambda: caplog.text.count("know an old master") > 2)
            await repository.create_pet(REX)
            assert len(await pets(repository)) == 2
            assert not old.call("KEYS", "*")


async def read_on(repository: RedisRepository) -> None:
    while True:
        await repository.check()  # as the service does
        await pets(repository)
        await asyncio.sleep(0.02)


async def test_a_server_that_is_no_longer_the_master_is_left_although_it_can_be_read(
    tmp_path: Path,
) -> None:
    with two_sides(tmp_path) as (_, new, sentinels):
        async with opened(url(sentinels[1:]), timeout_seconds=1) as repository:
            await repository.create_pet(REX)
            new.call("REPLICAOF", "127.0.0.1", 1)  # nothing is there: it keeps its data
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(UnavailableError, match="master"):
                    await read_on(repository)
            new.call("REPLICAOF", "NO", "ONE")
            await again(lambda: pets(repository))


def test_the_cluster_node_with_the_highest_epoch_is_believed(tmp_path: Path) -> None:
    """An old master that is cut off comes first in the URL."""
    prefix = fresh()
    slot = key_slot(f"{{{prefix}:0}}".encode())

    async def run(hosts: list[Server], count: int) -> None:
        place = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in hosts)
        async with opened(place, prefix=prefix, timeout_seconds=1) as repository:
            await again(lambda: repository.create_pet(REX))
            assert len(await pets(repository)) == count

    with cluster(tmp_path, *AOF, replicas=1) as group:
        old = group.owner(slot)
        others = [node for node in group.nodes if node is not old]
        asyncio.run(run([old], 1))
        old.until_replicated(key=f"{{{prefix}:0}}")
        old.kill()
        until(lambda: group.failed_over(slot, old))
        cut_off(old)
        until(lambda: old.call("CLUSTER INFO")["cluster_state"] == "fail")
        assert group.owner(slot, old) is old
        asyncio.run(run([old, *others], 2))


def cut_off(node: Server) -> None:
    """Start a node that does not know the others' bus ports, nor they its own."""
    state = node.directory / "nodes.conf"
    state.write_text(re.sub(r"@\d+", "@1", state.read_text()))
    with (node.directory / "server.conf").open("a") as file:
        file.write(f"cluster-port {redis_port()}\n")
    node.start()
