"""What the clients of a race share, and what they record."""

import asyncio
from math import inf

from petstore.conformance.faults.histories import Attempt, by_key
from petstore.conformance.faults.wire import Endpoint

STOCK = 8
"""How many pets are on offer: a client that makes one unavailable for good adds another."""


class GoneError(Exception):
    """The store is gone for good, with everything in it."""


class Contest:
    """What the clients of a race share. `Race` explains the attributes that it adds.

    offered -- how many pets are on offer
    stock -- their ids
    placed -- the ids of the orders that clients have placed
    wrong -- what was wrong with single responses
    failed -- the responses with a status of 500 or more, except 503
    pages -- how many pages were read
    patience -- how often a request is sent until it gets a response other than 503, and once more
        for each of the kills
    name -- the beginning of all keys and names, other than that of any race on the same store
    seed -- what the clients choose depends on it, and on nothing else
    abandoned -- what part of the writes is abandoned: the client does not read the response
    repeated -- how many of its writes a client repeats when the race is over
    after -- of pets and of orders, the ids after which those of this race begin
    gone_at -- when everything stored was gone, so that no request needs a response after that
    reconnecting -- before what part of its turns a client closes its connections
    going -- while it is not set, clients take no more turns
    busy -- how many clients are taking a turn
    walks -- when each walk through all pets began, and the ids that it showed
    settled -- when the clients had ended, and no fault was left
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one for each attribute
        self,
        target: Endpoint,
        patience: int,
        name: str,
        seed: str,
        abandoned: float,
        repeated: int,
        after: tuple[int, int],
    ) -> None:
        self.target = target
        self.patience = patience
        self.name = name
        self.seed = seed
        self.abandoned = abandoned
        self.repeated = repeated
        self.after = dict(zip(("pets", "orders"), after, strict=True))
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
        self.pages = self.kills = 0

    @property
    def gone(self) -> bool:
        """Whether everything stored is gone."""
        return self.gone_at < inf

    def uncertain(self) -> list[list[Attempt]]:
        """Return the attempts of keys that were refused, though an earlier one may succeed."""
        return [
            attempts
            for attempts in by_key(self.history).values()
            if any(attempt.response is None for attempt in attempts)
            and not any(attempt.got(201) for attempt in attempts)
        ]
