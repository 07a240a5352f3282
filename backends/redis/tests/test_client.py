"""The client: shared by all callers, sends no command twice, survives servers that misbehave."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain, pairwise, repeat
from unittest.mock import Mock

import hiredis
import pytest
from petstore_conformance.faults.proxy import Proxy
from petstore_redis.batches import Arguments, Batches
from petstore_redis.client import Connection, RedisClient, Reply
from petstore_redis.replies import UnusableError, storage_error

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import TIMEOUT, client_of, opened, unavailable
from petstore.contract import PetQuery, StorageError, UnavailableError
from tests.support.repositories import REX, again
from tests.support.waiting import HANG_SECONDS


def connected(
    *replies: bytes,
    greeting: bytes = b"",
    close: bool = True,
    pause: float = 0,
    seconds: float = TIMEOUT,
) -> AbstractAsyncContextManager[RedisClient]:
    """Return a client of a server that sends a greeting and these replies, then closes.

    pause -- how many seconds the handshake waits before and after its command
    seconds -- how long a reply may take
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        for reply in replies:
            if not await reader.read(1000):
                break
            writer.write(reply)
        if not close:
            await reader.read(1000)
            await reader.read(1000)

    async def handshake(call: Callable[..., Reply]) -> None:
        await asyncio.sleep(pause)
        await call("HELLO")
        await asyncio.sleep(pause)

    return client_of(serve, seconds, handshake)


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([], "connection was lost"),
        ([b"+OK\r\n"], "connection was lost"),  # right after the handshake
        ([b"-LOADING it is\r\n"], "LOADING it is"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "does not speak the Redis protocol"),
        ([b"+OK\r\n", b"+OK\r\n+more\r\n"], "more"),
    ],
)
async def test_no_call_hangs_whatever_a_server_does(replies: list[bytes], message: str) -> None:
    async with connected(*replies) as client:
        for _ in range(40):  # each of the races, often enough
            async with asyncio.timeout(HANG_SECONDS):
                (ended,) = await asyncio.gather(client.call("GET"), return_exceptions=True)
            if ended != b"OK":
                assert type(ended) is UnavailableError
                assert re.fullmatch(f"it: (?!.*it: ).*({message}|lost).*", str(ended))
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("replies", "greeting", "reason"),
    [([], b"-ERR max number of clients reached\r\n", "max number"), ([b"+OK\r\n"], b"", "lost")],
)
async def test_a_connection_that_is_lost_during_the_handshake_is_not_used(
    replies: list[bytes], greeting: bytes, reason: str
) -> None:
    async with connected(*replies, greeting=greeting, pause=0.03) as client:
        assert reason in await unavailable(client.call("GET", "x"))
        assert client.down
        assert not client.busy


async def test_a_reply_is_missed_also_after_a_time_without_calls() -> None:
    """The check that finds nothing to wait for must not be the last one."""
    async with connected(b"+OK\r\n", b"+OK\r\n", close=False, seconds=0.2) as client:
        assert await client.call("GET") == b"OK"
        await asyncio.sleep(0.1)
        async with asyncio.timeout(HANG_SECONDS):
            assert "no reply within 0.2 s" in await unavailable(client.call("GET"))


async def test_a_client_that_is_closed_during_the_handshake_leaves_nothing_open() -> None:
    async with connected(close=False) as client:
        call = asyncio.ensure_future(client.call("GET", "x"))
        await asyncio.sleep(0.05)
        client.close()
        assert "the repository is closed" in await unavailable(call)


