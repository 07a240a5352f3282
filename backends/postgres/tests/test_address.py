"""`PETSTORE_POSTGRES_URL`: the servers it names, and every parameter that libpq documents."""

import asyncio
from pathlib import Path

import pytest
from petstore_postgres.address import parse

from backends.postgres.tests.places import opened, refusal
from backends.postgres.tests.servers import Server
from petstore.contract import SettingsError, StorageError, UnavailableError
from tests.support.command import SECRET

URL = "postgresql://u:hunter2@db/pets"

IGNORED = {
    "channel_binding": ["prefer", "disable"],
    "client_encoding": ["UTF8", "utf-8", "auto"],
    "connect_timeout": ["10"],
    "fallback_application_name": ["shop"],
    "gssdelegation": ["0"],
    "gssencmode": ["prefer", "disable"],
    "keepalives": ["1"],
    "keepalives_count": ["3"],
    "keepalives_idle": ["30"],
    "keepalives_interval": ["10"],
    "load_balance_hosts": ["disable", "random"],
    "max_protocol_version": ["latest"],
    "min_protocol_version": ["3.0"],
    "pgbouncer": ["false"],
    "replication": ["false"],
    "requiressl": ["0"],
    "sslcertmode": ["allow"],
    "sslcompression": ["1"],
    "sslsni": ["1"],
    "target_session_attrs": ["any", "read-write", "primary"],
    "tcp_user_timeout": ["1000"],
}
REFUSED = {
    "channel_binding": ("require", "sslmode=verify-full, with sslrootcert=system or"),
    "client_encoding": ("LATIN1", "the service needs UTF8"),
    "gssdelegation": ("1", "delegates no credentials"),
    "gssencmode": ("require", "use sslmode=verify-full instead"),
    "hostaddr": ("192.0.2.1", "name the server only as the host"),
    "min_protocol_version": ("3.2", "version 3.0 only"),
    "oauth_client_id": ("f02c6361", "use a password"),
    "oauth_client_secret": (SECRET, "use a password"),
    "oauth_issuer": ("https://idp.example", "use a password"),
    "oauth_scope": ("openid", "use a password"),
    "replication": ("database", "an ordinary session"),
    "require_auth": ("scram-sha-256", "with sslmode=verify-full, only the right server"),
    "requirepeer": ("postgres", "protect the folder of the socket"),
    "requiressl": ("1", "use sslmode=require"),
    "scram_client_key": (SECRET, "use a password"),
    "scram_server_key": (SECRET, "use a password"),
    "servicefile": ("/etc/pg_service.conf", "set the variable PGSERVICEFILE"),
    "sslcertmode": ("require", "set sslcert and sslkey, or neither"),
    "sslcrldir": ("/etc/crls", "with sslcrl"),
    "sslkeylogfile": ("/etc/keys", "set the variable SSLKEYLOGFILE"),
    "sslsni": ("0", "is always sent"),
    "target_session_attrs": ("read-only", "needs the primary"),
    # Of Supabase and Prisma, JDBC, SQLAlchemy.
    "connection_limit": ("5", "PETSTORE_POSTGRES_CONNECTIONS"),
    "currentSchema": ("pets", "PETSTORE_POSTGRES_SCHEMA"),
    "loginTimeout": ("5", "PETSTORE_POSTGRES_TIMEOUT_SECONDS"),
    "pgbouncer": ("true", "PETSTORE_POSTGRES_PGBOUNCER=true"),
    "pool_timeout": ("5", "PETSTORE_POSTGRES_TIMEOUT_SECONDS"),
    "schema": ("public", "PETSTORE_POSTGRES_SCHEMA"),
    "socketTimeout": ("5", "PETSTORE_POSTGRES_TIMEOUT_SECONDS"),
    "socket_timeout": ("5", "PETSTORE_POSTGRES_TIMEOUT_SECONDS"),
    "ssl": ("true", "use sslmode=require"),
    "sslaccept": ("strict", "use sslmode=require"),
}


def test_parameters_that_asyncpg_does_not_honor_are_ignored_or_refused() -> None:
    for name, values in IGNORED.items():
        for value in values:
            address = parse(f"{URL}?{name}={value}&sslmode=require", {})
            assert (address.url, address.ignored) == (f"{URL}?sslmode=require", [name])
    for name, (value, remedy) in REFUSED.items():
        message = refusal(f"{URL}?{name}={value}")
        assert message.startswith(f"PETSTORE_POSTGRES_URL has {name}"), message
        assert ", which cannot be honored. Leave it out: " in message
        assert remedy in message
        assert "hunter2" not in message


