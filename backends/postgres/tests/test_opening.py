"""Checks before a store is used, creating it, upgrading it."""

import asyncio
import hashlib
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from petstore_conformance import RaisedOnPurposeError
from petstore_conformance.faults.proxy import Proxy
from petstore_postgres import PostgresSettings, schema, scratch_postgres
from petstore_postgres.servers import ReachedServer, Servers, ServerState

from backends.postgres.tests.pgbouncers import pgbouncer
from backends.postgres.tests.places import create, fresh, opened, refusal, session, until_waiting
from backends.postgres.tests.servers import Server
from backends.postgres.tests.standbys import url_of
from petstore.contract import Expected, Pet, SettingsError, UnavailableError
from tests.support.command import run_command
from tests.support.repositories import AT, REX, pets


def execute(server: Server, *statements: str) -> None:
    for statement in statements:
        server.fetch(statement)


@pytest.fixture
def sql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a copy of the folder of the SQL that is used in its place."""
    with resources.as_file(schema.SQL) as folder:  # type: ignore[arg-type] # it is a folder
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(schema, "SQL", tmp_path)
    return tmp_path


def test_an_older_schema_is_upgraded_once_and_completely(
    server: Server, monkeypatch: pytest.MonkeyPatch, sql: Path
) -> None:
    name = fresh()
    assert create(server, schema=name) == 1
    newer = schema.NEWEST_SCHEMA + 1
    (sql / f"{newer}.sql").write_text(  # slowly, so that the others find the older schema, too
        "SELECT pg_sleep(0.3); ALTER TABLE {schema}.store ADD COLUMN upgrades int DEFAULT 0"
    )
    failing = "UPDATE {schema}.store SET upgrades = upgrades + 1; SELECT 1 / 0"
    (sql / f"{newer + 1}.sql").write_text(failing)
    monkeypatch.setattr(schema, "NEWEST_SCHEMA", newer + 1)
    before = server.fetch(f"SELECT * FROM {name}.store")
    assert "division by zero" in refusal(server, UnavailableError, schema=name)
    assert server.fetch(f"SELECT * FROM {name}.store") == before, "it is half upgraded"
    (sql / f"{newer + 1}.sql").write_text(failing.partition(";")[0])

    async def run() -> None:
        async def open_() -> None:
            async with opened(server, schema=name, timeout_seconds=20) as repository:
                assert len(await pets(repository)) == 1

        await asyncio.gather(*(open_() for _ in range(8)))

    asyncio.run(run())
    assert server.fetch(f"SELECT version, upgrades FROM {name}.store") == [(newer + 1, 1)]


def test_the_sql_changes_with_the_schema_version_only() -> None:
    """A store keeps the functions of its version, and calls of what is new there fail."""
    files = sorted(path.name for path in schema.SQL.iterdir())
    texts = *(schema.SQL.joinpath(name).read_text("utf-8") for name in files), schema.PLANS
    code = re.sub(r"--.*|\s", "", "".join(texts))
    found = schema.NEWEST_SCHEMA, hashlib.sha256(code.encode()).hexdigest()[:16]
    assert found == (3, "bc6601bf01201586"), "raise NEWEST_SCHEMA, and write both here"


def make_version_1(server: Server, name: str) -> None:
    """Make a store of schema version 1, whose functions were others."""
    tables = schema.SQL.joinpath("1.sql").read_text("utf-8").replace("{schema}", name)
    execute(
        server,
        f"CREATE SCHEMA {name}",
        f"CREATE TABLE {name}.store AS SELECT 1 AS version",
        *(statement for statement in tables.split(";\n") if statement.strip()),
        f"CREATE FUNCTION {name}.create_pets(categories bigint[], names bytea[], statuses text[])"
        " RETURNS void LANGUAGE sql AS 'SELECT'",
        f"CREATE FUNCTION {name}.forgotten() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        f"CREATE FUNCTION {name}.audit() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RETURN NEW; END'",
        f"CREATE TRIGGER audit BEFORE INSERT ON {name}.pets EXECUTE FUNCTION {name}.audit()",
    )


def test_an_upgrade_replaces_all_functions_while_older_processes_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, sql: Path
) -> None:
    """Prepared statements of processes that were there before go on with the new functions."""
    name = fresh()
    functions = "SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace"

    async def run() -> None:
        async with opened(server, schema=name) as older:
            await older.create_pet(REX)
            made = set(await asyncio.to_thread(server.fetch, functions, name))
            newer_schema = schema.NEWEST_SCHEMA + 1
            (sql / f"{newer_schema}.sql").write_text("SELECT 1")
            monkeypatch.setattr(schema, "NEWEST_SCHEMA", newer_schema)
            async with opened(server, schema=name) as newer:
                await asyncio.gather(*(store.create_pet(REX) for store in (older, newer)))
                assert len(await pets(older)) == 3
            assert set(await asyncio.to_thread(server.fetch, functions, name)) == made

    asyncio.run(run())
    old = fresh()
    make_version_1(server, old)
    assert create(server, schema=old) == 1
    readable = f"SELECT id, convert_from(name, 'UTF8'), status FROM {old}.pets"  # see the README
    assert server.fetch(readable) == [(1, "Rex", "available")]
    expected = {row[0] for row in server.fetch(functions, name)} | {"audit"}
    assert {row[0] for row in server.fetch(functions, old)} == expected


@pytest.mark.parametrize(
    ("limit", "held", "message"),
    [
        (
            "LOCK_SECONDS",
            "SELECT FROM {}.store",
            "another session has held one of its tables for 1 s; end it",
        ),
        (
            "OPEN_SECONDS",
            "SELECT pg_advisory_xact_lock(hashtextextended('{}', 0))",
            "another process has been upgrading the schema {} for 1 s",
        ),
    ],
)
def test_an_upgrade_that_waits_for_a_table_or_for_another_process_gives_up(
    server: Server, monkeypatch: pytest.MonkeyPatch, limit: str, held: str, message: str
) -> None:
    """The processes that run wait behind it."""
    name = fresh()
    make_version_1(server, name)
    monkeypatch.setattr(schema, limit, 1)

    async def run() -> str:
        async with session(server) as other:
            await other.execute(f"BEGIN; {held.format(name)}")
            return await asyncio.to_thread(
                refusal, server, UnavailableError, schema=name, timeout_seconds=20
            )

    assert message.format(name) in asyncio.run(run())
    monkeypatch.undo()
    assert create(server, schema=name) == 1


async def test_a_connection_that_is_lost_while_the_schema_is_created_is_unavailable(
    server: Server,
) -> None:
    name = fresh()
    async with session(server) as other:
        await other.execute(f"BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{name}', 0))")
        refused = asyncio.to_thread(refusal, server, UnavailableError, schema=name)
        task = asyncio.create_task(refused)
        await until_waiting(server, 1)
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        )
        assert "terminating connection due to administrator command" in await task


async def test_processes_create_the_schema_once_also_if_the_default_isolation_is_strict(
    server: Server,
) -> None:
    name, url = fresh(), server.url(options="-c%20default_transaction_isolation%3Dserializable")

    async def open_() -> None:
        async with opened(url, schema=name, pgbouncer=True, timeout_seconds=20) as repository:
            assert await pets(repository) == []

    await asyncio.gather(*(open_() for _ in range(8)))


def test_a_server_that_stalls_while_a_store_is_opened_is_unavailable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stall(*arguments: Any) -> None:
        front.frozen = True
        await migrate(*arguments)

    migrate = schema.migrate
    monkeypatch.setattr(schema, "OPEN_SECONDS", 0.1)
    monkeypatch.setattr(schema, "migrate", stall)
    with Proxy(server.host, server.port) as front:
        assert "postgres at" in refusal(url_of(front), UnavailableError)


def test_no_connection_is_left_open_whenever_connecting_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every turn of the event loop; two servers are found, of which one is chosen."""
    opened_ones = set[object]()

    class Connection:
        def __init__(self) -> None:
            opened_ones.add(self)

        def terminate(self) -> None:
            opened_ones.discard(self)

    async def connect(_: Servers, place: dict[str, Any]) -> ReachedServer:
        await asyncio.sleep(0)
        timeline = "1" if place["host"] == "a" else "2"
        state = ServerState(False, timeline, AT, 18, "18.0", "on", "on", "on", "")
        return ReachedServer("a", state, Connection())

    async def run(turns: int) -> object:
        connecting = asyncio.create_task(Servers("postgresql://a,b/pets", 1).connect())
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        [chosen] = await asyncio.gather(connecting, return_exceptions=True)
        return chosen.connection if isinstance(chosen, ReachedServer) else chosen

    monkeypatch.setattr(Servers, "_reach", connect)
    outcomes = []
    for turns in range(10):
        chosen = asyncio.run(run(turns))
        assert opened_ones == {chosen} & opened_ones, f"cancelled after {turns} turns"
        outcomes.append(chosen in opened_ones)
        opened_ones.clear()
    assert outcomes == sorted(outcomes)
    assert outcomes[-1]


