"""What becomes of calls while a server or the network fails: each row of the table of errors.

Where a call fails as unavailable, the service answers 503; nothing is ever sent twice.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
import redis as redis_client

from backends.redis.tests.places import (
    AT,
    REX,
    again,
    fresh,
    opened,
    pets,
    retry,
    unavailable,
    unavailable_at_once,
)
from backends.redis.tests.proxy import Proxy, proxy
from backends.redis.tests.servers import Server, single, until
from petstore.contract import StorageError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server whose settings these tests change, each back to what they were."""
    lines = ("appendonly yes", "appendfsync always", "enable-debug-command yes")
    with single(tmp_path_factory.mktemp("failing"), *lines) as running:
        yield running


@pytest.fixture
def front(server: Server) -> Iterator[Proxy]:
    with proxy(server.host, server.port) as running:
        yield running


def test_a_refused_connection_fails_at_once_and_changes_nothing(front: Proxy) -> None:
    async def run() -> None:
        async with opened(front) as repository:
            await repository.create_pet(REX)
            front.refuse()
            front.cut()
            await asyncio.sleep(0.05)
            for message in await unavailable_at_once(lambda: repository.create_pet(REX)):
                assert "connection refused" in message
            front.listen()
            await again(lambda: pets(repository))
            assert len(await pets(repository)) == 1

    asyncio.run(run())


def test_a_write_whose_answer_is_lost_is_carried_out_once(front: Proxy) -> None:
    async def run() -> None:
        async with opened(front) as repository:
            pet = await repository.create_pet(REX)
            await repository.place_order(pet.id, AT)
            for count in range(2, 7):
                front.drop_next = True
                assert "was lost" in await unavailable(repository.create_pet(REX))
                await again(lambda: pets(repository))
                assert len(await pets(repository)) == count
            second = (await pets(repository))[-1].id
            token = retry(7)
            front.drop_next = True
            await unavailable(repository.place_order(second, AT, token))
            receipt = await again(lambda: repository.place_order(second, AT, token))
            assert receipt.replayed
            assert len(await repository.list_orders(0, 9, None)) == 2
            assert front.cuts == 6

    asyncio.run(run())


def test_an_answer_that_is_cut_in_the_middle_is_no_answer(front: Proxy) -> None:
    async def run() -> None:
        async with opened(front) as repository:
            await asyncio.gather(*(repository.create_pet(REX) for _ in range(20)))
            for size in (1, 7, 50, 300):
                front.cut_after = size
                await unavailable(pets(repository))
                assert len(await again(lambda: pets(repository))) == 20

    asyncio.run(run())


@pytest.mark.parametrize("whole", [False, True])
def test_a_frozen_server_costs_one_time_out_and_is_used_again_once_it_thaws(
    server: Server, front: Proxy, whole: bool
) -> None:
    async def run() -> None:
        async with opened(front, timeout_seconds=1) as repository:
            await repository.create_pet(REX)
            if whole:
                server.freeze()
            else:
                front.frozen = True
            try:
                begin = monotonic()
                calls = [unavailable(repository.create_pet(REX), 1.9) for _ in range(50)]
                messages = await asyncio.gather(*calls)
                assert 1 <= monotonic() - begin < 1.9
                assert "no answer within 1 s" in messages[0]
                for _ in range(5):
                    await unavailable_at_once(lambda: pets(repository))
                    await asyncio.sleep(0.1)
            finally:
                server.resume()
                front.frozen = False
            found = await again(lambda: pets(repository))
            assert len(found) in {1, 51}  # sent once, whether carried out or not
            await asyncio.sleep(0.3)
            assert len(await pets(repository)) in {1, 51}

    asyncio.run(run())


def test_a_killed_server_is_used_again_once_it_runs_and_has_everything(tmp_path: Path) -> None:
    async def run(server: Server) -> None:
        async with opened(server) as repository:
            made = {(await repository.create_pet(REX)).id for _ in range(5)}
            server.kill()
            await unavailable(repository.create_pet(REX))
            await unavailable_at_once(lambda: repository.create_pet(REX))
            await asyncio.to_thread(server.start)
            receipt = await again(lambda: repository.create_pet(REX))
            assert {pet.id for pet in await pets(repository)} == {*made, receipt.id}
            assert receipt.id > max(made) + 1000  # it cannot know whether any were lost

    with single(tmp_path, "appendonly yes", "appendfsync always") as server:
        asyncio.run(run(server))


CURES = {
    "READONLY": (["REPLICAOF 127.0.0.1 1"], ["REPLICAOF NO ONE"]),
    "NOREPLICAS": (["CONFIG SET min-replicas-to-write 1"], ["CONFIG SET min-replicas-to-write 0"]),
    "OOM": (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]),
}


