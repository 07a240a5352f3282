"""What histories run on: a service on each backend and topology, and what may happen to it."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.redis.tests.servers import AOF, single
from backends.redis.tests.topologies import cluster, sentinel, url_of
from petstore.conformance.faults.proxy import proxy
from tests.faults.torture import faults
from tests.faults.torture.service import Fault, SetUp

PARTITIONS = 8
RENEWED_AFTER = 5
"""After this many failovers a store with partitions is replaced by an empty one: the ids of some of
its partitions have skipped a million, so each page would show the same pets of these."""


KILLS: dict[Fault, float] = {faults.kill_service: 0.04, faults.kill_worker: 0.1}
STALLS: dict[Fault, float] = {faults.stall_worker: 0.12, faults.set_clock: 0.1}
NETWORK: dict[Fault, float] = {
    faults.drop_response: 0.4,
    faults.cut_response: 0.2,
    faults.cut_connections: 0.1,
    faults.freeze_network: 0.1,
    faults.kill_worker: 0.1,
}
REPLICATED: dict[Fault, float] = {
    **STALLS,
    faults.kill_service: 0.03,
    faults.kill_worker: 0.15,
    faults.kill_workers: 0.03,
    faults.stall_replicas: 0.05,
    faults.stall_server: 0.05,
    faults.kill_master: 0.15,
}


@contextmanager
def memory(_: Path) -> Iterator[SetUp]:
    """Yield a service on memory; killing it ends everything."""
    chances: dict[Fault, float] = {faults.kill_for_good: 0.12, **STALLS}
    place = {"backend": "memory"}
    yield SetUp("memory", chances, lambda _: place, workers=1)


def sqlite(workers: int) -> Callable[[Path], Any]:
    """Return a set-up on a file, with this number of workers."""

    @contextmanager
    def opened(directory: Path) -> Iterator[SetUp]:
        def place(number: int) -> dict[str, str]:
            return {"backend": "sqlite", "sqlite_path": f"{directory}/pets-{number}.sqlite"}

        several: dict[Fault, float] = {**KILLS, faults.kill_workers: 0.03, **STALLS}
        chances = several if workers > 1 else {faults.kill_service: 0.1, **STALLS}
        yield SetUp(f"sqlite, {workers} worker(s)", chances, place, workers=workers)

    return opened


def on(url: str, **settings: str) -> Callable[[int], dict[str, str]]:
    """Return a function that returns the settings of an empty place on these servers."""

    def place(_: int) -> dict[str, str]:
        prefix = f"torture-{secrets.token_hex(6)}"
        return {"backend": "redis", "redis_url": url, "redis_prefix": prefix, **settings}

    return place


@contextmanager
def one_server(directory: Path) -> Iterator[SetUp]:
    """Yield a service on one server, which is killed and stalled."""
    with single(directory, *AOF) as server:
        chances: dict[Fault, float] = {
            **KILLS,
            **STALLS,
            faults.kill_workers: 0.03,
            faults.kill_server: 0.1,
            faults.stall_server: 0.1,
        }
        yield SetUp("redis, one server", chances, on(url_of(server)), group=server)


@contextmanager
def behind_a_proxy(directory: Path) -> Iterator[SetUp]:
    """Yield a service that reaches its server through a proxy that loses responses."""
    with single(directory, *AOF) as server, proxy(server.host, server.port) as front:
        place = on(f"redis://127.0.0.1:{front.port}")
        yield SetUp("redis, lost responses", NETWORK, place, group=server, front=front)


@contextmanager
def behind_sentinels(directory: Path) -> Iterator[SetUp]:
    """Yield a service on a master that Sentinels replace."""
    with sentinel(directory, *AOF, hasty=True) as group:
        place = on(url_of(group), redis_wait_replicas="1")
        yield SetUp("redis, Sentinels", REPLICATED, place, group=group)


def on_a_cluster(partitions: int) -> Callable[[Path], Any]:
    """Return a set-up on a cluster, over this number of partitions."""

    @contextmanager
    def opened(directory: Path) -> Iterator[SetUp]:
        with cluster(directory, *AOF, replicas=2) as group:
            spread = str(partitions)
            place = on(url_of(group), redis_wait_replicas="1", redis_partitions=spread)
            what = f"redis, cluster, {partitions} partition(s)"
            yield SetUp(what, REPLICATED, place, group=group, partitions=partitions)

    return opened