def test_a_service_that_may_open_more_connections_than_the_server_accepts_is_refused(
    server: Server,
) -> None:
    ((limit,),) = server.fetch("SHOW max_connections")
    accepted = int(limit) - 3  # those that are reserved
    message = refusal(server, expected=Expected(processes=accepted // 8 + 1))
    assert f" accepts {accepted} connections (max_connections, " in message
    assert f"{accepted // 8 + 1} x 8 = {(accepted // 8 + 1) * 8} may be opened" in message
    assert create(server, expected=Expected(processes=accepted // 8)) == 1


def test_a_newer_schema_is_refused(server: Server) -> None:
    name = fresh()
    create(server, schema=name)
    newer = schema.NEWEST_SCHEMA + 1
    execute(server, f"UPDATE {name}.store SET version = {newer}")
    message = f"schema version {newer}, written by a newer petstore-postgres; this one supports up"
    assert message in refusal(server, schema=name)


def test_a_schema_of_another_application_is_refused_and_not_touched(server: Server) -> None:
    name = fresh()
    execute(server, f"CREATE SCHEMA {name}", f"CREATE TABLE {name}.pets (id int)")
    assert "of another application; set PETSTORE_POSTGRES_SCHEMA" in refusal(server, schema=name)
    found = server.fetch(
        "SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace", name
    )
    assert found == [(1,)]
    empty = fresh()
    execute(server, f"CREATE SCHEMA {empty}")
    assert create(server, schema=empty) == 1


def test_a_scratch_place_is_removed_and_nothing_else(server: Server) -> None:
    name = fresh()
    create(server, schema=name)

    def schemas() -> set[str]:
        rows = server.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE $1", f"{name}%")
        return {row[0] for row in rows}

    async def run() -> None:
        async with scratch_postgres(PostgresSettings(server.url(), schema=name)) as place:
            async with opened(server, schema=place.schema) as repository:
                await repository.create_pet(REX)
            assert await asyncio.to_thread(schemas) == {name, place.schema}
            raise RaisedOnPurposeError

    with pytest.raises(RaisedOnPurposeError):
        asyncio.run(run())
    assert schemas() == {name}


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pgbouncer_needs_its_setting(server: Server, mode: str) -> None:
    with pgbouncer(server, mode) as url:
        assert create(url, pgbouncer=True) == 1
        assert "default_transaction_isolation (08P01); behind PgBouncer, set" in refusal(url)


def test_a_user_without_rights_is_refused_in_one_line(server: Server) -> None:
    name, user = fresh(), fresh()
    url = server.url().replace("postgres@", f"{user}@")
    assert f'role "{user}" does not exist' in refusal(url)
    execute(server, f"CREATE USER {user}")
    message = refusal(url, schema=name)
    assert "permission denied for database postgres; the user must be allowed to" in message
    owned, granted = fresh(), fresh()  # empty schemas that an administrator has made
    execute(server, f"CREATE SCHEMA {owned} AUTHORIZATION {user}")
    execute(server, f"CREATE SCHEMA {granted}")
    execute(server, f"GRANT USAGE, CREATE ON SCHEMA {granted} TO {user}")
    assert create(url, schema=owned) == create(url, schema=granted) == 1
    create(server, schema=name)
    assert f"permission denied for schema {name}" in refusal(url, schema=name)
    execute(server, f"GRANT USAGE ON SCHEMA {name} TO {user}")
    assert "permission denied for table store" in refusal(url, schema=name)
    tables = f"ON ALL TABLES IN SCHEMA {name} TO {user}"
    execute(server, f"GRANT SELECT {tables}")
    assert "the user needs DELETE on" in refusal(url, schema=name)
    execute(server, f"GRANT INSERT, UPDATE, DELETE {tables}")
    assert "the user needs SELECT on" in refusal(url, schema=name)
    execute(server, f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA {name} TO {user}")
    assert "the user needs UPDATE on" in refusal(url, schema=name)
    execute(server, f"GRANT UPDATE ON ALL SEQUENCES IN SCHEMA {name} TO {user}")
    assert create(url, schema=name) == 2

    async def restore() -> None:
        async with opened(url, schema=name) as repository:
            await repository.restore([Pet(9, "Rex", 7)])

    asyncio.run(restore())
    assert create(url, schema=name) == 4


def test_a_wrong_password_is_refused_and_not_shown_wherever_the_right_one_may_be(
    failing: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(failing, "CREATE USER rex PASSWORD 'right'")
    (failing.data / "pg_hba.conf").write_text("host all rex all scram-sha-256\n")
    failing.stop()
    failing.start(wait=False)
    url = failing.url().replace("postgres@", "rex:{}@")
    failing.until_listening()
    message = refusal(url.format("hunter2"))
    assert 'password authentication failed for user "rex"' in message
    assert message.endswith("; check the user and the password in PETSTORE_POSTGRES_URL")
    assert "hunter2" not in message
    file, services = tmp_path / "pgpass", tmp_path / "services"
    file.write_text("*:*:*:rex:right\n")
    file.chmod(0o600)
    place = f"host=127.0.0.1\nport={failing.port}\nuser=rex\ndbname=postgres"
    services.write_text(f"[shop]\n{place}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGPASSWORD", "right")
    for right in (
        url.format("right"),
        f"{url.replace(':{}', '')}?passfile={file}",
        f"postgresql:///?{place}".replace("\n", "&"),
        "postgresql:///?service=shop",
    ):
        assert f"{failing.port}: permission denied for database" in refusal(right)


def test_a_database_or_parameter_that_does_not_exist_is_refused(server: Server) -> None:
    message = refusal(server.url().removesuffix("postgres") + "absent")
    assert 'database "absent" does not exist (3D000); create it, or name another in' in message
    wrong = server.url(options="-c%20work_men%3D1MB")
    assert 'parameter "work_men" (42704); correct its name' in refusal(wrong)


def test_a_unix_socket_works(server: Server) -> None:
    socket = f"postgresql://postgres@/postgres?host={server.directory}&port={server.port}"
    assert create(socket) == 1
    quoted = str(server.directory).replace("/", "%2F")
    assert create(f"postgresql://postgres@{quoted}:{server.port}/postgres") == 1


def test_check_shows_the_server_and_what_it_promises(server: Server) -> None:
    url = server.url(connect_timeout="10", keepalives="1")
    done = run_command("check", backend="postgres", postgres_url=url, postgres_schema=fresh())
    assert done.status == 0, done.stderr
    shown = r"is version 1[4-9]\.\S+( \(.+\))?, synchronous_commit = on, synchronous standbys: none"
    assert re.search(shown, done.stderr)
    version = f"schema version {schema.NEWEST_SCHEMA}\\b"
    assert re.search(rf"has the store [0-9a-f-]{{36}} in the schema t_\w+, {version}", done.stderr)
    assert "PETSTORE_POSTGRES_CONNECTIONS=8" in done.stdout
    names = ("connect_timeout", "keepalives")
    ignored = ", ".join(f"{name} in PETSTORE_POSTGRES_URL" for name in names)
    assert f"no effect: {ignored}" in done.stderr


def test_a_server_before_14_is_refused() -> None:
    servers = Servers("postgresql://db/pets", 1)
    with pytest.raises(SettingsError, match=r"is version 13\.9; 14 or newer is required"):
        servers.approve(ServerState(False, "1", AT, 13, "13.9", "on", "on", "on", ""))