async def test_an_unexpected_error_fails_calls_and_the_client_connects_again(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a call that is sent, then those of new connections."""
    send, left = Connection.send, [MemoryError("injected")] * 3

    def failing(connection: Connection, packed: list[bytes], futures: list[Reply]) -> None:
        if left:
            raise left.pop()
        send(connection, packed, futures)

    async with opened(valkey) as repository:
        await repository.create_pet(REX)
        monkeypatch.setattr(Connection, "send", failing)
        assert "injected" in await unavailable(repository.create_pet(REX))
        receipt = await again(lambda: repository.create_pet(REX))
        assert await repository.get_pet(receipt.id) is not None
        assert not left


async def test_an_error_of_a_check_for_progress_does_not_end_the_checks() -> None:
    transport = Mock()
    transport.get_write_buffer_size.side_effect = chain([MemoryError] * 2, repeat(0))
    connection = Connection("it", 0.1, Mock(), Mock())
    connection.connection_made(transport)
    assert await unavailable(connection.call("GET", "x")) == "it: no reply within 0.1 s"


async def test_hundreds_of_calls_share_one_connection_and_are_pipelined(valkey: Server) -> None:
    async with opened(valkey) as repository:
        await repository.create_pet(REX)  # now the server knows the script
        before = valkey.call("INFO", "stats")
        receipts = await asyncio.gather(*(repository.create_pet(REX) for _ in range(500)))
        assert len({receipt.id for receipt in receipts}) == 500
        found = await asyncio.gather(*(repository.get_pet(one.id) for one in receipts))
        assert all(found)
        after = valkey.call("INFO", "stats")
        made = after["total_connections_received"] - before["total_connections_received"]
        assert made == 1  # that of the call for INFO
        assert after["total_reads_processed"] - before["total_reads_processed"] < 40


@pytest.mark.parametrize("partitions", [1, 5])
async def test_a_page_is_one_round_trip_to_all_partitions(valkey: Server, partitions: int) -> None:
    with Proxy(valkey.host, valkey.port) as front:
        async with opened(front, partitions=partitions, timeout_seconds=5) as repository:
            await asyncio.gather(*(repository.create_pet(REX) for _ in range(30)))
            await repository.list_pets(PetQuery(0, 1))  # connects
            with valkey.client() as admin:
                before = admin.info("stats")["total_reads_processed"]
                front.delay = 0.5  # replies to several requests would arrive apart
                page = await repository.list_pets(PetQuery(3, 20))
                assert admin.info("stats")["total_reads_processed"] - before == 2
            assert len(page) == 20
            assert all(one.id < other.id for one, other in pairwise(page))


TRANSIENT = [
    "READONLY You can't write against a read only replica.",
    "NOREPLICAS Not enough good replicas to write. script: 1, on @user_script:5.",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "BUSY Redis is busy running a script.",
    "LOADING Redis is loading the dataset in memory",
    "CLUSTERDOWN The cluster is down",
    "MASTERDOWN Link with MASTER is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "MOVED 1 127.0.0.1:7",
    "ASK 1 127.0.0.1:7",
    "ERR max number of clients reached",
]
DENIED = [
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions",
    "DENIED Redis is running in protected mode because protected mode is enabled",
    "ERR Protocol error: unauthenticated multibulk length",
    "ERR ACL failure in script: User rex has no permissions to run the 'zadd' command",
    "ERR The user executing the script can't run this command or subcommand script: 0a1",
]
LASTING = [
    "WRONGTYPE Operation against a key",
    "ERR syntax",
    "BUSYKEY Target key name already exists.",
    "OOMPH",
]
WRAP = "ERR Error running script (call to f_0a1): @user_script:1: "


@pytest.mark.parametrize("wrap", ["", f"{WRAP}-", f"{WRAP}@user_script: 12: -"])
def test_transient_errors_are_unavailable_and_lasting_ones_are_not(wrap: str) -> None:
    for text in TRANSIENT:
        found = storage_error("redis at db", hiredis.ReplyError(wrap + text))
        assert type(found) is UnavailableError
        assert str(found) == f"redis at db: {wrap}{text}"
    for text in [] if wrap else DENIED:
        found = storage_error("redis at db", hiredis.ReplyError(text))
        assert type(found) is UnusableError
        start = f"redis at db: the user or the password is refused: {text.rstrip('.')}"
        assert str(found).startswith(f"{start}; check PETSTORE_REDIS_URL; the user needs +@all")
    found = storage_error("redis at db", hiredis.ReplyError("ERR DB index is out of range"))
    assert type(found) is UnusableError
    found = storage_error(
        "redis at db", hiredis.ReplyError(f"{wrap}ERR unknown command 'READONLY'")
    )
    assert type(found) is UnusableError
    assert str(found).endswith("unknown command 'READONLY'; it must not be disabled or renamed")
    for text in LASTING:
        found = storage_error("redis at db", hiredis.ReplyError(wrap + text))
        assert type(found) is StorageError


def test_the_calls_of_a_turn_are_sent_together_up_to_the_size() -> None:
    sent: list[list[Arguments]] = []

    async def send(calls: Sequence[Arguments]) -> list[int | bytes]:
        sent.append(list(calls))
        return [number for (number,) in calls]

    async def call() -> list[object]:
        batches = Batches(send, 4)
        calls = [batches.call((number,)) for number in range(10)]
        calls[5].cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [*found, await batches.call((10,))]

    found = asyncio.run(call())
    assert [len(batch) for batch in sent] == [4, 4, 2, 1]
    assert isinstance(found.pop(5), asyncio.CancelledError)
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
