"""Calls while the server is gone, starting, full, read-only or out of connections.

They raise `UnavailableError`, for which the service responds with 503; what may have taken effect
is never sent again.
"""

import asyncio
import signal
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

import asyncpg
import pytest
from petstore_postgres import PostgresRepository
from petstore_postgres.servers import LOST, translated_errors

from backends.postgres.tests.places import (
    TIMEOUT,
    fresh,
    opened,
    refusal,
    session,
    unavailable,
    unavailable_for,
    until_unavailable,
    until_waiting,
)
from backends.postgres.tests.servers import Server
from petstore.contract import OrderQuery, PetQuery, Receipt, UnavailableError
from petstore.store.watched import CHECK_SECONDS
from tests.support.repositories import AT, REX, again, make_token, pets
from tests.support.waiting import HANG_SECONDS


async def test_a_killed_server_is_used_again_once_it_runs_and_lost_nothing(failing: Server) -> None:
    async with opened(failing) as repository:
        made = {(await repository.create_pet(REX)).id for _ in range(5)}
        failing.kill()
        await unavailable(repository.create_pet(REX))
        begin = monotonic()
        for _ in range(20):
            await unavailable(repository.create_pet(REX))
            await unavailable(repository.list_pets(PetQuery(0, 1)))
        assert monotonic() - begin < TIMEOUT, "calls wait for a server that is gone"
        await asyncio.to_thread(failing.start)
        made.add((await again(lambda: repository.create_pet(REX))).id)
        assert {pet.id for pet in await pets(repository)} == made
        assert len(made) == 6


async def test_a_server_that_starts_is_unavailable_until_it_has_started(failing: Server) -> None:
    """57P03: here because it recovers as a standby that accepts no connections."""
    async with opened(failing) as repository:
        pet = await repository.create_pet(REX)
        failing.stop()
        failing.configure("hot_standby = off")
        (failing.data / "standby.signal").touch()
        failing.start(wait=False)
        await unavailable_for("(57P03)", lambda: repository.get_pet(pet.id))
        with pytest.raises(UnavailableError, match="57P03"):
            async with opened(failing):
                pass
        failing.stop(signal.SIGQUIT)
        (failing.data / "standby.signal").unlink()
        await asyncio.to_thread(failing.start)
        assert (await again(lambda: repository.get_pet(pet.id))).id == pet.id


async def test_a_server_that_shuts_down_is_unavailable(failing: Server) -> None:
    """57P01 to a call that waits, then refused connections."""
    schema = fresh()
    async with opened(failing, schema=schema) as repository, session(failing) as other:
        pet = await repository.create_pet(REX)
        await other.execute(f"BEGIN; SELECT FROM {schema}.pets FOR UPDATE")
        placing = asyncio.create_task(repository.place_order(pet.id, AT))
        await until_waiting(failing, 1)
        await asyncio.to_thread(failing.stop)
        [outcome] = await asyncio.gather(placing, return_exceptions=True)
        await unavailable(pets(repository))
        await asyncio.to_thread(failing.start)
        assert len(await again(lambda: pets(repository))) == 1
        orders = await repository.list_orders(OrderQuery(0, 9))
        if isinstance(outcome, Receipt):  # the session that held the lock ended first
            assert [order.id for order in orders] == [outcome.id]
        else:
            assert isinstance(outcome, UnavailableError)
            assert orders == []


async def test_when_connections_are_used_up_the_open_ones_remain(failing: Server) -> None:
    failing.stop()
    failing.configure("max_connections = 8", "superuser_reserved_connections = 0")
    failing.start()
    async with opened(failing, connections=6) as repository:
        await repository.create_pet(REX)
        others = list[Any]()
        with suppress(asyncpg.TooManyConnectionsError):
            while len(others) < 8:
                others.append(await asyncpg.connect(failing.url(sslmode="disable")))
        assert 4 <= len(others) < 8
        reads = [repository.list_pets(PetQuery(0, 9)) for _ in range(300)]
        writes = [repository.create_pet(REX, make_token(n)) for n in range(30)]
        await asyncio.gather(*reads, *writes)
        with pytest.raises(UnavailableError, match="53300"):
            async with opened(failing):
                pass
        for other in others:
            other.terminate()
        assert len(await pets(repository)) == 31


