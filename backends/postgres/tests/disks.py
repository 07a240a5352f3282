"""Servers whose disk is small, with a file on it that can be removed to make room."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backends.postgres.tests.binaries import NOBODY, own
from backends.postgres.tests.servers import Server
from tests.support.environments import missing

MEBIBYTES: Final = 72
BALLAST: Final = 40 * 2**20


@contextmanager
def small_disk_of_the_tables(server: Server) -> Iterator[Path]:
    """Put tables that are made from now on onto a small disk; yield the file.

    While it is full, the server refuses the statement (53100), and keeps running.
    """
    with _small_disk(server) as disk:
        tables = disk / "tables"
        tables.mkdir()
        own(tables)
        server.fetch(f"CREATE TABLESPACE small LOCATION '{tables}'")
        server.fetch("ALTER SYSTEM SET default_tablespace = small")
        server.fetch("SELECT pg_reload_conf()")
        yield disk / "ballast"


@contextmanager
def small_disk_of_the_log(server: Server) -> Iterator[Path]:
    """Put the write-ahead log onto a small disk; yield the file.

    When it is full, the server ends, and cannot start again until there is room.
    """
    with _small_disk(server) as disk:
        server.stop()
        log = disk / "pg_wal"
        shutil.copytree(server.data / "pg_wal", log)
        for path in (log, *log.rglob("*")):
            own(path)
        shutil.rmtree(server.data / "pg_wal")
        (server.data / "pg_wal").symlink_to(log)
        server.start()
        yield disk / "ballast"


@contextmanager
def _small_disk(server: Server) -> Iterator[Path]:
    """Mount a file system with the file in it; at the end, stop the server that uses it."""
    if os.geteuid() != 0:
        missing("only root may mount a file system")
    directory = server.directory / "disk"
    directory.mkdir()
    options = f"size={MEBIBYTES}m,mode=700,uid={NOBODY},gid={NOBODY}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        missing("a file system cannot be mounted here")
    try:
        (directory / "ballast").write_bytes(bytes(BALLAST))
        yield directory
    finally:
        server.stop()
        subprocess.run(["umount", "--lazy", directory], check=True)