@pytest.mark.parametrize("error", ["READONLY", "NOREPLICAS", "OOM"])
def test_a_server_that_takes_no_writes_is_unavailable_for_them_and_can_be_read(
    server: Server, error: str
) -> None:
    async def run() -> None:
        async with opened(server) as repository:
            pet = await repository.create_pet(REX)
            broken, cured = CURES[error]
            try:
                for command in broken:
                    server.call(*command.split())
                message = await unavailable(repository.place_order(pet.id, AT, retry(1)))
                assert error in message
                if error == "READONLY":  # what it says may be old: it is left
                    await asyncio.sleep(0.2)
                    assert "no master" in await unavailable(pets(repository))
                else:
                    assert len(await pets(repository)) == 1
            finally:
                for command in cured:
                    server.call(*command.split())
            assert not (await again(lambda: repository.place_order(pet.id, AT, retry(1)))).replayed
            assert len(await repository.list_orders(0, 9, None)) == 1

    asyncio.run(run())


def test_a_server_that_cannot_save_is_unavailable_for_writes_only(tmp_path: Path) -> None:
    async def run(server: Server) -> None:
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
                server.call("CLIENT", "KILL", "TYPE", "normal")  # reading goes on over another one
                await asyncio.sleep(0.2)
            server.call("CONFIG", "SET", "save", "")
            await repository.create_pet(REX)

    with single(tmp_path, "dbfilename no.rdb") as server:
        asyncio.run(run(server))


def test_a_server_that_runs_a_long_script_is_unavailable(server: Server) -> None:
    async def run() -> None:
        async with opened(server) as repository:
            await repository.create_pet(REX)
            thread = threading.Thread(target=loop_forever)
            thread.start()
            await asyncio.sleep(0.15)
            try:
                assert "BUSY" in await unavailable(repository.create_pet(REX))
                assert "BUSY" in await unavailable(pets(repository))
            finally:
                server.call("SCRIPT", "KILL")
                thread.join()
            await repository.create_pet(REX)
            assert len(await pets(repository)) == 2

    def loop_forever() -> None:
        with suppress(redis_client.RedisError), server.client(socket_timeout=5) as client:
            client.eval("while true do end", 0)

    server.call("CONFIG", "SET", "busy-reply-threshold", "50")
    asyncio.run(run())


def test_a_server_that_loads_its_data_is_unavailable(server: Server) -> None:
    async def run() -> None:
        async with opened(server) as repository:
            await asyncio.gather(*(repository.create_pet(REX) for _ in range(50)))
            server.call("CONFIG", "SET", "key-load-delay", "30000")
            server.call("CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
            thread = threading.Thread(target=reload)
            thread.start()
            messages = []
            while thread.is_alive():
                with suppress(AssertionError, pytest.fail.Exception):
                    messages.append(await unavailable(pets(repository)))
                await asyncio.sleep(0.01)
            thread.join()
            server.call("CONFIG", "SET", "key-load-delay", "0")
            assert any("LOADING" in message for message in messages)
            assert len(await again(lambda: pets(repository))) == 50

    def reload() -> None:
        with suppress(redis_client.RedisError), server.client(socket_timeout=5) as client:
            client.execute_command("DEBUG", "RELOAD")

    asyncio.run(run())


def test_scripts_that_a_server_has_forgotten_are_sent_again_once(server: Server) -> None:
    async def run() -> None:
        async with opened(server, partitions=2) as repository:
            for count in range(1, 4):
                server.call("SCRIPT", "FLUSH")
                receipt = await repository.create_pet(REX)
                await repository.place_order(receipt.id, AT, retry(receipt.id))
                assert len(await pets(repository)) == count
                assert len(await repository.list_orders(0, 9, None)) == count

    asyncio.run(run())


def test_too_many_clients_is_unavailable(server: Server, front: Proxy) -> None:
    async def run() -> None:
        async with opened(front) as repository:
            await repository.create_pet(REX)
            with server.client() as admin:
                admin.config_set("maxclients", "1")
                front.cut()
                await asyncio.sleep(0.3)
                messages = await unavailable_at_once(lambda: repository.create_pet(REX))
                assert "max number of clients" in str(messages) or "lost" in str(messages)
                admin.config_set("maxclients", "1000")
            await again(lambda: repository.create_pet(REX))
            assert len(await pets(repository)) == 2

    asyncio.run(run())


def test_keys_of_another_type_and_missing_rights_are_errors_that_do_not_pass(
    server: Server,
) -> None:
    async def run() -> None:
        prefix = fresh()
        server.call("ACL", "SETUSER", "rex", "on", ">geheim", "~*", "+@all")
        url = f"redis://rex:geheim@127.0.0.1:{server.port}"
        async with opened(url, prefix=prefix) as repository:
            receipt = await repository.create_pet(REX)
            server.call("ACL", "SETUSER", "rex", "-evalsha", "-eval", "-zrangebyscore")
            calls = (repository.create_pet(REX), repository.get_pet(receipt.id), pets(repository))
            for call in calls:
                with pytest.raises(StorageError, match="NOPERM") as caught:
                    await call
                assert type(caught.value) is StorageError
                assert "geheim" not in str(caught.value)
            server.call("ACL", "SETUSER", "rex", "+@all")
            await repository.create_pet(REX)
            server.call("SET", f"{{{prefix}:0}}:pets", "1")
            for call in (repository.create_pet(REX), pets(repository)):
                with pytest.raises(StorageError, match="WRONGTYPE") as caught:
                    await call
                assert type(caught.value) is StorageError

    asyncio.run(run())
