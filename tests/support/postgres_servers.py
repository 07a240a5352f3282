"""A real PostgreSQL server for services: started on first use, stopped when this process ends.

Each test process of a run starts its own.
"""

import atexit
import secrets
from contextlib import ExitStack
from functools import cache

from backends.postgres.tests.servers import single


def fresh_place() -> dict[str, str]:
    """Return the settings of an empty place on the server of this process."""
    return {"postgres_url": _url(), "postgres_schema": f"test_{secrets.token_hex(8)}"}


@cache
def _url() -> str:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(single()).url()
