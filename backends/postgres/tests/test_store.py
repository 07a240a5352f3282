"""Another store, or an older copy of this one, under a service that runs: nobody is served from it.

Each store has two repositories, of which the second one only reads, as two workers have.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import pytest
from petstore_postgres import PostgresRepository, store

from backends.postgres.tests.binaries import run
from backends.postgres.tests.places import create, fresh, opened, refusal, until_unavailable
from backends.postgres.tests.servers import Server
from petstore.contract import (
    Access,
    ChangeNeededError,
    Expected,
    Pet,
    PetQuery,
    UnavailableError,
    WrongStoreError,
)
from tests.support.repositories import AT, REX, Noted, pets
from tests.support.waiting import eventually

RESTORE: Final = (
    "Restore its data, or restart the service without PETSTORE_STORE to use what is there now"
)
Opened = Callable[[], AbstractAsyncContextManager[PostgresRepository]]


def check_refused(open_: Opened, fault: Callable[[], object], reason: str) -> None:
    """Check that a fault under two open repositories stops both, until they are opened anew."""

    async def run() -> None:
        async with open_() as writer, open_() as reader:
            await asyncio.gather(*(writer.create_pet(REX) for _ in range(30)))
            for repository in (writer, reader) * 3:  # what one check finds is required by the next
                await repository.check()
            await asyncio.to_thread(fault)
            for repository in (reader, writer):
                await until_unavailable(reason, lambda: pets(repository))  # noqa: B023
            for repository in (reader, writer):
                with pytest.raises(UnavailableError, match=reason):
                    await repository.create_pet(REX)
            with pytest.raises(WrongStoreError, match=reason):
                await reader.check()  # which changes nothing
            with pytest.raises(UnavailableError, match=reason):
                await pets(reader)
        async with open_() as repository:
            await repository.create_pet(REX)

    asyncio.run(run())


async def test_a_snapshot_ends_with_its_connection(server: Server) -> None:
    schema = fresh()
    snapshot = Expected(access=Access.WRITE, snapshot=True)
    async with (
        opened(server, schema=schema) as writer,
        opened(server, schema=schema, expected=snapshot) as reader,
    ):
        await writer.create_pet(REX)
        reads = (reader.list_pets(PetQuery(0, 9)) for _ in range(300))
        assert await asyncio.gather(*reads) == [[]] * 300, "over several connections"
        reason = ""
        while "snapshot" not in reason:  # a connection may be active or just being opened
            await asyncio.to_thread(
                server.fetch,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xmin IS"
                " NOT NULL AND state = 'idle in transaction' AND pid <> pg_backend_pid()",
            )
            try:
                assert await reader.list_pets(PetQuery(0, 9)) == [], "another moment"
            except UnavailableError as error:
                reason = str(error)
            await asyncio.sleep(0.2)
        assert reason.endswith("does not exist (42704)")


@pytest.mark.parametrize("remade", [False, True])
def test_a_dropped_schema_is_not_made_again_under_those_who_had_it_open(
    server: Server, *, remade: bool
) -> None:
    name = fresh()

    def fault() -> None:
        server.fetch(f"DROP SCHEMA {name} CASCADE")
        if remade:
            create(server, schema=name)

    check_refused(lambda: opened(server, schema=name), fault, RESTORE)


async def test_a_store_without_its_identity_is_told_as_that_at_a_start_too(server: Server) -> None:
    schema = fresh()
    async with opened(server, schema=schema) as repository:
        await asyncio.to_thread(server.fetch, f"DELETE FROM {schema}.store")
        with pytest.raises(WrongStoreError, match=r"is empty\. Restore its data"):
            await repository.check()
    with pytest.raises(WrongStoreError, match=r"is empty\. Restore its data"):
        async with opened(server, schema=schema):
            pass


def test_a_database_that_is_made_anew_is_noticed_by_each_new_connection(failing: Server) -> None:
    failing.fetch("CREATE DATABASE pets")
    url = failing.url().removesuffix("postgres") + "pets"

    def fault() -> None:
        failing.fetch("DROP DATABASE pets WITH (FORCE)")
        failing.fetch("CREATE DATABASE pets")

    check_refused(lambda: opened(url, schema="petstore"), fault, RESTORE)


@pytest.mark.parametrize(
    "way",
    [
        "dump",
        "rows",
        *(pytest.param(f"files{more}", marks=pytest.mark.slow) for more in ("", " and dump")),
    ],
)
def test_an_older_copy_is_refused(
    request: pytest.FixtureRequest, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restored from a dump, from a copy of the server's files, or row by row.

    If a dump was restored since the files were copied, these have other tables, and more ids.
    """
    monkeypatch.setattr(store, "MAX_LOSS_SECONDS", 0 if way == "rows" else 3600)
    server: Server = request.getfixturevalue("failing" if "files" in way else "server")
    name, dump = fresh(), server.directory / "dump.sql"
    place = server.binaries, server.directory

    def restore_dump() -> None:
        command = "psql", "-d", server.url(), "-v", "ON_ERROR_STOP=1", "-1"
        run(*place, *command, "-c", f"DROP SCHEMA {name} CASCADE", "-f", dump)

    create(server, schema=name)
    if "dump" in way:
        run(*place, "pg_dump", "-d", server.url(), "-n", name, "-f", dump)
    if "files" in way:
        server.fetch(f"SELECT setval('{name}.pet_ids', 100)")
        server.stop()
        shutil.copytree(server.data, server.directory / "older", copy_function=shutil.copy)
        server.start()
    if way == "files and dump":
        restore_dump()

    def fault() -> None:
        if way == "dump":
            restore_dump()
        elif "files" in way:
            server.stop()
            shutil.rmtree(server.data)
            (server.directory / "older").rename(server.data)
            server.configure()
            server.start()
        else:
            server.fetch(f"TRUNCATE {name}.pets, {name}.orders RESTART IDENTITY")

    check_refused(lambda: opened(server, schema=name), fault, "has an older copy")


