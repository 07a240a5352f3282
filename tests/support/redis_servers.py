"""Real Redis servers for services: started on first use, stopped when this process ends.

Each test process of a run starts its own. PETSTORE_TEST_REDIS chooses the topology.
"""

import atexit
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.topologies import Cluster, Sentinels, cluster, sentinel, url_of

TOPOLOGY = os.environ.get("PETSTORE_TEST_REDIS", "valkey")
"""One server (valkey), one behind Sentinels (sentinel), or three masters (cluster)."""

Group = Server | Sentinels | Cluster
START: dict[str, Callable[..., AbstractContextManager[Group]]] = {
    "valkey": single,
    "sentinel": sentinel,
    "cluster": cluster,
}
SETTINGS: dict[str, dict[str, str]] = {
    "valkey": {},
    "sentinel": {"redis_wait_replicas": "1"},
    "cluster": {"redis_partitions": "8"},
}


def fresh_place() -> dict[str, str]:
    """Return the settings of an empty place on the servers of this process."""
    return {
        "redis_url": _url(),
        "redis_prefix": f"test-{secrets.token_hex(8)}",
        **SETTINGS[TOPOLOGY],
    }


@cache
def _url() -> str:
    stack = ExitStack()
    atexit.register(stack.close)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return url_of(stack.enter_context(START[TOPOLOGY](directory, *AOF)))
