"""`PETSTORE_POSTGRES_URL`: the servers that it names, and what becomes of its parameters."""

import asyncio
import os
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from petstore_postgres.address import hide_unreadable_home, parse

from backends.postgres.tests.places import opened, refusal
from backends.postgres.tests.servers import Server
from petstore.contract import SettingsError, StorageError, UnavailableError
from tests.support.command import SECRET

URL = "postgresql://u:hunter2@db/pets"

IGNORED = (
    "channel_binding=prefer",
    "client_encoding=utf-8",
    "connect_timeout=10",
    "gssencmode=disable",
    "keepalives_idle=30",
    "pgbouncer=false",
    "target_session_attrs=read-write",
)
REFUSED = {
    "channel_binding=require": "sslmode=verify-full, with sslrootcert=system or",
    "client_encoding=LATIN1": "the service needs UTF8",
    "hostaddr=192.0.2.1": "name the server only as the host",
    f"oauth_client_secret={SECRET}": "options=-c%20name%3Dvalue",
    "pgbouncer=true": "PETSTORE_POSTGRES_PGBOUNCER=true",
    "schema=public": "PETSTORE_POSTGRES_SCHEMA",
    "search_path=public": "options=-c%20name%3Dvalue",
    "ssl=true": "use sslmode=require",
    "target_session_attrs=standby": "needs the primary",
}


def test_a_parameter_that_is_not_honored_is_ignored_or_refused_by_name() -> None:
    for pair in IGNORED:
        address = parse(f"{URL}?{pair}&sslmode=require", {})
        assert address.ignored == [f"{pair.partition('=')[0]} in PETSTORE_POSTGRES_URL"]
        assert dict(parse_qsl(urlsplit(address.dsn).query))["sslmode"] == "require"
        assert pair not in address.dsn
    for pair, remedy in REFUSED.items():
        message = refusal(f"{URL}?{pair}")
        name = pair.partition("=")[0]
        assert message.startswith(f"{name} in PETSTORE_POSTGRES_URL cannot be honored. Leave it")
        assert remedy in message
        assert "hunter2" not in message


async def test_a_server_is_sent_what_is_left(server: Server) -> None:
    options = "-c%20work_mem%3D1MB%20-c%20search_path%3Dpublic"
    url = f"{server.url(options=options, application_name='shop')}&{'&'.join(IGNORED)}"
    async with opened(url):
        sql = "SELECT FROM pg_stat_activity WHERE application_name = 'shop'"
        assert await asyncio.to_thread(server.fetch, sql)
    wrong = server.url(options="-c%20work_mem%3Dmuch")
    assert "work_mem" in await asyncio.to_thread(refusal, wrong)


@pytest.mark.parametrize(
    ("url", "given"),
    [  # What `PQconninfoParse` of libpq 18 makes of them.
        ("postgresql://u:p@h:1/d?port=2", "user=u password=p host=h port=2 dbname=d"),
        ("postgresql://u:p@h/d?host=g&user=v&password=a+b&dbname=e", "user=v password=a+b host=g"),
        ("postgresql://u:p@h/d?user=v&user=w", "user=w password=p host=h dbname=d"),
        ("postgresql://h/d?host=", "dbname=d"),
    ],
)
def test_a_parameter_wins_over_what_is_before_it(url: str, given: str) -> None:
    address = parse(url, {})
    found = dict(parse_qsl(urlsplit(address.dsn).query.replace("+", "%2B")))
    found |= {name: str(value) for name, value in address.servers[0].items()}
    assert found.items() >= dict(pair.split("=") for pair in given.split()).items()
    assert ("host" in found) == ("host" in given)


def test_a_url_wins_over_its_service_and_that_over_variables(tmp_path: Path) -> None:
    file, system = tmp_path / "services", tmp_path / "pg_service.conf"
    file.write_text("[shop]\nhost=service\npassword=50%#;\nport=2\n# comment\n[empty]\n")
    system.write_text("[system]\nhost=far\n")
    environ = {"PGSERVICE": "shop", "PGSERVICEFILE": str(file), "PGSYSCONFDIR": str(tmp_path)}
    environ |= {"PGHOST": "variable", "PGUSER": "v", "PGOPTIONS": "-c jit=off", "PGPORT": "9"}
    environ |= {"PGTZ": "UTC", "PGAPPNAME": "app", "PGCONNECT_TIMEOUT": "1"}
    address = parse("postgresql://:5/d", environ)
    assert address.servers == [{"host": "service", "port": 5}]
    assert dict(parse_qsl(urlsplit(address.dsn).query)) == {
        "application_name": "app",
        "dbname": "d",
        "options": "-c jit=off",
        "password": "50%#;",
        "timezone": "UTC",
        "user": "v",
    }
    assert address.ignored == ["connect_timeout in PGCONNECT_TIMEOUT"]
    assert address.application_name == "app"
    assert parse("postgresql://?service=system", environ).servers[0]["host"] == "far"
    assert parse("postgresql://?service=empty", environ).servers[0] == {
        "host": "variable",
        "port": 9,
    }
    with pytest.raises(SettingsError, match="the service none is not in"):
        parse("postgresql://?service=none", environ)


