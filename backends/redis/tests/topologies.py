"""Groups of servers: a master with a replica, with replicas and Sentinels, and a cluster."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from backends.redis.tests.servers import QUICK, VALKEY, Server, servers, until

SERVICE: Final = "pets"  # the name under which the Sentinels monitor the master

DOWN_AFTER: Final = 1000
"""Milliseconds without a reply until a server counts as down, for Sentinels and clusters.

A server on a busy machine may be silent for long, and a failover from a master that is alive may
lose the writes that it acknowledges meanwhile."""

NEVER_DOWN: Final = 60_000
"""The same, for groups in which no test lets a master fail: a busy machine must not, either."""

PINGS: Final = ("ping-period", 400)
"""Milliseconds. The default is a second, or DOWN_AFTER: a Sentinel would first ping a new master
when it already counts as down, and the next failover would lose what the last one kept. Only a
replica that has replied within five periods can become master; it is pinged once a second."""

HASTY: Final = ("info-period", 500, "publish-period", 250)


class Sentinels:
    """A master with replicas, and the Sentinels that monitor them."""

    def __init__(self, nodes: Sequence[Server], sentinels: Sequence[Server]) -> None:
        self.nodes = nodes
        self.sentinels = sentinels

    def master(self) -> Server:
        """Return the master according to the first running Sentinel."""
        monitor = next(server for server in self.sentinels if server.process)
        _, port = monitor.call("SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.nodes if server.port == int(port))

    def failed_over(self, old: Server) -> bool:
        """Return whether all running Sentinels report another master, and it has that role."""
        named = [
            int(server.call("SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
            for server in self.sentinels
            if server.process
        ]
        return set(named) == {self.master().port} != {old.port} and (
            self.master().call("ROLE")[0] == "master"
        )

    def ready(self) -> bool:
        """Return whether all Sentinels see each other and all data nodes, none of them down."""
        others = ["sentinel"] * (len(self.sentinels) - 1)
        replicas = ["slave"] * (len(self.nodes) - 1)
        return all(
            server.call("SENTINEL MASTER", SERVICE)["flags"] == "master"
            and self._flags(server, "SENTINELS") == others
            and self._flags(server, "REPLICAS") == replicas
            for server in self.sentinels
        )

    def _flags(self, server: Server, whose: str) -> list[str]:
        return [seen["flags"] for seen in server.call("SENTINEL", whose, SERVICE)]


class Cluster:
    """The nodes of a cluster: the original masters, then their replicas."""

    def __init__(self, nodes: Sequence[Server]) -> None:
        self.nodes = nodes

    def owner(self, slot: int, view: Server | None = None) -> Server:
        """Return the master of a slot according to one node: the first running one by default."""
        view = view or next(node for node in self.nodes if node.process)
        ranges: list[list[Any]] = view.call("CLUSTER SLOTS")
        port = next(master[1] for low, high, master, *_ in ranges if low <= slot <= high)
        return next(node for node in self.nodes if node.port == int(port))

    def failed_over(self, slot: int, old: Server) -> bool:
        """Return whether all running nodes agree on another master of a slot, and are ready."""
        running = [node for node in self.nodes if node.process]
        return self.ready(running) and all(self.owner(slot, node) is not old for node in running)

    def ready(self, nodes: Sequence[Server] | None = None) -> bool:
        """Return whether these nodes, or all, report the cluster as ok and have their data."""
        return all(
            node.call("CLUSTER INFO")["cluster_state"] == "ok"
            and node.call("ROLE")[0] in {"master", "slave"}
            and node.call("INFO", "replication").get("master_link_status", "up") == "up"
            and node.call("DBSIZE") >= 0
            for node in nodes or self.nodes
        )


@contextmanager
def pair(directory: Path, *lines: str) -> Iterator[tuple[Server, Server]]:
    """Run a master and its replica."""
    with servers(directory, VALKEY, 2) as make:
        master = make(0, *QUICK, *lines).start()
        replica = make(1, *QUICK, *lines, f"replicaof 127.0.0.1 {master.port}").start()
        master.until_replicated()
        yield master, replica


@contextmanager
def sentinel(directory: Path, *lines: str, hasty: bool = False) -> Iterator[Sentinels]:
    """Run a master, two replicas and three Sentinels, which know each other from the start.

    hasty -- whether a master may fail: otherwise an old one that comes back keeps its role for ten
        seconds and accepts writes that will be lost; the Sentinels demote it within a second then
    """
    down_after = DOWN_AFTER if hasty else NEVER_DOWN
    with servers(directory, VALKEY, 6) as make:
        master = make(0, *QUICK, *lines)
        follow = f"replicaof 127.0.0.1 {master.port}"
        data = [master, make(1, *QUICK, follow, *lines), make(2, *QUICK, follow, *lines)]
        identities = [secrets.token_hex(20) for _ in range(3)]
        watch = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {down_after}",
            f"sentinel failover-timeout {SERVICE} {4 * down_after}",
            *(f"sentinel known-replica {SERVICE} 127.0.0.1 {node.port}" for node in data[1:]),
        ]
        watching = [make(3 + i, f"sentinel myid {identities[i]}", *watch) for i in range(3)]
        for server in watching:
            with (server.directory / "server.conf").open("a") as file:
                for other, identity in zip(watching, identities, strict=True):
                    if other is not server:
                        file.write(
                            f"sentinel known-sentinel {SERVICE} 127.0.0.1 {other.port} {identity}\n"
                        )
        for server in data:
            server.start(wait=False)
        for server in data:
            until(server.ready)
        master.until_replicated(2)
        for server in watching:
            server.start(wait=False)
        debug = (*PINGS, *HASTY) if hasty else PINGS
        for server in watching:
            until(lambda server=server: server.call("SENTINEL", "DEBUG", *debug))  # type: ignore[misc] # its default confuses mypy
        group = Sentinels(data, watching)
        until(group.ready)
        yield group


@contextmanager
def cluster(directory: Path, *lines: str, masters: int = 3, replicas: int = 0) -> Iterator[Cluster]:
    """Run a cluster; `replicas` is how many each master has, which may fail if there are some."""
    down_after = DOWN_AFTER if replicas else NEVER_DOWN
    with servers(directory, VALKEY, masters * (1 + replicas)) as make:
        settings = (
            *("cluster-enabled yes", f"cluster-node-timeout {down_after}"),
            *("cluster-replica-validity-factor 0", "cluster-allow-replica-migration no"),
        )
        count = masters * (1 + replicas)
        nodes = [make(index, *QUICK, *settings, *lines) for index in range(count)]
        for node in nodes:
            node.start(wait=False)
        for index, node in enumerate(nodes):
            until(node.ready)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
            for other in nodes[:index]:
                node.call("CLUSTER", "MEET", "127.0.0.1", other.port)
        for index, node in enumerate(nodes[:masters]):
            first, end = (16384 * place // masters for place in (index, index + 1))
            node.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for index, node in enumerate(nodes[masters:]):
            identity = nodes[index % masters].call("CLUSTER", "MYID")
            until(lambda node=node, identity=identity: node.call("CLUSTER", "REPLICATE", identity))  # type: ignore[misc] # its defaults confuse mypy
        group = Cluster(nodes)
        until(lambda: all(len(node.call("CLUSTER NODES")) == count for node in nodes))
        until(group.ready)
        yield group


def url_of(place: Server | Sentinels | Cluster) -> str:
    """Return the URL of a server, of the master behind Sentinels, or of a cluster."""
    if isinstance(place, Server):
        return f"redis://127.0.0.1:{place.port}"
    if isinstance(place, Sentinels):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in place.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in place.nodes[:2])
    return f"redis+cluster://{hosts}"
