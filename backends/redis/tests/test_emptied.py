"""The store under a repository is emptied, replaced, or an older copy: it is noticed and refused.

Otherwise ids would begin at 1 again, and another service could start on it with other partitions.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from petstore_redis import RedisRepository, store
from petstore_redis.client import RECONNECT_SECONDS
from redis.crc import key_slot

from backends.redis.tests.servers import AOF, Server, single, until
from backends.redis.tests.stores import fresh, opened, unavailable, unavailable_for
from backends.redis.tests.topologies import Cluster, sentinel
from petstore.contract import (
    MAX_ID,
    MAX_NOTE_BYTES,
    Access,
    ChangeNeededError,
    Expected,
    Order,
    OrderQuery,
    OrderStatus,
    Pet,
    PetStatus,
    SettingsError,
    StorageError,
    WrongStoreError,
)
from tests.support.repositories import (
    AT,
    REX,
    Noted,
    again,
    count_with_rex,
    make_token,
    pets,
    refused,
)


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


async def check_refused_for_good(repository: RedisRepository, reason: str) -> None:
    """Check that a check finds another store, and that no call succeeds from then on."""
    with pytest.raises(WrongStoreError, match=reason):
        await repository.check()
    for call in (pets(repository), repository.create_pet(REX), repository.check()):
        assert reason in await unavailable(call)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("number", range(7))
async def test_no_write_changes_a_server_that_was_emptied(
    server: Server, number: int, partitions: int
) -> None:
    async with opened(server, partitions=partitions) as repository:
        free, pet = [(await repository.create_pet(REX, make_token(n))).id for n in (3, 6)]
        order = (await repository.place_order(pet, AT)).id
        server.call("FLUSHALL")
        await unavailable(list(writes(repository, free, order).values())[number]())
        await unavailable_for("emptied", lambda: pets(repository))
        assert server.call("KEYS", "*") == []


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_check_notices_that_the_store_is_gone_or_another_one(
    server: Server, partitions: int
) -> None:
    prefix = fresh()
    async with (
        opened(server, prefix=prefix, partitions=partitions) as one,
        opened(server, prefix=prefix, partitions=partitions) as two,
    ):
        assert one.store == two.store
        for repository in (one, two):
            await repository.create_pet(REX)
            await repository.check()
        names = server.call("KEYS", f"{{{prefix}:*")
        for name in names:
            server.call("RENAME", name, f"away:{name}")
        await check_refused_for_good(one, "was emptied")
        for name in names:
            server.call("RENAME", f"away:{name}", name)
        await asyncio.sleep(3 * RECONNECT_SECONDS)
        assert "was emptied" in await unavailable(pets(one)), "it is used again"
        server.call("FLUSHALL")
        expected = Expected(one.store)
        with pytest.raises(WrongStoreError, match=f"not the store {one.store} that is expected"):
            async with opened(server, prefix=prefix, partitions=partitions, expected=expected):
                pass
        assert server.call("KEYS", "*") == []
        async with opened(server, prefix=prefix, partitions=partitions) as new:
            assert new.store != one.store
            await check_refused_for_good(two, "has another store")
            with pytest.raises(WrongStoreError, match=f"has the store {new.store}"):
                async with opened(server, prefix=prefix, partitions=partitions, expected=expected):
                    pass


def test_nothing_is_upgraded_without_leave(server: Server) -> None:
    prefix, careful = fresh(), Expected(access=Access.WRITE)
    assert count_with_rex(opened(server, prefix=prefix)) == 1
    server.call("HSET", f"{{{prefix}:0}}:meta", "schema", 1)
    old = opened(server, prefix=prefix, expected=careful)
    assert "has schema 1: the next start upgrades it" in refused(old, ChangeNeededError)


class Clock:
    """Time as the store sees it, which passes as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(store, "monotonic", lambda: self.now)

    async def require(self, repository: RedisRepository) -> None:
        """Check until what is there is required."""
        for _ in range(3):
            await repository.check()
            self.now += store.CRASH_LOSS_SECONDS