async def test_a_worker_that_starts_knows_what_the_others_have_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It served a base backup that was restored under the service: 16 ids again."""
    monkeypatch.setattr(store, "MAX_LOSS_SECONDS", 0)
    schema, noted = fresh(), Expected(notes=Noted())
    async with opened(server, noted, schema=schema) as repository:
        await repository.create_pet(REX)
        for _ in range(3):  # what one check finds is required by the next
            await repository.check()
    older = f"TRUNCATE {schema}.pets, {schema}.orders RESTART IDENTITY"
    await asyncio.to_thread(server.fetch, older)
    with pytest.raises(WrongStoreError, match="has an older copy of the store"):
        async with opened(server, noted, schema=schema):
            pass


@pytest.mark.parametrize("running", [False, True])
async def test_sequences_behind_their_tables_are_raised_before_an_id_is_needed(
    server: Server, caplog: pytest.LogCaptureFixture, *, running: bool
) -> None:
    """Logical replication, and a restore of data only, leave them behind."""
    name = fresh()
    raised = "the sequence pet_ids was at 1, behind the ids in its table, and is set to 500"
    orders = "the sequence order_ids was at 0, behind the ids in its table, and is set to 700"

    async def fill() -> None:
        rows = f"INSERT INTO {name}.pets SELECT i, 1, 'x' FROM generate_series(2, 500) i"
        await asyncio.to_thread(server.fetch, rows)
        row = f"INSERT INTO {name}.orders VALUES (700, 1, now(), 'cancelled')"
        await asyncio.to_thread(server.fetch, row)

    with caplog.at_level(logging.WARNING, "petstore.postgres"):
        async with opened(server, schema=name) as repository:
            await repository.create_pet(REX)
            await fill()
            if running:
                await eventually(lambda: raised in caplog.text and orders in caplog.text)
                assert (await repository.create_pet(REX)).id == 501
        async with opened(server, schema=name) as repository:
            assert (await repository.create_pet(REX)).id == 501 + running
            assert (await repository.place_order(1, AT)).id == 701
            await repository.restore([Pet(9000, "Rex", 7)])
        async with opened(server, schema=name):
            pass
    assert caplog.text.count("the sequence") == 2
    assert raised in caplog.text
    assert orders in caplog.text


def test_nothing_is_upgraded_without_leave(server: Server) -> None:
    name, careful = fresh(), Expected(access=Access.WRITE)
    create(server, schema=name)
    server.fetch(f"UPDATE {name}.store SET version = 1")
    assert "from version 1" in refusal(server, ChangeNeededError, schema=name, expected=careful)
