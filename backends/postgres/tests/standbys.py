"""A primary and its standby, on real servers, for the tests."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backends.postgres.tests.servers import Server, single, until

SYNCHRONOUS: Final = ("synchronous_standby_names = '*'", "synchronous_commit = on")


@contextmanager
def pair(*lines: str) -> Iterator[tuple[Server, Server]]:
    """Run a primary and its standby."""
    with single(*lines) as primary, standby_of(primary) as standby:
        yield primary, standby


def url_of(*servers: Server) -> str:
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
    with tempfile.TemporaryDirectory(prefix="pg-") as directory:
        server = Server(Path(directory), primary.binaries, primary=primary)
        try:
            server.start()
            until_streaming(primary)
            yield server
        finally:
            server.close()


@contextmanager
def copy_of(primary: Server) -> Iterator[Server]:
    """Run a second primary, a copy that is on the same timeline, until the block exits."""
    with tempfile.TemporaryDirectory(prefix="pg-") as directory:
        server = Server(Path(directory), primary.binaries, primary=primary)
        (server.data / "standby.signal").unlink()
        try:
            yield server.start()
        finally:
            server.close()


def until_streaming(primary: Server) -> None:
    """Wait until a standby is connected."""
    until(lambda: primary.fetch("SELECT FROM pg_stat_replication WHERE state = 'streaming'"))


def set_synchronous(primary: Server, *, on: bool) -> None:
    """Make a primary wait for its standby from now on, or no longer."""
    names = "*" if on else ""
    primary.fetch(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    primary.fetch("SELECT pg_reload_conf()")
    if on:
        until(lambda: primary.fetch("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"))
