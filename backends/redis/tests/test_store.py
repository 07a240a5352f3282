"""Checks before a store is used, how it is created and upgraded: refusals and warnings."""

import asyncio
import logging
import re
import shutil
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from petstore_conformance import RaisedOnPurposeError
from petstore_redis import RedisSettings, scratch_redis, scripts, servers, store
from petstore_redis.replies import UnusableError

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.stores import fresh, opened
from backends.redis.tests.topologies import Sentinels, pair, url_of
from petstore.contract import Access, Expected, OrderStatus, Receipt, UnavailableError
from petstore.exit_status import UNAVAILABLE
from tests.support.command import Outcome, error_message, in_process
from tests.support.repositories import AT, REX, again, count_with_rex, make_token, pets, refused


def refusal(place: Server | str, **settings: Any) -> str:
    """Check that a store is refused with one line; return it."""
    return refused(opened(place, **settings))


def create(place: Server | str, **settings: Any) -> int:
    """Open a store and add a pet; return how many there are."""
    return count_with_rex(opened(place, **settings))


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_store_whose_server_takes_no_writes_is_opened_to_read(
    tmp_path: Path, partitions: int
) -> None:
    with single(tmp_path) as server:
        prefix = fresh()
        async with opened(server, prefix=prefix, partitions=partitions) as repository:
            await repository.create_pet(REX)
        server.call("CONFIG", "SET", "maxmemory", 1)
        async with opened(server, prefix=prefix, partitions=partitions) as repository:
            assert len(await pets(repository)) == 1
            with pytest.raises(UnavailableError, match="OOM"):
                await repository.create_pet(REX)
            server.call("CONFIG", "SET", "maxmemory", 0)
            await repository.create_pet(REX)
        server.call("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(UnavailableError, match="OOM"):  # a new store must be written
            async with opened(server, partitions=partitions, timeout_seconds=2):
                pass


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_server_that_was_restarted_is_written_to_before_it_is_read(
    tmp_path: Path, partitions: int
) -> None:
    """It may have found in its AOF what it had not synced: the write syncs all of it."""
    with single(tmp_path, *AOF) as server:
        prefix = fresh()
        metas = [f"{{{prefix}:{partition}}}:meta" for partition in range(partitions)]
        async with opened(server, prefix=prefix, partitions=partitions) as repository:
            server.restart()
            revisions = [int(server.call("HGET", meta, "revision") or 0) for meta in metas]
            await again(partial(repository.get_pet, 1))
            for meta, before in zip(metas, revisions, strict=True):
                assert int(server.call("HGET", meta, "revision") or 0) > before


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"appendonly": "no"}, "has no AOF"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "does not sync each write"),
        ({"appendonly": "yes", "appendfsync": "always"}, ""),
    ],
)
def test_a_server_that_may_lose_pets_causes_a_warning_of_the_first_process_only(
    server: Server,
    settings: dict[str, str],
    warning: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in settings.items():
        server.call("CONFIG", "SET", name, value)
    with caplog.at_level(logging.WARNING, "petstore.redis"):
        with monkeypatch.context() as worker:
            worker.setattr(store, "parent_process", object)
            create(server)
        assert not caplog.records
        servers._warned.clear()  # noqa: SLF001 - what that worker has noted
        create(server)
        create(server)  # opened again by the same process: it has warned
    assert [warning in record.getMessage() for record in caplog.records] == (
        [True] if warning else []
    )


def test_a_master_that_takes_its_replica_with_it_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pair(tmp_path) as (master, _), caplog.at_level(logging.WARNING, "petstore.redis"):
        create(master)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "has no AOF: acknowledged writes may be lost when it stops; if it restarts" in message


async def test_replicas_that_must_confirm_each_write_are_warned_of_before_they_are_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    info = {"aof_enabled": "0", "maxmemory_policy": "noeviction"}
    await servers.warn_of_losses("redis at new", info, pytest.fail, 1, log=True)
    assert "if it restarts before a failover, its replicas lose them too" in caplog.text


def test_a_server_that_does_not_allow_config_is_used_and_nothing_claimed_of_it(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with (
        single(tmp_path, *AOF, 'rename-command CONFIG ""') as managed,
        caplog.at_level(logging.WARNING, "petstore.redis"),
    ):
        assert create(managed) == 1
    (message,) = [record.getMessage() for record in caplog.records]
    assert "does not say whether it syncs each write; it allows no CONFIG GET" in message
    assert "unless that is always, a power failure may lose the last two" in message


def test_nothing_is_claimed_of_a_server_that_says_little(caplog: pytest.LogCaptureFixture) -> None:
    info = {"master_replid": "a" * 40}
    servers.check_settings("redis at db", info)
    with caplog.at_level(logging.WARNING, "petstore.redis"):
        asyncio.run(servers.warn_of_losses("redis at db", info, pytest.fail, 0, log=True))
    first, second = [record.getMessage() for record in caplog.records]
    assert "does not say whether it has an AOF" in first
    assert "does not say whether it evicts keys" in second
    with pytest.raises(UnusableError, match="shows no master_replid in INFO"):
        servers.check_settings("redis at db", {})


@pytest.mark.parametrize("command", ["INFO", "EVAL", "WAIT"])
def test_a_command_that_is_disabled_is_named(tmp_path: Path, command: str) -> None:
    with single(tmp_path, f'rename-command {command} ""') as managed:
        message = refusal(managed, wait_replicas=1, timeout_seconds=1)
    assert f"unknown command '{command}'" in message
    assert "; it must not be disabled or renamed" in message


def test_check_fails_if_no_replica_confirms_writes(tmp_path: Path) -> None:
    """Also for a store that exists already: nothing has to be written to it."""
    with pair(tmp_path, *AOF) as (master, replica):
        settings = {"redis_url": url_of(master), "redis_wait_replicas": "1"}

        def check(**more: str) -> Outcome:
            return in_process("check", backend="redis", **settings, **more)

        create(master, prefix="ps")
        assert "ok: " in check().stdout
        replica.freeze()
        message = error_message(check(), UNAVAILABLE)
        assert "0 of 1 replicas confirmed the write in time, so it may or may not last" in message
        assert "PETSTORE_REDIS_WAIT_REPLICAS" in message
        assert "ok: " in check(read_only="true").stdout


def test_a_user_of_another_prefix_is_refused(server: Server) -> None:
    server.call("ACL", "SETUSER", "moritz", "reset", "on", ">a", "~{mine:*", "+@all")
    url = f"redis://moritz:a@127.0.0.1:{server.port}"
    assert "the user needs +@all on its keys" in refusal(url, prefix="other")
    assert create(url, prefix="mine") == 1


async def test_the_rights_in_the_readme_are_enough(server: Server) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    all_rights, to_read = re.findall(r"`(\+@read [^`]+)`", readme)
    prefix = fresh()

    def user(*rights: str) -> str:
        server.call("ACL", "SETUSER", "rex", "reset", "on", ">a", f"~{{{prefix}:*", *rights)
        return f"redis://rex:a@127.0.0.1:{server.port}"

    url = user(*all_rights.split())
    async with opened(url, prefix=prefix) as repository:
        pet = (await repository.create_pet(REX, make_token(1))).id
        order = (await repository.place_order(pet, AT)).id
        await repository.update_order(order, OrderStatus.COMPLETED)
    url = user(*all_rights.split(), "+select")
    async with opened(f"{url}/3", prefix=prefix) as repository:
        await repository.create_pet(REX)
    url = user(*to_read.split())
    reading = Expected(access=Access.READ)
    async with opened(url, prefix=prefix, expected=reading) as repository:
        await repository.check()
        assert [found.id for found in await pets(repository)] == [pet]
        with pytest.raises(UnavailableError, match="evalsha"):
            await repository.list_tokens("", 9, 0)
        user(*to_read.split(), "+eval", "+evalsha")
        assert len((await repository.list_tokens("", 9, 0)).records) == 1


def test_a_server_before_6_2_is_refused() -> None:
    for version in ("6.2.0", "10.0.1"):
        servers.check_settings("redis at db", {"redis_version": version, "master_replid": "a"})
    for version in ("6.0.16", "5.9.9"):
        with pytest.raises(UnusableError, match=rf"is version {version}; 6\.2 or newer is req"):
            servers.check_settings("redis at db", {"redis_version": version})


@pytest.mark.parametrize(("made", "configured"), [(1, 5), (5, 1)])
def test_another_number_of_partitions_is_refused_and_nothing_written(
    valkey: Server, made: int, configured: int
) -> None:
    prefix = fresh()
    assert create(valkey, prefix=prefix, partitions=made) == 1
    before = sorted(valkey.call("KEYS", f"{{{prefix}:*"))
    message = refusal(valkey, prefix=prefix, partitions=configured)
    assert (
        f"PETSTORE_REDIS_PARTITIONS is {configured}, but this store was created with {made};"
        in message
    )
    assert sorted(valkey.call("KEYS", f"{{{prefix}:*")) == before
    assert create(valkey, prefix=prefix, partitions=made) == 2


def test_a_newer_schema_is_refused(valkey: Server) -> None:
    prefix = fresh()
    create(valkey, prefix=prefix)
    newest = store.STORE_SCHEMA
    valkey.call("HSET", f"{{{prefix}:0}}:meta", "schema", newest + 1)
    assert (
        f"schema {newest + 1}, written by a newer petstore-redis; this version supports up to"
        f" {newest}" in refusal(valkey, prefix=prefix)
    )


async def test_an_older_schema_is_upgraded_once_by_the_first_process_that_opens_it(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix = fresh()
    async with opened(valkey, prefix=prefix, partitions=3) as repository:
        await repository.create_pet(REX)
    with resources.as_file(scripts.LUA) as lua:
        shutil.copytree(lua, tmp_path, dirs_exist_ok=True)
    for number in range(2):
        count = f"redis.call('HINCRBY', key.meta, 'upgrade', {10**number})"
        (tmp_path / f"upgrade_{store.STORE_SCHEMA + number}.lua").write_text(count)
    newest = store.STORE_SCHEMA + 2
    monkeypatch.setattr(scripts, "LUA", tmp_path)
    monkeypatch.setattr(store, "STORE_SCHEMA", newest)

    async def open_() -> None:
        async with opened(valkey, prefix=prefix, partitions=3, timeout_seconds=2) as repository:
            assert len(await pets(repository)) == 1

    await asyncio.gather(*(open_() for _ in range(8)))
    for partition in range(3):
        found = valkey.call("HGETALL", f"{{{prefix}:{partition}}}:meta")
        assert (found["schema"], found["upgrade"]) == (str(newest), "11")


async def test_a_store_of_schema_1_gets_one_identity_and_keeps_its_records(valkey: Server) -> None:
    prefix = fresh()
    names = [f"{{{prefix}:{partition}}}" for partition in range(2)]
    async with opened(valkey, prefix=prefix, partitions=2) as repository:
        receipts = [await repository.create_pet(REX, make_token(n)) for n in range(2)]
    for number, name in enumerate(names):  # as it was
        valkey.call("HSET", f"{name}:meta", "schema", 1, "store", f"old-{number}")
        valkey.call("RENAME", f"{name}:tokens", f"{name}:retries")
    async with opened(valkey, prefix=prefix, partitions=2) as repository:
        assert repository.store == "old-0"
        for number, receipt in enumerate(receipts):
            again = await repository.create_pet(REX, make_token(number))
            assert again == Receipt(receipt.id, replayed=True)
    assert not any(valkey.call("EXISTS", f"{name}:retries") for name in names)


def test_a_scratch_place_is_removed_and_nothing_else(valkey: Server) -> None:
    prefix = fresh()
    create(valkey, prefix=prefix)

    async def run() -> None:
        settings = RedisSettings(url_of(valkey), prefix=prefix, partitions=3)
        async with scratch_redis(settings) as place:
            async with opened(valkey, prefix=place.prefix, partitions=3) as repository:
                await repository.create_pet(REX)
            assert valkey.call("KEYS", f"{{{prefix}.scratch*")
            raise RaisedOnPurposeError

    with pytest.raises(RaisedOnPurposeError):
        asyncio.run(run())
    assert not valkey.call("KEYS", f"{{{prefix}.scratch*")
    assert valkey.call("KEYS", f"{{{prefix}:*")


def test_a_server_that_is_not_a_cluster_node_or_a_sentinel_is_refused(valkey: Server) -> None:
    assert refusal(f"redis+cluster://127.0.0.1:{valkey.port}") == (
        f"redis at 127.0.0.1:{valkey.port} is not a cluster node: for one server,"
        " PETSTORE_REDIS_URL is redis://host:port"
    )
    assert refusal(f"redis+sentinel://127.0.0.1:{valkey.port}/pets") == (
        f"redis at 127.0.0.1:{valkey.port} is not a Sentinel: for one server, PETSTORE_REDIS_URL is"
        " redis://host:port"
    )


def test_a_replica_is_refused_as_a_server(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, replica):
        assert refusal(replica).endswith(
            " is a replica, not a master: PETSTORE_REDIS_URL must name the master,"
            f" 127.0.0.1:{master.port}, or the Sentinels"
        )


def test_a_name_that_no_sentinel_monitors_is_refused(sentinels: Sentinels) -> None:
    port = sentinels.sentinels[0].port
    assert refusal(f"redis+sentinel://127.0.0.1:{port}/pest") == (
        f"redis at 127.0.0.1:{port} monitors no master named 'pest': PETSTORE_REDIS_URL must name"
        " one that it does (SENTINEL MASTERS lists them)"
    )


def test_a_sentinel_is_refused_as_a_server(sentinels: Sentinels) -> None:
    url = f"redis://127.0.0.1:{sentinels.sentinels[0].port}/3"
    assert refusal(url) == (
        f"redis at {url} is a Sentinel: PETSTORE_REDIS_URL must be"
        " redis+sentinel://host:port/service"
    )
