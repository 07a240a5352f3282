"""A service under faults: its servers, its store, and what may happen to it."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Sentinels
from petstore.conformance.faults.proxy import Proxy
from petstore.conformance.faults.races import Race
from tests.faults.torture.clocks import Clock
from tests.support.redis_servers import Group
from tests.support.services import Live, process

Fault = Callable[["SetUp", Race, Live], tuple[Live, str]]
"""Returns the service that runs afterwards, and under what to count what happened."""


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
