"""Set-ups on PostgreSQL: a service on one server, behind a proxy, and on one with a standby."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backends.postgres.tests.servers import Server, single
from backends.postgres.tests.standbys import pair, promote, set_synchronous, url_of
from petstore.conformance.faults.proxy import proxy
from petstore.conformance.faults.races import Race
from tests.faults.torture import faults
from tests.faults.torture.faults import SHORT
from tests.faults.torture.service import Fault, SetUp
from tests.faults.torture.setups import KILLS, NETWORK, STALLS
from tests.support.services import Live

TIMEOUT_SECONDS = 1


@contextmanager
def postgres(_: Path) -> Iterator[SetUp]:
    """Yield a service on one server, which is killed and stalled."""
    with single() as server:

        def kill_server(_: SetUp, __: Race, live: Live) -> tuple[Live, str]:
            """Kill all processes of the server, and start it again with its data."""
            server.restart()
            return live, "kills"

        def stall_server(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
            """Suspend the server, sometimes for longer than the service waits."""
            return live, stall(set_up, server)

        chances: dict[Fault, float] = {
            **KILLS,
            **STALLS,
            faults.kill_workers: 0.03,
            kill_server: 0.12,
            stall_server: 0.12,
        }
        yield SetUp("postgres, one server", chances, on(server.url(sslmode="disable")))


@contextmanager
def postgres_behind_a_proxy(_: Path) -> Iterator[SetUp]:
    """Yield a service that reaches its server through a proxy that loses replies."""
    with single() as server, proxy(server.host, server.port) as front:
        place = on(f"postgresql://postgres@127.0.0.1:{front.port}/postgres?sslmode=disable")
        yield SetUp("postgres, lost responses", NETWORK, place, front=front)


@contextmanager
def postgres_with_a_standby(_: Path) -> Iterator[SetUp]:
    """Yield a service on a primary and a synchronous standby, which takes its place."""
    with pair() as servers:
        set_synchronous(servers[0], on=True)
        primaries = [*servers]

        def kill_primary(_: SetUp, __: Race, live: Live) -> tuple[Live, str]:
            """Kill the primary, promote the standby, and start the old one as its standby."""
            primary, standby = primaries
            primary.kill()
            set_synchronous(standby, on=False)
            promote(standby)
            primary.follow(standby)
            primary.start()
            set_synchronous(standby, on=True)
            primaries.reverse()
            return live, "failovers"

        def stall_standby(set_up: SetUp, _: Race, live: Live) -> tuple[Live, str]:
            """Suspend the standby, so that no write is confirmed."""
            return live, stall(set_up, primaries[1])

        chances: dict[Fault, float] = {
            **KILLS,
            **STALLS,
            kill_primary: 0.15,
            stall_standby: 0.05,
        }
        yield SetUp("postgres, a synchronous standby", chances, on(url_of(*servers)))


def stall(set_up: SetUp, server: Server) -> str:
    """Suspend a server for a moment; return under what to count that."""
    seconds = set_up.random.choice((set_up.random.uniform(*SHORT), TIMEOUT_SECONDS * 1.3))
    server.freeze()
    time.sleep(seconds)
    server.resume()
    return "stalls"


def on(url: str) -> Callable[[int], dict[str, str]]:
    """Return a function that returns the settings of an empty place on a server."""

    def place(number: int) -> dict[str, str]:
        return {
            "backend": "postgres",
            "postgres_url": url,
            "postgres_schema": f"torture_{number}",
            "postgres_timeout_seconds": f"{TIMEOUT_SECONDS}",
        }

    return place
