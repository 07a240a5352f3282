"""What histories run on: a service on each backend and topology, and what may happen to it."""

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from backends.redis.tests.proxy import Proxy, proxy
from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.topologies import Sentinels, cluster, sentinel, url_of
from tests.faults.torture import faults
from tests.faults.torture.clocks import Clock
from tests.faults.torture.faults import Fault
from tests.support.redis_servers import Group
from tests.support.services import Live, process

PARTITIONS = 8
RENEWED_AFTER = 5
"""After so many failovers a store with partitions is replaced by an empty one: the ids of some of
its partitions have skipped a million, so each page would show the same pets of these."""


class SetUp:
    """A service, the servers that it needs, and an empty place for its store.

    what -- its name in the report
    faults -- what may happen, and how probable it is in one history
    place -- returns the settings of an empty place
    group -- the Redis servers
    front -- the proxy between the service and its server
    lossless -- whether a write that was acknowledged lasts when another server takes over
    partitions -- with more than one, a page does not show one moment
    random -- decides all that may differ from run to run
    live -- the service that runs
    failed_over -- when a master last failed, by the monotonic clock
    """

    def __init__(
        self,
        what: str,
        faults_: dict[Fault, float],
        place: Callable[[int], dict[str, str]],
        *,
        workers: int = 2,
        group: Group | None = None,
        front: Proxy | None = None,
        lossless: bool = True,
        partitions: int = 1,
    ) -> None:
        self.what = what
        self.faults = faults_
        self.group = group
        self.front = front
        self.lossless = lossless
        self.partitions = partitions
        self.workers = workers
        self.random = random.Random()  # noqa: S311 - no secret
        self.failed_over = 0.0
        self.failovers = 0
        self._place = place
        self._started = self._places = 0

    @contextmanager
    def running(self, directory: Path) -> Iterator[None]:
        """Run the service until the block is left."""
        self._directory = directory
        self.clock = Clock(directory)
        with ExitStack() as self._stack:
            self.renew()
            yield

    def renew(self) -> None:
        """Replace the service and its store by new ones."""
        self._stack.close()
        self._places += 1
        self.settings = self._place(self._places)
        self.failovers = 0
        self.live = self.start()

    def start(self) -> Live:
        """Start the service, after the one before has ended."""
        self._started += 1
        directory = self._directory / f"service-{self._started}"
        directory.mkdir()
        settings: dict[str, str] = {"workers": str(self.workers), "log": "off", **self.settings}
        with self.clock.used():
            self.live = self._stack.enter_context(process(directory, drain_seconds="0", **settings))
        return self.live

    def masters(self) -> list[str]:
        """Return the replication ids of the masters: they change when a replica takes over."""
        if self.group is None or isinstance(self.group, Server):
            return []
        nodes = self.group.data if isinstance(self.group, Sentinels) else self.group.nodes
        found = [node.call("INFO", "replication") for node in nodes if node.process]
        return sorted({info["master_replid"] for info in found})


KILLS: dict[Fault, float] = {faults.kill_service: 0.04, faults.kill_worker: 0.1}
STALLS: dict[Fault, float] = {faults.stall_worker: 0.12, faults.set_clock: 0.1}
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
    """Return a set-up on a file, with so many workers."""

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
        chances: dict[Fault, float] = {
            faults.drop_response: 0.4,
            faults.cut_response: 0.2,
            faults.cut_connections: 0.1,
            faults.freeze_network: 0.1,
            faults.kill_worker: 0.1,
        }
        place = on(f"redis://127.0.0.1:{front.port}")
        yield SetUp("redis, lost responses", chances, place, group=server, front=front)


@contextmanager
def behind_sentinels(directory: Path) -> Iterator[SetUp]:
    """Yield a service on a master that Sentinels replace."""
    with sentinel(directory, *AOF, hasty=True) as group:
        place = on(url_of(group), redis_wait_replicas="1")
        yield SetUp("redis, Sentinels", REPLICATED, place, group=group)


def on_a_cluster(partitions: int) -> Callable[[Path], Any]:
    """Return a set-up on a cluster, over so many partitions."""

    @contextmanager
    def opened(directory: Path) -> Iterator[SetUp]:
        with cluster(directory, *AOF, replicas=2) as group:
            spread = str(partitions)
            place = on(url_of(group), redis_wait_replicas="1", redis_partitions=spread)
            what = f"redis, cluster, {partitions} partition(s)"
            yield SetUp(what, REPLICATED, place, group=group, partitions=partitions)

    return opened