async def test_a_server_is_sent_what_is_left(server: Server) -> None:
    ignored = {name: values[0] for name, values in IGNORED.items()}
    url = server.url(**ignored, options="-c%20work_mem%3D1MB", application_name="shop", jit="off")
    async with opened(url):
        sql = "SELECT FROM pg_stat_activity WHERE application_name = 'shop'"
        assert await asyncio.to_thread(server.fetch, sql)
    wrong = server.url(options="-c%20work_mem%3Dmuch")
    assert "work_mem" in await asyncio.to_thread(refusal, wrong)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "postgresql://u:hunter2@ep-1.neon.tech/p?sslmode=require&channel_binding=require",
            "channel_binding=require",
        ),
        (
            "postgres://u:hunter2@pooler.supabase.com:6543/postgres?pgbouncer=true",
            "PETSTORE_POSTGRES_PGBOUNCER=true",
        ),
        ("postgresql+asyncpg://u:hunter2@db/pets", "begins with postgresql+asyncpg://"),
        ("postgresql+psycopg2://u:hunter2@db/pets", "begins with postgresql+psycopg2://"),
        ("jdbc:postgresql://db/pets?user=u&password=hunter2", "begins with jdbc:postgresql://"),
        (
            "postgres://u@server:hunter2@server.postgres.database.azure.com/p",
            "'@' as %2F, %3F, %23, %40",
        ),
    ],
)
def test_what_providers_show_is_recognized(url: str, words: str) -> None:
    message = refusal(url)
    assert words in message
    assert "hunter2" not in message


def test_the_variables_and_services_of_libpq_are_not_ignored_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGREQUIREAUTH", "scram-sha-256")
    assert refusal(URL).startswith("PGREQUIREAUTH sets require_auth, which cannot be honored.")
    monkeypatch.setenv("PGREQUIREAUTH", "")
    monkeypatch.setenv("PGCHANNELBINDING", "require")
    assert "PGCHANNELBINDING sets channel_binding=require, which cannot" in refusal(URL)
    monkeypatch.delenv("PGCHANNELBINDING")
    file = tmp_path / "services"
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    file.write_text("[shop]\nhost=db\ngssencmode=require\n")
    message = refusal("postgresql:///?service=shop")
    assert "the service shop of PETSTORE_POSTGRES_URL has gssencmode=require, which" in message
    file.write_text("host=db\n")
    assert "is not a service file" in refusal("postgresql:///?service=shop")


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
        ("postgresql://u:p@a,b:hunter2/pets", SettingsError, "a port is not a number"),
        ("postgresql://u:hunter2@[::1/pets", SettingsError, "it is not a URL"),
        ("postgresql://u:hunter2@127.0.0.1/pets?sslmode", SettingsError, "it is not a URL"),
        ("postgresql://u:hunter2@127.0.0.1:1/pets?sslmode=perhaps", SettingsError, "sslmode"),
        ("postgresql://u:p@hunter2/w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgresql://u:hunter2/w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgresql://u:hunter2?w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
        ("postgresql://u:hunter2#w@db/pets", SettingsError, "'@' as %2F, %3F, %23, %40"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, error: type[StorageError], words: str) -> None:
    message = refusal(url, error)
    assert words in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://", []),
        ("postgresql:///pets", []),
        ("postgresql://u:p@db/pets", ["db"]),
        ("postgres://db-1,db-2:5433/pets", ["db-1", "db-2:5433"]),
        ("postgresql://u@[::1]:5433,[::2]/pets", ["[::1]:5433", "[::2]"]),
        ("postgresql://%2Frun%2Fpostgresql/pets", ["/run/postgresql"]),
        ("postgresql:///pets?host=/run/postgresql", ["/run/postgresql"]),
        ("postgresql:///pets?host=a,b&port=1,2", ["a:1", "b:2"]),
        ("postgresql:///pets?host=a,b&port=1", ["a:1", "b:1"]),
    ],
)
def test_the_servers_of_a_url_are_those_that_libpq_would_use(url: str, found: list[str]) -> None:
    assert parse(url).hosts == found
