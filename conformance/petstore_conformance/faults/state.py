"""What the clients of a race share, and what they record."""

import asyncio
from dataclasses import replace
from math import inf

from petstore_conformance.faults.histories import Attempt, by_key
from petstore_conformance.faults.wire import Endpoint

STOCK = 8
"""How many pets are on offer: a client that makes one unavailable for good adds another."""


class GoneError(Exception):
    """The store is gone for good, with everything in it."""


class RaceState:
    """What the clients of a race share. `Race` explains the attributes that it adds.

    offered -- how many pets are on offer
    stock -- their ids
    placed -- the ids of the orders that clients have placed
    wrong -- what was wrong with single responses
    failed -- the responses with a status of 500 or more, except 503
    seed -- what the clients choose depends on it, and on nothing else
    abandoned -- what part of the writes is abandoned: the client does not read the response
    gone_at -- when everything stored was gone: no request needs a response after that, and those
        that came are not judged, except that no id may be given out again
    reconnecting -- before what part of its turns a client closes its connections
    going -- while it is not set, clients take no more turns
    busy -- how many clients are taking a turn
    walks -- when each walk through all pets began, and the ids that it showed
    settled -- when the clients had ended, and no fault was left
    """

    def __init__(self, target: Endpoint, seed: str, abandoned: float) -> None:
        self.target = target
        self.seed = seed
        self.abandoned = abandoned
        self.over = False
        self.reconnecting = 0.0
        self.going = asyncio.Event()
        self.going.set()
        self.busy = 0
        self.gone_at = inf
        self.walks: list[tuple[float, list[int]]] = []
        self.history: list[Attempt] = []
        self.wrong: list[str] = []
        self.failed: list[str] = []
        self.offered = STOCK
        self.stock: list[int] = []
        self.placed: list[int] = []
        self.settled = inf

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

    def uncertain(self) -> list[list[Attempt]]:
        """Return the attempts of keys that were refused, though an earlier one may succeed."""
        return [
            attempts
            for attempts in by_key(self.history).values()
            if any(attempt.response is None for attempt in attempts)
            and not any(attempt.got(201) for attempt in attempts)
        ]
