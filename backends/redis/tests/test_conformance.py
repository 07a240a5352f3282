"""Redis fulfills the storage contract: on one server, behind Sentinels, and on a cluster."""

from typing import Any

import pytest
from petstore_conformance import Conformance
from petstore_redis import RedisSettings, backend

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of


class OnRedis(Conformance):
    backend = backend
    machine_examples = 10

    def use(self, place: Server | Sentinels | Cluster, **settings: Any) -> None:
        type(self).settings = RedisSettings(url_of(place), timeout_seconds=10, **settings)


class TestValkey(OnRedis):
    @pytest.fixture(autouse=True)
    def place(self, valkey: Server) -> None:
        self.use(valkey)


@pytest.mark.slow
class TestRedis(OnRedis):
    @pytest.fixture(autouse=True)
    def place(self, redis: Server) -> None:
        self.use(redis)


@pytest.mark.slow
class TestPartitions(OnRedis):
    machine_examples = Conformance.machine_examples

    @pytest.fixture(autouse=True)
    def place(self, valkey: Server) -> None:
        self.use(valkey, partitions=5)


@pytest.mark.slow
class TestSentinels(OnRedis):
    """With replicas that must confirm each write."""

    @pytest.fixture(autouse=True)
    def place(self, sentinels: Sentinels) -> None:
        self.use(sentinels, wait_replicas=1)


@pytest.mark.slow
class TestCluster(OnRedis):
    @pytest.fixture(autouse=True)
    def place(self, nodes: Cluster) -> None:
        self.use(nodes, partitions=8)