def test_a_variable_or_a_service_that_cannot_be_honored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("PGREQUIREAUTH", "PGCHANNELBINDING", "PGHOSTADDR", "PGSSLCRLDIR"):
        monkeypatch.setenv(variable, "require")
        assert f" in {variable} cannot be honored. Leave it out: " in refusal(URL)
        monkeypatch.setenv(variable, "")
    file = tmp_path / "services"
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    file.write_text("[shop]\nhost=db\ngssencmode=require\n")
    assert "gssencmode in the service shop cannot" in refusal("postgresql:///?service=shop")
    file.write_text("host=db\n")
    assert "is not a service file" in refusal("postgresql:///?service=shop")


def test_what_nobody_foresaw_while_connecting_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_name() -> str:
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr("getpass.getuser", without_a_name)
    assert "cannot connect (KeyError: 'getpwuid(): uid" in refusal("postgresql://127.0.0.1:1/pets")
    message = refusal("postgresql://u@127.0.0.1:1/pets?sslmode=require&ssl_min_protocol_version=1")
    assert "No such TLS version: 1" in message


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        (
            "postgresql://postgres@127.0.0.1:1/postgres",
            UnavailableError,
            "connection refused; check PETSTORE_POSTGRES_URL",
        ),
        ("postgresql:///pets?host=/nowhere", UnavailableError, "no such file or directory; check"),
        ("postgresql://nowhere.invalid/pets", UnavailableError, "not known; check PETSTORE_"),
        ("postgresql://u:hunter2@127.0.0.1:port/pets", SettingsError, "a port is not a number"),
        ("postgresql://u:hunter2@127.0.0.1/pets?port=0", SettingsError, "a port is not a number"),
        ("postgresql://u:hunter2@a,b/pets?port=1,2,3", SettingsError, "3 ports and 2 hosts"),
        ("postgresql://u:hunter2@a,/pets", SettingsError, "2 ports and 1 hosts"),
        ("postgresql://u:hunter2@[::1/pets", SettingsError, "it is not a URL"),
        ("postgresql://u:hunter2@127.0.0.1/pets?sslmode", SettingsError, "it is not a URL"),
        ("postgresql://u:hunter2@127.0.0.1:1/pets?sslmode=perhaps", SettingsError, "sslmode"),
        ("postgresql://u:p@hunter2/w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgresql://u:hunter2/w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgresql://u:p?hunter2=w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgres://u@server:hunter2@a.example/p", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgresql+asyncpg://u:hunter2@db/pets", SettingsError, "begins with postgresql+asyn"),
        ("jdbc:postgresql://db/pets?password=hunter2", SettingsError, "begins with jdbc:"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, error: type[StorageError], words: str) -> None:
    message = refusal(url, error)
    assert words in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://", [(None, 5432)]),
        ("postgresql:///pets", [(None, 5432)]),
        ("postgresql://u:p@db/pets", [("db", 5432)]),
        ("postgres://db-1,db-2:5433/pets", [("db-1", 5432), ("db-2", 5433)]),
        ("postgresql://u@[::1]:5433,[::2]/pets", [("::1", 5433), ("::2", 5432)]),
        ("postgresql://u@a,[::2]:7/pets", [("a", 5432), ("::2", 7)]),
        ("postgresql://%2Frun%2Fpostgresql/pets", [("/run/postgresql", 5432)]),
        ("postgresql:///pets?host=/run/postgresql", [("/run/postgresql", 5432)]),
        ("postgresql:///pets?host=::1", [("::1", 5432)]),
        ("postgresql:///pets?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql:///pets?host=a,b&port=1", [("a", 1), ("b", 1)]),
    ],
)
def test_the_servers_of_a_url_are_those_that_libpq_would_use(
    url: str, found: list[tuple[str | None, int]]
) -> None:
    assert [(server.get("host"), server["port"]) for server in parse(url, {}).servers] == found


def test_files_in_a_home_that_cannot_be_read_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hide_unreadable_home()
    assert os.environ["HOME"] == str(tmp_path)

    def refuse(path: Path, _: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "open", refuse)
    hide_unreadable_home()
    assert os.environ["HOME"] == "/nonexistent"
