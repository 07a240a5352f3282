"""Redis fulfills the storage contract: on one server, behind Sentinels, and on a cluster."""

import pytest
from petstore_redis import RedisSettings, backend

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of
from petstore.conformance import Conformance


class TestValkey(Conformance):
    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, valkey: Server) -> None:
        type(self).settings = RedisSettings(url_of(valkey))


class TestRedis(Conformance):
    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, redis: Server) -> None:
        type(self).settings = RedisSettings(url_of(redis))


class TestPartitions(Conformance):
    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, valkey: Server) -> None:
        type(self).settings = RedisSettings(url_of(valkey), partitions=5)


class TestSentinels(Conformance):
    """With replicas that must confirm each write."""

    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, sentinels: Sentinels) -> None:
        type(self).settings = RedisSettings(url_of(sentinels), wait_replicas=1)


class TestCluster(Conformance):
    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, nodes: Cluster) -> None:
        type(self).settings = RedisSettings(url_of(nodes), partitions=8)
