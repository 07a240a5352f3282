"""Calls while the network fails, or the server stalls: none is sent twice, none waits for long."""

import asyncio
from collections.abc import Iterator
from time import monotonic
from typing import Any

import asyncpg
import pytest
from petstore_conformance.faults.proxy import Proxy
from petstore_postgres import pool

from backends.postgres.tests.places import opened, unavailable, unavailable_for
from backends.postgres.tests.servers import Server
from backends.postgres.tests.standbys import url_of
from petstore.contract import UnavailableError
from tests.support.repositories import REX, again, check_cut_replies, check_lost_replies, pets


@pytest.fixture
def front(server: Server) -> Iterator[Proxy]:
    with Proxy(server.host, server.port) as running:
        yield running


async def test_a_pool_that_was_refused_one_more_connection_still_replaces_its_last_one(
    front: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "CROWDED_SECONDS", 3600)
    async with opened(url_of(front)) as repository:
        await repository.create_pet(REX)
        front.refuse()
        created, refused = 1, 0
        while refused < 5:
            await asyncio.gather(repository.create_pet(REX), pets(repository))
            created += 1
            refused += "continuing with 1 connections: " in caplog.text
        assert caplog.text.count("continuing with 1 connections: ") == 1, "it does not insist"
        front.heal()
        front.cut()
        assert len(await again(lambda: pets(repository))) == created


async def test_a_stalled_server_costs_one_timeout_and_holds_no_cancelled_call(front: Proxy) -> None:
    async with opened(url_of(front), timeout_seconds=4, connections=4) as repository:
        await repository.create_pet(REX)
        front.frozen = True
        try:
            calls = [asyncio.create_task(repository.create_pet(REX)) for _ in range(40)]
            reads = [asyncio.create_task(repository.get_pet(1)) for _ in range(40)]
            await asyncio.sleep(0.2)
            begin = monotonic()
            for call in (*calls[::2], *reads[::2]):
                call.cancel()
            results = await asyncio.gather(*calls[::2], *reads[::2], return_exceptions=True)
            assert monotonic() - begin < 2, "a cancelled call waits for the server"
            assert {type(result) for result in results} == {asyncio.CancelledError}
            results = await asyncio.gather(*calls[1::2], *reads[1::2], return_exceptions=True)
            assert {type(result) for result in results} == {UnavailableError}
            assert monotonic() - begin < 12
            await unavailable_for("no reply within 4 s", lambda: pets(repository))
            begin = monotonic()
            for _ in range(50):
                await unavailable(repository.create_pet(REX))
            assert monotonic() - begin < 4, "calls wait for a server that is known to stall"
        finally:
            front.frozen = False
        await again(lambda: repository.create_pet(REX))
        # What was sent has taken effect or not, what was not sent has not.
        assert 2 <= len(await pets(repository)) <= 42


async def test_a_call_that_no_connection_takes_fails_in_time(
    front: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_all, errors = pool._fail_all, [MemoryError("injected")]  # noqa: SLF001

    def failing(calls: Any, error: Exception) -> None:
        if errors and "no connection was free" in str(error):
            raise errors.pop()
        fail_all(calls, error)

    monkeypatch.setattr(pool, "_fail_all", failing)
    settings = {"timeout_seconds": 1, "connections": 1, "watched": False}
    async with opened(url_of(front), **settings) as repository:
        await repository.create_pet(REX)
        front.frozen = True
        sent = asyncio.create_task(unavailable(repository.create_pet(REX)))
        await asyncio.sleep(0.2)
        assert "no connection was free within 1 s" in await unavailable(repository.get_pet(1))
        assert "no reply within 1 s" in await sent
        assert not errors


async def test_a_write_whose_reply_is_lost_is_executed_once(front: Proxy) -> None:
    """The network fails after the commit has reached the server."""
    async with opened(url_of(front), connections=1, watched=False) as repository:
        await check_lost_replies(repository, front)


async def test_a_reply_that_is_cut_off_counts_as_none(front: Proxy) -> None:
    async with opened(url_of(front), connections=1, watched=False) as repository:
        await check_cut_replies(repository, front)


async def test_an_unknown_error_of_a_new_connection_does_not_end_the_attempts(
    front: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise RuntimeError("no such thing was ever seen")

    leave_replaced = pool.Pool.leave_replaced
    errors = [RuntimeError("and this one came even later")]

    def fail(open_: pool.Pool) -> None:
        if errors:
            raise errors.pop()
        leave_replaced(open_)

    async with opened(url_of(front), watched=False) as repository:
        monkeypatch.setattr(pool.Pool, "leave_replaced", fail)
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg, "connect", connect)
            front.cut()
            await unavailable_for("no such thing was ever seen", lambda: pets(repository))
        assert await again(lambda: pets(repository)) == []
        front.cut()
        assert await again(lambda: pets(repository)) == []
        assert not errors


@pytest.mark.parametrize("part", ["server_version", "last_value"], ids=["server", "store"])
async def test_a_connection_that_is_lost_between_two_steps_of_asyncpg_is_unavailable(
    server: Server, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Asyncpg then raises an AttributeError, as one in some hundred kills showed.

    part -- of the statement that it sends then on a new connection, which asks what is there
    """

    async def lose(connection: asyncpg.Connection, *_: object) -> None:
        connection.terminate()
        await asyncio.sleep(0)
        raise AttributeError("'NoneType' object has no attribute 'bind_execute'")

    fetch_row = asyncpg.Connection.fetchrow

    async def fetch_other_row(connection: asyncpg.Connection, sql: str) -> object:
        return await (lose if part in sql else fetch_row)(connection, sql)

    async with opened(server) as repository:
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, "fetch", lose)
            assert "the connection was lost" in await unavailable(repository.create_pet(REX))
            patched.setattr(asyncpg.Connection, "fetchrow", fetch_other_row)
            assert "the connection was lost" in await unavailable(pets(repository))
        assert await again(lambda: pets(repository)) == []
