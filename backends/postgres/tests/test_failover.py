"""A primary that is killed, and a standby that is promoted in its place."""

import asyncio

import pytest
from petstore_postgres import PostgresRepository, store

from backends.postgres.tests.places import (
    opened,
    refusal,
    unavailable,
    unavailable_for,
    until_unavailable,
)
from backends.postgres.tests.servers import Server, single, until
from backends.postgres.tests.standbys import SYNCHRONOUS, copy_of, pair, promote, url_of
from petstore.contract import OrderQuery, UnavailableError
from petstore.store.watched import CHECK_SECONDS
from tests.support.repositories import AT, REX, again, pets

pytestmark = pytest.mark.slow


async def test_an_asynchronous_promotion_loses_only_what_the_standby_had_not_received(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The service continues without help, with ids that no pet on the new primary has."""
    with pair() as (primary, standby):
        async with opened(url_of(standby, primary), timeout_seconds=2) as repository:

            async def create(count: int) -> set[int]:
                calls = [again(lambda: repository.create_pet(REX)) for _ in range(count)]
                ids = [receipt.id for receipt in await asyncio.gather(*calls)]
                assert len(set(ids)) == count
                return set(ids)

            async def place(ids: set[int]) -> set[int]:
                calls = [repository.place_order(pet_id, AT) for pet_id in ids]
                return {receipt.id for receipt in await asyncio.gather(*calls)}

            received = await create(200)
            orders = await place(received)
            await asyncio.to_thread(cut_off, standby, primary)
            lost = await create(100)
            await place(lost)
            await repository.check()
            primary.kill()
            await unavailable(repository.create_pet(REX))
            await asyncio.to_thread(promote, standby)
            later = await create(300)
            assert not later & received, "an id was assigned twice"
            assert {pet.id for pet in await pets(repository)} == received | later
            later_orders = await place(later)
            assert not later_orders & orders, "the id of an order was assigned twice"
            found = {order.id for order in await repository.list_orders(OrderQuery(0, 9999))}
            assert found == orders | later_orders
            assert "has lost the latest writes" in caplog.text


def cut_off(standby: Server, primary: Server) -> None:
    """Wait until a standby has everything, then end its replication."""
    caught_up(primary)
    standby.reload(primary_conninfo="")
    until(lambda: not primary.fetch("SELECT FROM pg_stat_replication"))


def caught_up(primary: Server) -> None:
    """Wait until a standby has everything."""
    behind = (
        "SELECT FROM pg_stat_replication WHERE replay_lsn IS DISTINCT FROM pg_current_wal_lsn()"
    )
    until(lambda: not primary.fetch(behind))


async def test_a_write_that_no_standby_confirms_is_unavailable() -> None:
    """The promise of the settings: the primary waits, and the service does not claim success."""
    with pair(*SYNCHRONOUS) as (primary, standby):
        async with opened(url_of(primary, standby), timeout_seconds=1) as repository:
            pet = await repository.create_pet(REX)
            standby.freeze()
            await unavailable(repository.create_pet(REX))
            assert await again(lambda: repository.get_pet(pet.id)), "reads wait for no standby"
            standby.resume()
            await again(lambda: repository.create_pet(REX))


async def test_a_replaced_primary_is_left_by_those_who_only_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody has fenced it: it goes on, and its connections stay open."""

    async def find(repository: PostgresRepository, pet_id: int) -> None:
        assert await again(lambda: repository.get_pet(pet_id))

    with pair() as (primary, standby):
        async with opened(url_of(primary, standby), schema="pets") as repository:
            await repository.create_pet(REX)
            await asyncio.to_thread(caught_up, primary)
            await asyncio.to_thread(promote, standby)
            mark = "INSERT INTO pets.pets VALUES (1000000, 1, 'new')"
            await asyncio.to_thread(standby.fetch, mark)
            await again(lambda: find(repository, 1000000), AssertionError)
            receipts = [await again(lambda: repository.create_pet(REX)) for _ in range(20)]
            assert {receipt.id for receipt in receipts} <= {
                row[0] for row in await asyncio.to_thread(standby.fetch, "SELECT id FROM pets.pets")
            }
            assert len(await asyncio.to_thread(primary.fetch, "SELECT FROM pets.pets")) == 1
            # Nor is it used again when it is the only one that replies.
            await asyncio.to_thread(standby.kill)
            await until_unavailable("it was replaced", lambda: pets(repository))
            await unavailable_for("it was replaced", lambda: pets(repository))
            standby.start()
            assert len(await again(lambda: pets(repository))) == 22
    assert "leaving a replaced primary" in caplog.text


async def test_two_primaries_of_one_timeline_are_both_named_and_not_used() -> None:
    """One was copied from the other, and started by mistake."""
    with single() as primary:
        async with opened(primary, schema="pets") as repository:
            await repository.create_pet(REX)
        with copy_of(primary) as copy:
            url, named = (
                url_of(primary, copy),
                sorted(f"127.0.0.1:{x.port}" for x in (primary, copy)),
            )
            both = (
                f"postgres at {named[0]} and postgres at {named[1]} both accept writes (timeline 1)"
            )
            await asyncio.to_thread(copy.stop)
            async with opened(url, schema="pets") as repository:
                await repository.create_pet(REX)
                for _ in range(2):
                    await asyncio.to_thread(copy.start)
                    await until_unavailable(both, lambda: pets(repository))
                    await unavailable_for(both, lambda: repository.create_pet(REX))
                    assert both in await asyncio.to_thread(refusal, url, UnavailableError)
                    await asyncio.to_thread(copy.stop)
                    await again(lambda: repository.create_pet(REX))
                assert len(await pets(repository)) == 4
        rows = await asyncio.to_thread(primary.fetch, "SELECT FROM pets.pets")
        assert len(rows) == 4


async def test_several_addresses_of_one_server_are_no_split_brain(server: Server) -> None:
    url = f"postgresql://postgres@127.0.0.1:{server.port},localhost:{server.port}/postgres"
    async with opened(url) as repository:
        for _ in range(3):
            await repository.create_pet(REX)
            await asyncio.sleep(CHECK_SECONDS)


async def test_closing_beside_a_check_of_servers_leaves_no_connection(server: Server) -> None:
    url = f"postgresql://postgres@127.0.0.1:{server.port},localhost:{server.port}/postgres"
    sessions = "SELECT FROM pg_stat_activity WHERE client_port > 0 AND pid <> pg_backend_pid()"
    before = len(server.fetch(sessions))
    for iterations in range(5):
        async with opened(url) as repository:
            await repository.check()
            check = asyncio.create_task(repository.check())
            for _ in range(iterations):
                await asyncio.sleep(0)
        assert "is closed" in await unavailable(check)
        assert "is closed" in await unavailable(repository.check())
        await asyncio.to_thread(until, lambda: len(server.fetch(sessions)) == before)


async def test_a_standby_that_lacks_what_is_required_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "MAX_LOSS_SECONDS", 0)
    with pair() as (primary, standby):
        async with opened(url_of(primary, standby)) as repository:
            await repository.create_pet(REX)
            await asyncio.to_thread(cut_off, standby, primary)
            # A standby knows 32 ids ahead, so it does not assign those again that it lacks.
            await asyncio.gather(*(repository.create_pet(REX) for _ in range(40)))
            for _ in range(3):
                await repository.check()
            primary.kill()
            await asyncio.to_thread(promote, standby)
            await until_unavailable("has an older copy of the store", lambda: pets(repository))


async def test_a_primary_is_found_beside_a_standby_that_is_frozen() -> None:
    with pair() as (primary, standby):
        async with opened(url_of(standby, primary), connections=1) as repository:
            await repository.create_pet(REX)
        standby.freeze()
        async with opened(url_of(standby, primary), timeout_seconds=3) as repository:
            await repository.create_pet(REX)