async def test_a_connection_lost_between_two_steps_of_asyncpg_is_lost(server: Server) -> None:
    """Also while a store is opened, when its other errors may be those of the settings."""
    async with session(server) as closed:
        transaction = closed.transaction()
        await transaction.start()

    async def switch() -> None:
        raise asyncpg.InternalClientError('cannot switch to "idle" state')

    for step in (switch, transaction.rollback, partial(closed.fetch, "SELECT 1")):
        with (
            pytest.raises(UnavailableError, match=f"^it: {LOST}$"),
            translated_errors("it", 1, opening=True),
        ):
            await step()


async def test_a_server_that_cannot_write_is_unavailable_and_used_again(server: Server) -> None:
    """A trigger replies as a server does whose disk is full."""
    schema = fresh()
    async with opened(server, schema=schema) as repository, session(server) as other:
        pet = await repository.create_pet(REX)
        await other.execute(
            f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$BEGIN RAISE SQLSTATE '53100' USING MESSAGE = 'cannot write'; END$$;"
            f" CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON {schema}.pets"
            f" EXECUTE FUNCTION {schema}.fail()"
        )
        for write in (repository.create_pet(REX), repository.place_order(pet.id, AT)):
            assert "cannot write (53100)" in await unavailable(write)
        assert await pets(repository) == [await repository.get_pet(pet.id)]
        await other.execute(f"DROP TRIGGER fail ON {schema}.pets")
        await repository.create_pet(REX)
        await repository.place_order(pet.id, AT)


async def test_a_server_that_becomes_read_only_is_left(failing: Server) -> None:
    async def until_refused(repository: PostgresRepository) -> None:
        """Create pets until the server has noticed its new setting."""
        async with asyncio.timeout(HANG_SECONDS):
            with suppress(UnavailableError):
                while True:
                    await repository.create_pet(REX)

    async with opened(failing, connections=1) as repository:
        await repository.create_pet(REX)
        await asyncio.to_thread(failing.reload, default_transaction_read_only="on")
        await until_refused(repository)
        await unavailable_for("read-only: name the primary", lambda: pets(repository))
        async with session(failing) as other:
            await other.execute("SET default_transaction_read_only = off")
            await other.execute("ALTER SYSTEM RESET ALL")
            await other.execute("SELECT pg_reload_conf()")
        await again(lambda: repository.create_pet(REX))


async def test_a_server_that_stops_syncing_is_refused_until_it_syncs(failing: Server) -> None:
    async with opened(failing) as repository:
        await repository.create_pet(REX)
        await asyncio.to_thread(failing.reload, fsync="off")
        await until_unavailable("fsync = off", lambda: pets(repository))
        await unavailable_for("fsync = off", lambda: repository.create_pet(REX))
        message = await asyncio.to_thread(refusal, failing)
        assert "does not sync its files (fsync = off)" in message
        await asyncio.to_thread(failing.reload, fsync="on")
        assert len(await again(lambda: pets(repository))) == 1


async def test_settings_that_may_lose_pets_are_warned_of_when_they_change(
    failing: Server, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ("synchronous_commit", "full_page_writes")

    async def warned(count: int) -> None:
        for setting in settings:
            warning = f"has {setting} = off: a crash of the server may lose acknowledged writes"
            assert caplog.text.count(warning) == count

    async with opened(failing) as repository:
        await repository.create_pet(REX)
        await warned(0)
        for count in (1, 2):
            await asyncio.to_thread(failing.reload, **dict.fromkeys(settings, "off"))
            await again(lambda: warned(count), AssertionError)  # noqa: B023
            await asyncio.sleep(2 * CHECK_SECONDS)
            await warned(count)
            await asyncio.to_thread(failing.reload, **dict.fromkeys(settings, "on"))
            await asyncio.sleep(2 * CHECK_SECONDS)
