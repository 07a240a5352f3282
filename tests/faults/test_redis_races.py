"""No pet is sold twice, and no key takes effect twice, while Redis masters fail over.

The races are those of test_never_sold_twice.py, which also has their controls. Two workers serve;
masters are killed under load and come back as replicas, or with the same data.
"""

import os
import secrets
import sys
import time
from pathlib import Path

from petstore_redis.scripts import keys

from backends.redis.tests.servers import AOF, Server, single, until
from backends.redis.tests.topologies import Sentinels, cluster, sentinel, url_of
from petstore.conformance.faults.racers import Client, Turn
from tests.support.failovers import APART_SECONDS, master_of, settled
from tests.support.races import JudgedRace
from tests.support.redis_servers import Group
from tests.support.services import Live, Start

FAILOVERS = int(os.environ.get("PETSTORE_FAILOVERS", "1"))
CLIENTS = int(os.environ.get("PETSTORE_REDIS_CLIENTS", "48"))
SECONDS = float(os.environ.get("PETSTORE_REDIS_RACE_SECONDS", "0.7"))
FLOOR = 20
"""How many orders must have been placed, and how many refused, so that there was a race."""

PATIENCE = 300
"""How often a client sends a request: enough for half a minute of 503."""

USUAL_SECONDS = 5
"""How soon writes usually work again. A vote without a winner is repeated later."""

LONGEST_SECONDS = 20
QUIET_SECONDS = 0.5
PARTITIONS = 8


class Failing:
    """Servers whose masters fail during a race.

    outages -- for each master that was killed, the seconds from then until the last 503
    """

    def __init__(self, group: Group, start: Start, **settings: str) -> None:
        self.group = group
        self.prefix = f"race-{secrets.token_hex(4)}"
        self.outages: list[float] = []
        self._killed = 0.0
        self.race = JudgedRace(
            start(
                backend="redis",
                workers="2",
                log="off",
                redis_url=url_of(group),
                redis_prefix=self.prefix,
                **settings,
            ),
            PATIENCE,
        )

    def run(self, turn: Turn, failovers: int = FAILOVERS) -> list[str]:
        """Run a race; return what was wrong."""
        self.race.run(
            turn, clients=CLIENTS, seconds=SECONDS, kills=failovers, restart=self._fail_over
        )
        kind = type(self.group).__name__
        found = self.race.judge(f"{kind}, {turn.__name__}")
        outages = ", ".join(f"{seconds:.1f}" for seconds in self.outages)
        sys.stdout.write(f"{kind}: writes worked again after {outages} s\n")
        return found

    def check(self) -> None:
        """Check that there was a race, that the kills met it, and that the outages were short."""
        race = self.race
        assert race.count("place", 201) >= FLOOR
        assert race.count("place", 409) >= FLOOR
        assert race.count("close", 200) >= FLOOR
        assert race.count("create", 201) >= FLOOR
        assert race.unknown >= FAILOVERS * 8  # the kills met requests in flight
        assert race.target.lost == 0  # all of them got 503
        assert len(self.outages) == FAILOVERS
        assert sorted(self.outages)[(FAILOVERS - 1) // 2] < USUAL_SECONDS
        assert max(self.outages) < LONGEST_SECONDS

    def _fail_over(self, live: Live) -> Live:
        """Kill a master, wait until the failover is complete, and start it again."""
        if isinstance(self.group, Sentinels):
            time.sleep(max(0, self._killed + APART_SECONDS - time.monotonic()))
        partition = len(self.outages) % PARTITIONS
        master, is_replaced = master_of(self.group, self.prefix, partition)
        self._killed = time.monotonic()
        master.kill()
        if isinstance(self.group, Server):
            time.sleep(0.3)
            master.start()
        until(is_replaced)
        self.outages.append(self._seconds_of_503())
        if not isinstance(self.group, Server):
            master.start()
            until(lambda: settled(self.group))
        return live

    def _seconds_of_503(self) -> float:
        """Wait until 503s have stopped for a while; return the time from the kill to the last."""
        while True:
            failed = [attempt.ended for attempt in self.race.history if attempt.response is None]
            last = max(self._killed, *failed)
            if time.monotonic() > last + QUIET_SECONDS:
                return last - self._killed
            time.sleep(0.05)


async def both(client: Client) -> None:
    """Create a pet, or more often shop."""
    await (client.create() if client.random.random() < 0.2 else client.shop())


def test_no_pet_is_sold_twice_by_a_server_that_is_killed(tmp_path: Path, start: Start) -> None:
    with single(tmp_path, *AOF) as server:
        failing = Failing(server, start)
        assert failing.run(both) == []
        failing.check()


def test_no_pet_is_sold_twice_while_sentinels_fail_over(tmp_path: Path, start: Start) -> None:
    with sentinel(tmp_path, *AOF, hasty=True) as sentinels:
        failing = Failing(sentinels, start, redis_wait_replicas="1")
        assert failing.run(both) == []
        failing.check()


def test_no_pet_is_sold_twice_while_a_cluster_fails_over(tmp_path: Path, start: Start) -> None:
    """Each master has two replicas: when one becomes master, the other one confirms writes."""
    settings = {"redis_wait_replicas": "1", "redis_partitions": f"{PARTITIONS}"}
    with cluster(tmp_path, *AOF, replicas=2) as nodes:
        failing = Failing(nodes, start, **settings)
        assert failing.run(both) == []
        failing.check()


def test_a_race_detects_a_server_that_loses_its_data(tmp_path: Path, start: Start) -> None:
    """The control: a server that is killed restarts with an old snapshot.

    The snapshot does not say whose it is, so that the server does not draw another lane of ids.
    """
    with single(tmp_path) as server:
        failing = Failing(server, start)
        server.call("HDEL", keys(failing.prefix, 0)["meta"], "replid")
        server.call("SAVE")
        found = failing.run(Client.create, failovers=1)
    assert [text for text in found if ", but now " in text]
    assert [text for text in found if "was returned for two keys" in text]
