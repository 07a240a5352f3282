"""A race: many clients compete for a few pets, and the service may be killed meanwhile.

It knows a service only by its address, so it works with any backend.
"""

import asyncio
from dataclasses import dataclass, field, replace
from math import inf

from petstore_conformance.faults.histories import Attempt, Item
from petstore_conformance.faults.wire import Endpoint, set_event

STOCK = 8
"""How many pets are on offer: a client that makes one unavailable for good adds another."""


@dataclass
class Race:
    """The pets and orders that the clients of a race share, and the history that they record.

    seed -- determines what the clients choose
    offered -- how many pets are on offer
    abandoned -- the share of writes whose response the client does not read
    reconnecting -- the share of its actions before which a client closes its connections
    clients -- how many compete
    stock -- the ids of the pets on offer
    placed -- the ids of the orders that clients have placed
    failed -- the responses with a status of 500 or more, except 503
    gone_at -- when everything stored was gone: requests need no response after that. What ended
        later is not judged, except that no id may be given out again
    going -- while it is not set, clients begin no more actions
    busy -- how many clients are in an action
    quiet_since -- when the clients had ended, and no fault was left
    final -- the pets and the orders then
    """

    target: Endpoint
    seed: str = ""
    offered: int = STOCK
    abandoned: float = 0
    reconnecting: float = 0
    clients: int = 0
    over: bool = False
    stock: list[int] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    history: list[Attempt] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    gone_at: float = inf
    going: asyncio.Event = field(default_factory=set_event)
    busy: int = 0
    quiet_since: float = inf
    final: tuple[list[Item], list[Item]] = ([], [])

    @property
    def gone(self) -> bool:
        """Whether everything stored is gone."""
        return self.gone_at < inf

    def before_gone(self) -> list[Attempt]:
        """Return the attempts; what ended after everything was gone has an unknown outcome."""
        return [
            attempt if attempt.ended < self.gone_at else replace(attempt, response=None)
            for attempt in self.history
        ]

    @property
    def responses(self) -> int:
        """How many attempts got a response."""
        return len(self.history) - self.unknown

    @property
    def unknown(self) -> int:
        """How many attempts have an unknown outcome."""
        return sum(attempt.response is None for attempt in self.history)
