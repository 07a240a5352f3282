"""Histories while the network between Redis nodes is cut, in a network namespace of their own.

Each host has an address of the loopback, on which it runs a master or a replica and a Sentinel
beside it, as the README of the backend demands. Packet filter rules cut hosts off. All of it runs
in namespaces of the kernel that end with their process: nothing is left behind, whatever happens.
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
from tests.faults.torture.faults import Fault
from tests.faults.torture.report import Result, left_out
from tests.faults.torture.setups import KILLS, STALLS, SetUp, on
from tests.support.failovers import APART_SECONDS, settled
from tests.support.races import Race
from tests.support.services import Live

ISOLATE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
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


def run(seconds: float, seed: int) -> Iterator[Result]:
    """Run histories in a namespace, if that is permitted; else yield a result that says so."""
    try:
        subprocess.run([*ISOLATE, "iptables", "-L"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield left_out("histories: partitions", "namespaces are not permitted", seed)
        return
    command = (sys.executable, "-m", "tests.faults.torture.partitions", str(seconds), str(seed))
    with subprocess.Popen([*ISOLATE, *command], stdout=subprocess.PIPE) as isolated:
        assert isolated.stdout is not None
        try:
            for line in isolated.stdout:
                yield msgspec.json.decode(line, type=Result)
            if isolated.wait():
                status = f"the process in the namespace ended with status {isolated.returncode}"
                yield Result("histories: partitions", {}, [status], seed)
        finally:
            isolated.kill()


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
    from tests.faults.torture.histories import Loop  # noqa: PLC0415 - it imports this module

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
