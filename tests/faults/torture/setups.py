"""The kit's rounds on each of our backends and topologies, with what may happen to each."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import petstore_memory
import petstore_postgres
import petstore_redis
import petstore_sqlite
from petstore_conformance.faults.proxy import Proxy
from petstore_memory import MemorySettings
from petstore_postgres import PostgresSettings
from petstore_redis import RedisSettings
from petstore_sqlite import SqliteSettings

from backends.postgres.tests import servers as postgres_servers
from backends.postgres.tests import standbys
from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.topologies import Cluster, Sentinels, cluster, sentinel, url_of
from tests.faults.torture.runs import Outcomes, Run, SetUp
from tests.faults.torture.stage import SHORT, Topology, rounds
from tests.support.failovers import Failovers, master_of

PARTITIONS: Final = 8
TIMEOUT_SECONDS: Final = 1


def memory(directory: Path, run: Run) -> Outcomes:
    """Run rounds on memory; killing the service ends everything."""
    backend = petstore_memory.backend
    faults = ("stall-worker",)
    set_up = Topology(name="memory", backend=backend, settings=MemorySettings(), faults=faults)
    yield from rounds(set_up, run, directory)


def sqlite(directory: Path, run: Run) -> Outcomes:
    """Run rounds on a file, with one worker or two."""
    settings = SqliteSettings(path=f"{directory}/pets.sqlite")

    def empty() -> None:
        for file in directory.glob("pets.sqlite.scratch-*"):
            file.unlink()

    set_up = Topology(
        name="sqlite", backend=petstore_sqlite.backend, settings=settings, empty=empty
    )
    yield from rounds(set_up, run, directory)


def one_redis(directory: Path, run: Run) -> Outcomes:
    """Run rounds on one server behind a proxy; it is killed and suspended, too."""
    with single(directory, *AOF) as server, Proxy(server.host, server.port) as front:
        set_up = Topology(
            name="redis",
            backend=petstore_redis.backend,
            settings=RedisSettings(url_of(server)),
            kill=server.kill,
            start=server.start,
            empty=lambda: server.call("FLUSHALL"),
            stalled=lambda _: [server],
        )
        yield from rounds(set_up, run, directory, front)


def replicated(
    group: Sentinels | Cluster, settings: RedisSettings, *, lossless: bool = True
) -> Topology:
    """Return a set-up on masters and replicas: a replica takes over from a master that is killed.

    A master, or all replicas, are suspended, so that they lag and confirm no write.
    """
    failovers = Failovers(group)

    def stalled(random: Random) -> list[Server]:
        if random.random() < 0.5:
            return [master_of(group, settings.prefix, random.randrange(settings.partitions))[0]]
        return [node for node in group.nodes if node.call("ROLE")[0] == "slave"]

    def masters() -> list[str]:
        """Return the replication ids: they change when a replica takes over."""
        found = [node.call("INFO", "replication") for node in group.nodes if node.process]
        return sorted({info["master_replid"] for info in found})

    return Topology(
        name="redis",
        backend=petstore_redis.backend,
        settings=settings,
        kill=failovers.kill,
        start=failovers.start,
        stalled=stalled,
        masters=masters,
        lossless=lossless,
    )


def behind_sentinels(directory: Path, run: Run) -> Outcomes:
    """Run rounds on a master that Sentinels replace."""
    with sentinel(directory, *AOF, hasty=True) as group:
        settings = RedisSettings(url_of(group), wait_replicas=1)
        yield from rounds(replicated(group, settings), run, directory)


def on_a_cluster(partitions: int, directory: Path, run: Run) -> Outcomes:
    """Run rounds on a cluster, over this number of partitions."""
    with cluster(directory, *AOF, replicas=2) as group:
        settings = RedisSettings(url_of(group), wait_replicas=1, partitions=partitions)
        yield from rounds(replicated(group, settings), run, directory)


def one_postgres(directory: Path, run: Run) -> Outcomes:
    """Run rounds on one server behind a proxy, suspended for longer than the service waits."""
    with postgres_servers.single() as server, Proxy(server.host, server.port) as front:
        url = server.url(sslmode="disable")
        set_up = Topology(
            name="postgres",
            backend=petstore_postgres.backend,
            settings=PostgresSettings(url, timeout_seconds=TIMEOUT_SECONDS),
            kill=server.kill,
            start=server.start,
            empty=partial(postgres_servers.until, lambda: dropped(server)),
            stalled=lambda _: [server],
            stall_seconds=(SHORT[0], 1.5 * TIMEOUT_SECONDS),
        )
        yield from rounds(set_up, run, directory, front)


def dropped(server: postgres_servers.Server) -> bool:
    """Drop the schemas of all locations; return True. It may lose a deadlock with a write."""
    sql = "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%\\_scratch\\_%'"
    for (name,) in server.fetch(sql):
        server.fetch(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    return True


def with_a_standby(directory: Path, run: Run) -> Outcomes:
    """Run rounds on a primary and a synchronous standby, which takes its place."""
    with standbys.pair() as servers:
        standbys.set_synchronous(servers[0], on=True)
        pair = [*servers]  # the primary first

        def kill() -> None:
            primary, standby = pair
            primary.kill()
            standbys.set_synchronous(standby, on=False)
            standbys.promote(standby)

        def start() -> None:
            old, primary = pair
            old.follow(primary)
            old.start()
            standbys.set_synchronous(primary, on=True)
            pair.reverse()

        set_up = Topology(
            name="postgres",
            backend=petstore_postgres.backend,
            settings=PostgresSettings(standbys.url_of(*servers), timeout_seconds=TIMEOUT_SECONDS),
            kill=kill,
            start=start,
            stalled=lambda _: [pair[1]],
            stall_seconds=(SHORT[0], 1.5 * TIMEOUT_SECONDS),
        )
        yield from rounds(set_up, run, directory)


SET_UPS: Final[dict[str, tuple[SetUp, float]]] = {
    "memory": (memory, 4),
    "sqlite": (sqlite, 6),
    "redis, one server": (one_redis, 6),
    "redis, Sentinels": (behind_sentinels, 6),
    "redis, cluster, 1 partition": (partial(on_a_cluster, 1), 5),
    f"redis, cluster, {PARTITIONS} partitions": (partial(on_a_cluster, PARTITIONS), 5),
    "postgres, one server": (one_postgres, 6),
    "postgres, a synchronous standby": (with_a_standby, 6),
}
"""The set-ups, and their shares of the time."""
