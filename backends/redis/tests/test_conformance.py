"""Redis fulfills the storage contract: on one server, behind Sentinels, and on a cluster."""

import pytest
from petstore_conformance import Conformance
from petstore_redis import RedisSettings, backend

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of


class TestValkey(Conformance):
    backend = backend
    machine_examples = 10

    @pytest.fixture(autouse=True)
    def place(self, valkey: Server) -> None:
        type(self).settings = RedisSettings(url_of(valkey), timeout_seconds=10)


@pytest.mark.slow
class TestRedis(Conformance):
    backend = backend
    machine_examples = 10

    @pytest.fixture(autouse=True)
    def place(self, redis: Server) -> None:
        type(self).settings = RedisSettings(url_of(redis), timeout_seconds=10)


@pytest.mark.slow
class TestPartitions(Conformance):
    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, valkey: Server) -> None:
        type(self).settings = RedisSettings(url_of(valkey), partitions=5, timeout_seconds=10)


@pytest.mark.slow
class TestSentinels(Conformance):
    """With replicas that must confirm each write."""

    backend = backend
    machine_examples = 10

    @pytest.fixture(autouse=True)
    def place(self, sentinels: Sentinels) -> None:
        url = url_of(sentinels)
        type(self).settings = RedisSettings(url, wait_replicas=1, timeout_seconds=10)


@pytest.mark.slow
class TestCluster(Conformance):
    backend = backend
    machine_examples = 10

    @pytest.fixture(autouse=True)
    def place(self, nodes: Cluster) -> None:
        type(self).settings = RedisSettings(url_of(nodes), partitions=8, timeout_seconds=10)