async def test_a_worker_that_starts_knows_what_the_others_have_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would serve an older copy."""
    clock, notes, prefix = Clock(monkeypatch), Noted(), fresh()
    meta = f"{{{prefix}:0}}:meta"
    noted = Expected(notes=notes)
    async with opened(server, prefix=prefix, expected=noted) as repository:
        await repository.create_pet(REX)
        await clock.require(repository)
    server.call("HSET", meta, "pets", 0)
    with pytest.raises(WrongStoreError, match="an older copy of the store"):
        async with opened(server, prefix=prefix, expected=noted):
            pass


async def test_a_note_fits_however_long_the_address_and_high_the_counters(valkey: Server) -> None:
    notes, prefix = Noted(), fresh()
    octal = ".".join(f"{part:0>60o}" for part in (127, 0, 0, 1))
    place = partial(opened, f"redis://{octal}:{valkey.port}", prefix=prefix, partitions=8)
    async with place():
        pass
    for number in range(8):
        counters = "pets", MAX_ID, "orders", MAX_ID, "revision", 2**62
        valkey.call("HSET", f"{{{prefix}:{number}}}:meta", *counters)
    async with place(expected=Expected(notes=notes)) as repository:
        await repository.check()
    size = len(notes.notes[0]) / 8 + 2  # bytes of a partition; high numbers take two more
    assert 1024 * size <= MAX_NOTE_BYTES


CHANGES: dict[str, Callable[[RedisRepository, int], Any]] = {
    "a pet": lambda repository, _: repository.create_pet(REX),
    "a status": lambda repository, order: repository.update_order(order, OrderStatus.CANCELLED),
    "a connection": lambda repository, _: repository.check(),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
async def test_an_older_file_of_the_server_is_noticed(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    with single(tmp_path, 'save ""') as server:
        prefix = fresh()
        async with opened(server, prefix=prefix) as repository:
            order = await repository.place_order((await repository.create_pet(REX)).id, AT)
            server.call("SAVE")
            shutil.copy(server.directory / "dump.rdb", server.directory / "old.rdb")
            if change == "a connection":
                async with opened(server, prefix=prefix):
                    pass
            await CHANGES[change](repository, order.id)
            await clock.require(repository)
            server.kill()
            shutil.move(server.directory / "old.rdb", server.directory / "dump.rdb")
            server.start()
            await unavailable_for("an older copy of the store", lambda: pets(repository))
            await check_refused_for_good(repository, "an older copy of the store")


async def test_a_server_that_has_lost_its_last_writes_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power failure without a sync of each write. What is older must be there."""
    clock = Clock(monkeypatch)
    prefix = fresh()
    meta = f"{{{prefix}:0}}:meta"
    async with opened(server, prefix=prefix) as repository:
        await repository.create_pet(REX)
        await clock.require(repository)
        required = server.call("HGET", meta, "pets")
        await repository.create_pet(REX)
        await repository.check()
        server.call("HSET", meta, "pets", required)
        await repository.check()
        await clock.require(repository)
        server.call("HSET", meta, "pets", 0)
        await check_refused_for_good(repository, "an older copy")


async def test_a_server_that_evicts_is_refused_and_unavailable_until_it_does_no_longer(
    server: Server,
) -> None:
    async with opened(server) as repository:
        await repository.create_pet(REX)
        server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            assert "maxmemory-policy allkeys-lru" in await unavailable(repository.check())
            await unavailable_for("set maxmemory-policy noeviction", lambda: pets(repository))
            assert "maxmemory-policy" in await unavailable(repository.create_pet(REX))
            prefix = fresh()
            with pytest.raises(SettingsError, match="set maxmemory-policy noeviction"):
                async with opened(server, prefix=prefix):
                    pass
            assert server.call("KEYS", f"{{{prefix}:*") == []
        finally:
            server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await again(lambda: repository.create_pet(REX))
        await repository.check()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (("SET", "a string"), "WRONGTYPE"),
        (("HSET", "revision", "many"), "invalid literal"),
        (("HSET", "pets", "1e3"), "invalid literal"),
    ],
)
async def test_a_partition_whose_meta_is_damaged_is_unavailable_until_it_is_mended(
    server: Server, damage: tuple[str, ...], reason: str
) -> None:
    prefix = fresh()
    meta, saved = f"{{{prefix}:0}}:meta", f"{{{prefix}:0}}:saved"
    async with opened(server, prefix=prefix) as repository:
        await repository.create_pet(REX)
        server.call("COPY", meta, saved)
        server.call(damage[0], meta, *damage[1:])
        assert reason in await unavailable(repository.check())
        await unavailable_for(reason, lambda: pets(repository))
        assert reason in await unavailable(repository.create_pet(REX))
        with pytest.raises(SettingsError, match=reason):
            async with opened(server, prefix=prefix):
                pass
        server.call("COPY", saved, meta, "REPLACE")
        await again(lambda: repository.create_pet(REX))
        await repository.check()


