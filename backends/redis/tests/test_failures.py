"""Calls while a server is gone or frozen, the network fails, or the reply is an error.

They raise `UnavailableError`, for which the service responds with 503, if the error is transient;
nothing is sent twice.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from petstore_conformance.faults.proxy import Proxy
from redis.exceptions import ResponseError

from backends.redis.tests.servers import AOF, Server, single, until
from backends.redis.tests.stores import opened, unavailable, unavailable_at_once, unavailable_for
from petstore.contract import OrderQuery
from tests.support.repositories import (
    AT,
    REX,
    again,
    check_cut_replies,
    check_lost_replies,
    make_token,
    pets,
)


async def test_a_write_whose_reply_is_lost_is_executed_once(front: Proxy) -> None:
    async with opened(front) as repository:
        await check_lost_replies(repository, front)


async def test_a_reply_that_is_cut_off_counts_as_none(front: Proxy) -> None:
    async with opened(front) as repository:
        await check_cut_replies(repository, front)


async def test_a_frozen_server_costs_one_timeout_and_is_used_again_once_it_resumes(
    server: Server,
) -> None:
    async with opened(server, timeout_seconds=3) as repository:
        await repository.create_pet(REX)
        server.freeze()
        try:
            begin = monotonic()
            calls = [unavailable(repository.create_pet(REX), within=6) for _ in range(50)]
            messages = await asyncio.gather(*calls)
            assert 3 <= monotonic() - begin < 6
            assert "no reply within 3 s" in messages[0]
            for _ in range(5):
                await unavailable_at_once(lambda: pets(repository))
                await asyncio.sleep(0.1)
        finally:
            server.resume()
        found = await again(lambda: pets(repository))
        assert len(found) in {1, 51}  # sent once, executed or not
        await asyncio.sleep(0.3)
        assert len(await pets(repository)) in {1, 51}


async def test_a_killed_server_is_used_again_once_it_runs_and_lost_nothing(tmp_path: Path) -> None:
    with single(tmp_path, *AOF) as server:
        async with opened(server) as repository:
            made = {(await repository.create_pet(REX)).id for _ in range(5)}
            server.kill()
            await unavailable(repository.create_pet(REX))
            await unavailable_at_once(lambda: repository.create_pet(REX))
            await asyncio.to_thread(server.start)
            receipt = await again(lambda: repository.create_pet(REX))
            assert {pet.id for pet in await pets(repository)} == {*made, receipt.id}
            assert receipt.id > max(made) + 1000  # some may have been lost


async def test_a_server_that_has_become_a_replica_is_left(server: Server) -> None:
    async with opened(server) as repository:
        pet = await repository.create_pet(REX)
        server.call("REPLICAOF", "127.0.0.1", 1)
        try:
            message = await unavailable(repository.place_order(pet.id, AT, make_token(1)))
            assert "READONLY" in message
            await asyncio.sleep(0.2)  # its data may be stale: the client disconnects
            message = await unavailable(pets(repository))
            assert "not a master" in message or "no longer the master" in message
        finally:
            server.call("REPLICAOF", "NO", "ONE")
        assert not (await again(lambda: repository.place_order(pet.id, AT, make_token(1)))).replayed
        assert len(await again(lambda: repository.list_orders(OrderQuery(0, 9)))) == 1


async def test_a_server_that_cannot_save_is_unavailable_for_writes_only(tmp_path: Path) -> None:
    with single(tmp_path, "dbfilename no.rdb") as server:
        async with opened(server) as repository:
            pet = await repository.create_pet(REX)
            (server.directory / "no.rdb").mkdir()
            server.call("CONFIG", "SET", "save", "1 1000000")
            server.call("BGSAVE")
            until(lambda: server.call("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
            for _ in range(2):
                assert "MISCONF" in await unavailable(repository.create_pet(REX))
                assert "MISCONF" in await unavailable(repository.place_order(pet.id, AT))
                assert len(await pets(repository)) == 1
                server.call("CLIENT", "KILL", "TYPE", "normal")  # reads use a new connection
                await again(lambda: pets(repository))
            server.call("CONFIG", "SET", "save", "")
            await repository.create_pet(REX)


async def test_a_server_that_loads_its_data_or_runs_a_long_script_is_unavailable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slowly = *AOF, "key-load-delay 100000", "loading-process-events-interval-bytes 1024"

    def is_busy() -> bool:
        with suppress(ResponseError):
            server.call("DBSIZE")
            return False
        return True

    with single(tmp_path, "busy-reply-threshold 1", "rdbcompression no", *slowly) as server:
        async with opened(server) as repository:
            await repository.create_pet(REX)
            for number in range(300):
                server.call("SET", f"other-{number}", "x" * 2000)
            server.call("BGREWRITEAOF")
            until(lambda: server.call("INFO", "persistence")["aof_rewrite_in_progress"] == 0)
            server.kill()
            server.start(wait=False)
            await unavailable_for("LOADING", lambda: pets(repository))
            server.call("CONFIG", "SET", "key-load-delay", "0")
            assert len(await again(lambda: pets(repository))) == 1
            assert "AOF" not in caplog.text, "while a server loads, INFO says that it has none"
            _, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"EVAL 'while true do end' 0\r\n")
            until(is_busy)
            await unavailable_for("BUSY", lambda: pets(repository))
            await unavailable_for("BUSY", lambda: repository.create_pet(REX))  # connects again
            server.call("SCRIPT", "KILL")
            writer.close()
            await again(lambda: repository.create_pet(REX))
