"""What may happen to a service and its servers while clients use it.

Each fault takes the set-up, the race and the service. It returns when its cause is gone: the
service that runs then, under what it is to be counted.
"""

import os
import signal
import time
from contextlib import suppress

from backends.redis.tests.servers import Server, until
from backends.redis.tests.topologies import Sentinels
from petstore.conformance.faults.races import Race
from tests.faults.torture.service import SetUp
from tests.support.failovers import APART_SECONDS, master_of, settled
from tests.support.services import Live
from tests.support.waiting import until as wait_until

SHORT = (0.02, 0.3)
"""Seconds of a stall: less than a server may be silent before it counts as down."""

HOUR = 3600


def kill_service(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Kill the service with its workers, and start it again on the same store."""
    live.kill()
    return set_up.start(), "kills"


def kill_for_good(set_up: SetUp, race: Race, live: Live) -> tuple[Live, str]:
    """Kill a service whose store is gone then; check that the next one is empty."""
    race.gone_at = time.monotonic()
    live.kill()
    started = set_up.start()
    for path in ("/v1/pets", "/v1/store/orders"):
        if items := started.client.get(path).json():
            race.wrong.append(f"{path} of a new store: {items}")
    return started, "kills"


def kill_worker(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Kill a worker, once all are there; another one takes its place."""
    workers = _workers(set_up, live)
    _kill(set_up.random.choice(workers))
    return live, "kills"


def kill_workers(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Kill all workers, between the writes and the syncs of both; their parent lives."""
    for worker in _workers(set_up, live):
        _kill(worker)
    return live, "kills"


def stall_worker(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Suspend a worker for a moment; what clients sent it meanwhile is executed later."""
    assert live.process is not None
    worker = set_up.random.choice(live.workers() or [live.process.pid])
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGSTOP)
        time.sleep(set_up.random.uniform(*SHORT))
        os.kill(worker, signal.SIGCONT)
    return live, "stalls"


def set_clock(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Set the clock of the service up to an hour ahead or back."""
    if not set_up.clock.works:
        return live, ""
    set_up.clock.set(set_up.random.randrange(-HOUR, HOUR))
    return live, "clock jumps"


def kill_server(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Kill the Redis server, and start it again with its data."""
    assert isinstance(set_up.group, Server)
    set_up.group.restart()
    return live, "kills"


def stall_server(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Suspend the master, or one of them, for a moment."""
    assert set_up.group is not None
    prefix = set_up.settings["redis_prefix"]
    partition = set_up.random.randrange(set_up.partitions)
    return _stall(set_up, [master_of(set_up.group, prefix, partition)[0]], live)


def stall_replicas(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Suspend all replicas, so that they lag, and no write is confirmed."""
    assert set_up.group is not None
    assert not isinstance(set_up.group, Server)
    group = set_up.group
    nodes = group.data if isinstance(group, Sentinels) else group.nodes
    replicas = [node for node in nodes if node.call("ROLE")[0] == "slave"]
    return _stall(set_up, replicas, live)


def kill_master(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Kill a master, wait until a replica has taken over, and start it again as a replica."""
    group = set_up.group
    assert group is not None
    if isinstance(group, Sentinels) and time.monotonic() < set_up.failed_over + APART_SECONDS:
        return live, ""  # Sentinels would wait that long before they act
    partition = set_up.random.randrange(set_up.partitions)
    master, is_replaced = master_of(group, set_up.settings["redis_prefix"], partition)
    set_up.failed_over = time.monotonic()
    set_up.failovers += 1
    master.kill()
    until(is_replaced, 60)
    master.start()
    until(lambda: settled(group), 60)
    return live, "failovers"


def drop_response(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Lose exactly the next response of the server."""
    assert set_up.front is not None
    set_up.front.drop_next = True
    return live, "lost responses"


def cut_response(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Cut a connection somewhere within a response."""
    assert set_up.front is not None
    set_up.front.cut_after = set_up.random.randrange(2000)
    return live, "lost responses"


def cut_connections(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Cut all connections to the server at once."""
    assert set_up.front is not None
    set_up.front.cut()
    return live, "cuts of all connections"


def freeze_network(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Forward nothing for a while, sometimes for longer than the service waits."""
    assert set_up.front is not None
    set_up.front.frozen = True
    time.sleep(set_up.random.choice((0.1, 1.3)))
    set_up.front.frozen = False
    return live, "stalls"


def _stall(set_up: SetUp, servers: list[Server], live: Live) -> tuple[Live, str]:
    for server in servers:
        server.freeze()
    time.sleep(set_up.random.uniform(*SHORT))
    for server in servers:
        server.resume()
    return live, "stalls"


def _workers(set_up: SetUp, live: Live) -> list[int]:
    """Return the workers, once all are running again; the load continues meanwhile."""

    def complete() -> list[int] | None:
        workers = live.workers()
        return workers if len(workers) == set_up.workers else None

    return wait_until(complete, 60)


def _kill(worker: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
