"""What runs in the network namespace: hosts of Redis nodes that are cut off from each other.

Each host has an address of the loopback, on which it runs a master or a replica and a Sentinel
beside it, as the README of the backend demands. Packet filter rules cut hosts off.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from backends.redis.tests.servers import AOF, QUICK, VALKEY, Server, until
from backends.redis.tests.topologies import (
    DOWN_AFTER,
    HASTY,
    PINGS,
    SERVICE,
    Sentinels,
)
from petstore.conformance.faults.races import Race
from tests.faults.torture.histories import Loop
from tests.faults.torture.service import Fault, SetUp
from tests.faults.torture.setups import KILLS, STALLS, on
from tests.support.failovers import APART_SECONDS, settled
from tests.support.services import Live

HOSTS: Final = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
PORT: Final = 7000
"""That of the server of the first host, which is the first master; each host has its own."""

SENTINEL_PORT: Final = 7100
CONFIRMING: Final = (2, 1, 0)
"""How many replicas confirm a write, in one set-up after the other."""

SERVICE_HOST: Final = "127.0.0.1"
CUT_SECONDS: Final = (0.3, 3)
"""How long a cut lasts before the old master may be restarted on its side, and again after it."""

RESTARTED: Final = 0.5
GRACE_SECONDS: Final = 90


def cut_master_off(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
    """Cut the master off from the other nodes; the service may reach both sides, or only one."""
    group = set_up.group
    assert isinstance(group, Sentinels)
    time.sleep(max(0, set_up.failed_over + APART_SECONDS - time.monotonic()))
    old = group.master()
    others = [host for host in HOSTS if host != old.host]
    cut = [(old.host, other) for other in others]
    side = set_up.random.choice(("both", "the majority", "the old master"))
    if side == "the majority":
        cut.append((SERVICE_HOST, old.host))
    elif side == "the old master":
        cut += [(SERVICE_HOST, other) for other in others]
    set_up.failed_over = time.monotonic()
    for one, other in cut:
        drop("-A", one, other)
    time.sleep(set_up.random.uniform(*CUT_SECONDS))
    if side != "the majority" and set_up.random.random() < RESTARTED:
        old.restart()
    time.sleep(set_up.random.uniform(*CUT_SECONDS))
    for one, other in cut:
        drop("-D", one, other)
    until(lambda: settled(group), GRACE_SECONDS)
    set_up.failed_over = time.monotonic()
    return live, "partitions"


def drop(action: str, one: str, other: str) -> None:
    """Begin (-A) or stop (-D) to drop all packets between two hosts."""
    for source, target in ((one, other), (other, one)):
        rule = ("INPUT", "-s", source, "-d", target, "-j", "DROP")
        subprocess.run(["iptables", "-w", action, *rule], check=True)


@contextmanager
def sentinels_on_hosts(directory: Path, replicas: int) -> Iterator[SetUp]:
    """Yield a service on a master and two replicas, each on a host with a Sentinel.

    replicas -- how many of them confirm a write. Only if both do, nothing may be lost: Sentinels
        may make the other one master, because they know what each had half a second ago, and a
        master that was cut off for a second acknowledges writes again just then
    """
    started: list[Server] = []
    try:
        data = []
        for number, host in enumerate(HOSTS):
            lines = [*QUICK, *AOF, f"replica-announce-ip {host}"]
            if number:
                lines.append(f"replicaof {HOSTS[0]} {PORT}")
            data.append(_server(directory, host, PORT + number, *lines))
            started.append(data[-1])
        watching = []
        for number, host in enumerate(HOSTS):
            lines = [
                f"sentinel myid {number + 1:040x}",
                f"sentinel announce-ip {host}",
                f"sentinel monitor {SERVICE} {HOSTS[0]} {PORT} 2",
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
                f"sentinel failover-timeout {SERVICE} {4 * DOWN_AFTER}",
            ]
            watching.append(_server(directory, host, SENTINEL_PORT + number, *lines))
            started.append(watching[-1])
        for server in watching:
            until(lambda server=server: server.call("SENTINEL", "DEBUG", *PINGS, *HASTY))  # type: ignore[misc] # its default confuses mypy
        group = Sentinels(data, watching)
        until(group.ready)
        hosts = ",".join(f"{server.host}:{server.port}" for server in watching)
        place = on(f"redis+sentinel://{hosts}/{SERVICE}", redis_wait_replicas=str(replicas))
        faults: dict[Fault, float] = {cut_master_off: 0.4, **KILLS, **STALLS}
        what = f"redis, Sentinels, partitions, {replicas} of 2 replicas confirm"
        lossless = replicas == len(data) - 1
        yield SetUp(what, faults, place, group=group, lossless=lossless)
    finally:
        for server in started:
            server.kill()


def _server(directory: Path, host: str, port: int, *lines: str) -> Server:
    server = Server(directory, VALKEY, port, f"bind {host}", f"bind-source-addr {host}", *lines)
    server.host = host
    return server.start()


def main(seconds: float, seed: int) -> None:
    """Write a line for each result, within the namespace."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for replicas in CONFIRMING:
        with (
            tempfile.TemporaryDirectory() as name,
            sentinels_on_hosts(Path(name), replicas) as set_up,
        ):
            for result in Loop(set_up, seed).run(Path(name), seconds / len(CONFIRMING)):
                sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
