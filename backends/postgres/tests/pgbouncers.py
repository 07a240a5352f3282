"""A real PgBouncer that pools transactions, in front of a server, for the tests."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backends.postgres.tests.binaries import USER, own
from backends.postgres.tests.servers import Server, until
from tests.support.environments import program
from tests.support.ports import free_port

CONFIGURATION = """
[databases]
postgres = host={host} port={server} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
pool_mode = {mode}
default_pool_size = {size}
logfile = {directory}/pgbouncer.log
"""


@contextmanager
def pgbouncer(server: Server, mode: str = "transaction", size: int = 3) -> Iterator[str]:
    """Run a PgBouncer; yield its URL. Skip if there is none.

    mode -- what it pools: a session or a transaction
    size -- how many connections to the server it has
    """
    found = program("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        directory, port = Path(name), free_port()
        file = directory / "pgbouncer.ini"
        file.write_text(
            CONFIGURATION.format(
                host=server.host,
                server=server.port,
                port=port,
                directory=directory,
                mode=mode,
                size=size,
            )
        )
        (directory / "users").write_text('"postgres" ""\n')
        for path in (directory, *directory.iterdir()):
            own(path)
        process = subprocess.Popen(
            [found, "-q", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **USER
        )
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
            until(lambda: server.fetch_from(url, "SELECT 1"))
            yield url
        finally:
            process.kill()
            process.wait()
