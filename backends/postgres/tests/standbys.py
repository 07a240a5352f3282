"""A primary and its standby, on real servers, for the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from petstore_conformance.faults.proxy import Proxy

from backends.postgres.tests.servers import Server, single, until

SYNCHRONOUS: Final = ("synchronous_standby_names = '*'", "synchronous_commit = on")


@contextmanager
def pair(*lines: str) -> Iterator[tuple[Server, Server]]:
    """Run a primary and its standby."""
    with single(*lines) as primary, standby_of(primary) as standby:
        yield primary, standby


def url_of(*servers: Server | Proxy) -> str:
    """Return a URL that names several servers."""
    places = ",".join(f"{server.host}:{server.port}" for server in servers)
    return f"postgresql://postgres@{places}/postgres?sslmode=disable"


def promote(standby: Server) -> None:
    """Promote a standby, and wait until it can be written to."""
    standby.fetch("SELECT pg_promote()")
    until(lambda: standby.fetch("SELECT pg_is_in_recovery()") == [(False,)])


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    """Run a standby until the block exits; wait until it is connected."""
    with single(binaries=primary.binaries, primary=primary) as server:
        until(lambda: primary.fetch("SELECT FROM pg_stat_replication WHERE state = 'streaming'"))
        yield server


@contextmanager
def copy_of(primary: Server) -> Iterator[Server]:
    """Run a second primary, a copy that is on the same timeline, until the block exits."""
    with single(binaries=primary.binaries, primary=primary, start=False) as server:
        (server.data / "standby.signal").unlink()
        yield server.start()


def set_synchronous(primary: Server, *, on: bool) -> None:
    """Make a primary wait for its standby from now on, or no longer."""
    primary.reload(synchronous_standby_names="*" if on else "")
    if on:
        until(lambda: primary.fetch("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"))