@pytest.mark.parametrize("key", ["tokens", "expiries", "reservations"])
async def test_a_write_whose_token_cannot_be_recorded_is_not_made(server: Server, key: str) -> None:
    """A retry would make a second one."""
    prefix = fresh()
    async with opened(server, prefix=prefix, partitions=3) as repository:
        pet = (await repository.create_pet(REX, make_token(3))).id
        for partition in range(3):
            name = f"{{{prefix}:{partition}}}:{key}"
            server.call("UNLINK", name)
            server.call("SET", name, "a string")
        for call in (
            repository.create_pet(REX, make_token(6)),
            repository.place_order(pet, AT, make_token(9)),
            repository.place_order(pet, AT, make_token(pet + 1)),
        ):
            with pytest.raises(StorageError, match="WRONGTYPE"):
                await call
        assert [found.id for found in await pets(repository)] == [pet]
        assert await repository.list_orders(OrderQuery(0, 9)) == []


def remove(admin: redis.Redis, keys: Iterable[Any]) -> None:
    for key in keys:  # of several slots
        admin.delete(key)


@pytest.mark.slow
async def test_a_node_of_a_cluster_may_come_back_empty_while_it_is_replaced_but_not_for_long(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    prefix = fresh()
    async with opened(nodes, prefix=prefix, partitions=4) as repository:
        made = [(await repository.create_pet(REX, make_token(4 + n))).id for n in range(8)]
        owners = [nodes.owner(key_slot(f"{{{prefix}:{n}}}".encode())) for n in range(4)]
        lost = next(n for n in range(4) if owners[n] is not owners[0])
        with owners[lost].client(decode_responses=False) as admin:
            data = {key: admin.dump(key) for key in admin.keys(f"{{{prefix}:*")}
            remove(admin, data)
            assert "was emptied" in await unavailable(repository.check())
            await unavailable_for("emptied", lambda: repository.get_pet(made[lost]))
            assert await repository.get_pet(made[0]) is not None
            nothing = f":{owners[lost].port} has nothing of partition {lost} "
            with pytest.raises(SettingsError, match=nothing):
                async with opened(nodes, prefix=prefix, partitions=4):
                    pass
            for key, value in data.items():
                admin.restore(key, 0, value)
            await again(repository.check)
            assert await repository.get_pet(made[lost]) is not None
            remove(admin, data)
        await unavailable_for("emptied", repository.check)
        clock.now += store.FAILOVER_SECONDS
        await check_refused_for_good(repository, "was emptied")
        assert "was emptied" in await unavailable(repository.get_pet(made[0]))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
async def test_the_settings_of_a_new_master_are_checked(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sentinel(tmp_path, *AOF, hasty=True) as group, caplog.at_level("WARNING"):
        async with opened(group, timeout_seconds=0.5) as repository:
            await repository.create_pet(REX)
            old = group.master()
            for server in group.nodes:
                if server is not old:
                    server.call("CONFIG", "SET", "maxmemory-policy", policy)
                    server.call("CONFIG", "SET", "appendfsync", "everysec")
            old.kill()
            await asyncio.to_thread(until, lambda: group.failed_over(old))
            if policy == "noeviction":
                await again(lambda: repository.create_pet(REX))
                await repository.check()
                assert caplog.text.count("does not sync each write") == 1
                return
            await unavailable_for("maxmemory-policy", lambda: repository.create_pet(REX))
            group.master().call("CONFIG", "SET", "maxmemory-policy", "noeviction")
            await again(lambda: repository.create_pet(REX))


@pytest.mark.slow
async def test_a_replica_that_has_not_received_the_last_writes_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: an old master may have been cut off for long."""
    clock = Clock(monkeypatch)
    with sentinel(tmp_path, *AOF, hasty=True) as group:
        prefix = fresh()
        async with opened(group, prefix=prefix, timeout_seconds=1) as repository:
            made = [(await repository.create_pet(REX)).id for _ in range(5)]
            await clock.require(repository)
            old = group.master()
            old.kill()
            await asyncio.to_thread(until, lambda: group.failed_over(old))
            group.master().call("HSET", f"{{{prefix}:0}}:meta", "pets", 1)  # as if it had no more
            await again(repository.check)
            assert (await repository.create_pet(REX)).id > max(made)
