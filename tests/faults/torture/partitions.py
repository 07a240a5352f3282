"""Rounds while the network between Redis nodes is cut, in namespaces of the kernel.

Each host has an address of the loopback, on which it runs a master or a replica and a Sentinel
beside it, as the README of the backend demands. Packet filter rules cut hosts off. The namespaces
end with their process: nothing is left behind, whatever happens.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from petstore_conformance.faults.verdicts import RoundOutcome
from petstore_conformance.harness.cores import INCONCLUSIVE
from petstore_redis import RedisSettings

from backends.redis.tests.servers import AOF, QUICK, VALKEY, Server, until
from backends.redis.tests.topologies import DOWN_AFTER, HASTY, PINGS, SERVICE, Sentinels
from tests.faults.torture.runs import LeftOutError, Outcomes, Run, SetUp
from tests.faults.torture.setups import replicated
from tests.faults.torture.stage import rounds
from tests.support.failovers import APART_SECONDS, settled

ISOLATE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
HOSTS: Final = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
PORT: Final = 7000
"""That of the server of the first host, which is the first master; each host has its own."""

SENTINEL_PORT: Final = 7100
SERVICE_HOST: Final = "127.0.0.1"
CUT_SECONDS: Final = (0.3, 3)
"""How long a cut lasts before the old master may be restarted on its side, and again after it."""

RESTARTED: Final = 0.5
GRACE_SECONDS: Final = 90


def isolated(_: Path, run: Run) -> Outcomes:
    """Run the set-ups of this module in a process in namespaces; its report is that of the process.

    Raises `LeftOutError` if namespaces are not permitted.
    """
    try:
        subprocess.run([*ISOLATE, "iptables", "-L"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise LeftOutError("namespaces and iptables are not permitted") from None
    command = [sys.executable, "-m", "tests.faults.torture", f"--seed={run.seed}"]
    command += [f"--minutes={run.seconds / 60}", f"--isolated={run.end - time.monotonic()}"]
    outcome = RoundOutcome("in a process of their own, reported above")
    with subprocess.Popen([*ISOLATE, *command]) as process:
        try:
            status = process.wait()
        finally:
            process.kill()
    if status == INCONCLUSIVE:
        outcome.slow = ["see above"]
    elif status:
        outcome.found.add("otherwise wrong", f"see above (status {status})")
    yield outcome


def on_hosts(replicas: int, directory: Path, run: Run) -> Outcomes:
    """Run rounds on a master and two replicas, each on a host with a Sentinel.

    replicas -- how many of them confirm a write. Only if both do, nothing may be lost: Sentinels
        may make the other one master, because they know what each had half a second ago, and a
        master that was cut off for a second acknowledges writes again just then
    """
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    started: list[Server] = []
    try:
        group = _start(directory, started)
        hosts = ",".join(f"{server.host}:{server.port}" for server in group.sentinels)
        settings = RedisSettings(f"redis+sentinel://{hosts}/{SERVICE}", wait_replicas=replicas)
        set_up = replicated(group, settings, lossless=replicas == len(HOSTS) - 1)
        set_up = msgspec.structs.replace(
            set_up,
            cut_off=partial(cut_master_off, group),
            stalled=None,
            kill=None,
            start=None,
            timeout_seconds=30,
        )
        yield from rounds(set_up, run, directory)
    finally:
        for server in started:
            server.kill()


def _start(directory: Path, started: list[Server]) -> Sentinels:
    def server(host: str, port: int, *lines: str) -> Server:
        made = Server(directory, VALKEY, port, f"bind {host}", f"bind-source-addr {host}", *lines)
        made.host = host
        started.append(made.start())
        return made

    data = []
    for number, host in enumerate(HOSTS):
        lines = [*QUICK, *AOF, f"replica-announce-ip {host}"]
        lines += [f"replicaof {HOSTS[0]} {PORT}"] if number else []
        data.append(server(host, PORT + number, *lines))
    watching = []
    for number, host in enumerate(HOSTS):
        lines = [
            f"sentinel myid {number + 1:040x}",
            f"sentinel announce-ip {host}",
            f"sentinel monitor {SERVICE} {HOSTS[0]} {PORT} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} {4 * DOWN_AFTER}",
        ]
        watching.append(server(host, SENTINEL_PORT + number, *lines))
    for one in watching:
        until(lambda one=one: one.call("SENTINEL", "DEBUG", *PINGS, *HASTY))  # type: ignore[misc] # its default confuses mypy
    group = Sentinels(data, watching)
    until(group.ready)
    return group


def cut_master_off(group: Sentinels, random: Random) -> None:
    """Cut the master off from the other nodes; the service may reach both sides, or only one."""
    old = group.master()
    others = [host for host in HOSTS if host != old.host]
    cut = [(old.host, other) for other in others]
    side = random.choice(("both", "the majority", "the old master"))
    if side == "the majority":
        cut.append((SERVICE_HOST, old.host))
    elif side == "the old master":
        cut += [(SERVICE_HOST, other) for other in others]
    for one, other in cut:
        drop("-A", one, other)
    time.sleep(random.uniform(*CUT_SECONDS))
    if side != "the majority" and random.random() < RESTARTED:
        old.restart()
    time.sleep(random.uniform(*CUT_SECONDS))
    for one, other in cut:
        drop("-D", one, other)
    until(lambda: settled(group), GRACE_SECONDS)
    time.sleep(APART_SECONDS)  # Sentinels would wait that long before they act again


def drop(action: str, one: str, other: str) -> None:
    """Begin (-A) or stop (-D) to drop all packets between two hosts."""
    for source, target in ((one, other), (other, one)):
        rule = ("INPUT", "-s", source, "-d", target, "-j", "DROP")
        subprocess.run(["iptables", "-w", action, *rule], check=True)


INSIDE: Final[dict[str, tuple[SetUp, float]]] = {
    f"redis, partitions, {confirming} of 2 replicas confirm": (partial(on_hosts, confirming), 1)
    for confirming in (2, 1, 0)
}
"""The set-ups within the namespaces."""
