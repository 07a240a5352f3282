"""Stores on Redis for the tests outside the kit, calls that fail, and load."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from statistics import median
from time import monotonic
from typing import Any, Final

from petstore_conformance.faults.proxy import Proxy
from petstore_redis import RedisRepository, RedisSettings, open_redis

from backends.redis.tests.servers import Server
from backends.redis.tests.topologies import Cluster, Sentinels, url_of
from petstore.contract import Expected
from tests.support import repositories
from tests.support.waiting import PATIENCE

TIMEOUT: Final = 20 * PATIENCE
"""Seconds. Calls that no fault delays return far sooner, even on a busy machine."""
unavailable: Final = partial(repositories.unavailable, within=TIMEOUT / 2)
unavailable_for: Final = partial(repositories.unavailable_for, within=TIMEOUT / 2)
_numbers = count()


def fresh() -> str:
    """Return a prefix that no test has used."""
    return f"t{os.getpid()}.{next(_numbers)}"


def opened(
    place: Server | Sentinels | Cluster | Proxy | str, **settings: Any
) -> AbstractAsyncContextManager[RedisRepository]:
    """Open a store, with an unused prefix unless one is given."""
    if isinstance(place, Proxy):
        url = f"redis://127.0.0.1:{place.port}"
    else:
        url = place if isinstance(place, str) else url_of(place)
    expected = settings.pop("expected", Expected())
    settings = {"prefix": fresh(), "timeout_seconds": TIMEOUT, **settings}
    return open_redis(RedisSettings(url, **settings), expected)


async def unavailable_at_once(call: Callable[[], Awaitable[object]]) -> set[str]:
    """Check that most of twenty calls fail without waiting for anything; return the messages."""
    taken, messages = [], set()
    for _ in range(20):
        begin = monotonic()
        messages.add(await unavailable(call()))
        taken.append(monotonic() - begin)
    assert median(taken) < 0.5  # the shortest time limit of a call is a second
    return messages
