"""Servers for the tests: each kind is started once, when a test first needs it."""

from collections.abc import Iterator

import pytest

from backends.postgres.tests.binaries import VERSIONS
from backends.postgres.tests.pgbouncers import pgbouncer
from backends.postgres.tests.servers import Server, single

FIRST, *OTHERS = VERSIONS


@pytest.fixture(
    scope="session",
    params=[FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)],
)
def each(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Run a server of each major version that is installed."""
    with single(binaries=VERSIONS[request.param]) as server:
        yield server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Run a server that all tests share."""
    with single() as running:
        yield running


@pytest.fixture(scope="session")
def bouncer(server: Server) -> Iterator[str]:
    """Run a PgBouncer in front of that server; return its URL."""
    with pgbouncer(server) as url:
        yield url


@pytest.fixture
def failing() -> Iterator[Server]:
    """Run a server for one test, which may kill it."""
    with single() as running:
        yield running
