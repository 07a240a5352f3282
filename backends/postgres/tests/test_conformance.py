"""PostgreSQL fulfills the storage contract: on a new and an old version, and behind PgBouncer."""

import pytest
from petstore_conformance import Conformance
from petstore_postgres import PostgresSettings, backend

from backends.postgres.tests.servers import Server


class OnPostgres(Conformance):
    backend = backend
    machine_examples = 10


class TestPostgres(OnPostgres):
    @pytest.fixture(autouse=True)
    def place(self, each: Server) -> None:
        type(self).settings = PostgresSettings(each.url(), timeout_seconds=10)


@pytest.mark.slow
class TestOneConnection(OnPostgres):
    """All calls share one connection; a check has one to each of two addresses."""

    @pytest.fixture(autouse=True)
    def place(self, server: Server) -> None:
        url = f"postgresql://postgres@127.0.0.1:{server.port},localhost:{server.port}/postgres"
        type(self).settings = PostgresSettings(url, connections=1, timeout_seconds=10)


@pytest.mark.slow
class TestPgBouncer(OnPostgres):
    """More connections than PgBouncer has: each transaction is in another session."""

    @pytest.fixture(autouse=True)
    def place(self, bouncer: str) -> None:
        type(self).settings = PostgresSettings(bouncer, timeout_seconds=10, pgbouncer=True)
