"""Whether a service whose store is gone refuses every request."""

import asyncio
import secrets
import time
from typing import Final

from petstore_conformance.faults.histories import Attempt
from petstore_conformance.faults.races import Race
from petstore_conformance.faults.wire import ClientConnection, Endpoint

CONNECTIONS: Final = 8
"""How many connections are opened at once, so that each worker gets some."""

NO_RESPONSE: Final = "no response"


async def served(race: Race, limit_seconds: float, *, writing: bool) -> set[str]:
    """Send a read and a check of readiness over new connections; with `writing`, a write before.

    Returns what got another response than 503, and `NO_RESPONSE` if something got none.
    """
    asking = (_served(race, limit_seconds, writing=writing) for _ in range(CONNECTIONS))
    return set().union(*await asyncio.gather(*asking))


async def _served(race: Race, limit_seconds: float, *, writing: bool) -> set[str]:
    target = Endpoint(race.target.live, limit_seconds)
    connection = ClientConnection(target)
    responses = {}
    if writing:
        key, sent = f"gone-{secrets.token_hex(8)}", time.monotonic()
        pet = {"name": key, "categoryId": 7, "status": "available"}
        responses["a write"] = response = await connection.exchange("POST", "/pets", pet, key)
        race.history.append(Attempt("create", key, 0, key, sent, time.monotonic(), response))
    responses["a read"] = await connection.exchange("GET", "/pets")
    responses["/readyz"] = await connection.exchange("GET", "/readyz", root="")
    connection.close()
    statuses = {what: got.status for what, got in responses.items() if got}
    race.failed += [f"{what}: {status}" for what, status in statuses.items() if status >= 500]
    found = {f"{what}: {status}" for what, status in statuses.items()}
    return found | ({NO_RESPONSE} if target.lost else set())
