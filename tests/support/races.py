"""A race: many clients compete for a few pets, and the service may be killed meanwhile.

It knows a service only by its address, so it works with any backend.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

from tests.support.histories import Attempt, by_key, repeated, violations
from tests.support.interface import Item
from tests.support.linearizability import nonlinearizable
from tests.support.racers import STOCK, Client, Turn
from tests.support.services import Live
from tests.support.wire import Target

LIMIT_SECONDS = 60
FLOOR = 50
"""How many attempts must have got a response before a kill, so that there was a load."""

REPEATED = 20
PATIENCE = 50
"""How often a request is sent until it gets a response other than 503, not counting kills."""

Restart = Callable[[Live], Live]


class Race:
    """Clients, the pets that they compete for, and the responses that they got.

    stock -- the ids of the pets on offer
    placed -- the ids of the orders that clients have placed
    wrong -- what was wrong with single responses
    pages -- how many pages were read
    patience -- how often a request is sent until it gets a response other than 503
    name -- the beginning of all keys and names, other than that of any race on the same store
    seed -- what the clients choose depends on it, and on nothing else
    floor -- how many attempts must have got a response before each kill, so that there was a load
    abandoned -- what part of the writes is abandoned: the client does not read the response
    repeated -- how many of its writes a client repeats when the race is over
    limit_seconds -- how long the race may take at most, and 20 seconds more for each kill
    after -- of pets and of orders, the ids after which those of this race begin
    gone_at -- when everything stored was gone, so that no request needs a response after that
    walks -- when each walk through all pets began, and the ids that it showed
    settled -- when the clients had ended, and no fault was left
    final -- the pets and the orders of the race at its end
    undecided -- how many searches for an order of the requests were given up
    """

    def __init__(
        self,
        live: Live,
        patience: int = PATIENCE,
        *,
        name: str = "",
        seed: str = "",
        floor: int = FLOOR,
        abandoned: float = 0,
        repeated: int = REPEATED,
        limit_seconds: float = LIMIT_SECONDS,
        after: tuple[int, int] = (0, 0),
    ) -> None:
        self.target = Target(live)
        self.patience = patience
        self.name = name
        self.seed = seed
        self.floor = floor
        self.abandoned = abandoned
        self.repeated = repeated
        self.limit_seconds = limit_seconds
        self.after = dict(zip(("pets", "orders"), after, strict=True))
        self.over = False
        self.gone_at = inf
        self.walks: list[tuple[float, list[int]]] = []
        self.final: tuple[list[Item], list[Item]] = ([], [])
        self.history: list[Attempt] = []
        self.wrong: list[str] = []
        self.stock: list[int] = []
        self.placed: list[int] = []
        self.settled = inf
        self.pages = self.kills = self.clients = self.undecided = 0

    def run(
        self,
        turn: Turn,
        *,
        clients: int,
        seconds: float,
        kills: int = 0,
        restart: Restart | None = None,
    ) -> None:
        """Run a race.

        restart -- kills a service and returns the one that replaces it
        seconds -- how long the clients go on between the start, the kills and the end
        """
        self.clients = clients
        self.kills = kills
        asyncio.run(self._run(turn, seconds, restart))

    async def _run(self, turn: Turn, seconds: float, restart: Restart | None) -> None:
        async with (
            asyncio.timeout(self.limit_seconds + 20 * self.kills),
            asyncio.TaskGroup() as group,
        ):
            first = Client(self, -1)
            if turn is not Client.create:
                for _ in range(STOCK):
                    created = await first.post("create", 0)
                    assert created is not None
                    self.stock.append(created["id"])
            first.close()
            tasks = [
                group.create_task(Client(self, number).run(turn)) for number in range(self.clients)
            ]
            for _ in range(self.kills):
                assert restart is not None
                await self._go_on(seconds)
                self.target.up.clear()
                self.target.live = await asyncio.to_thread(restart, self.target.live)
                if self.gone:  # what waits for the new service has not been sent
                    for task in tasks:
                        task.cancel()
                else:
                    self.target.up.set()
            await self._go_on(seconds)
            self.over = True
        if not self.gone:
            self.final = await Client(self, -2).settle()
        self.history = [
            attempt if attempt.ended < self.gone_at else replace(attempt, response=None)
            for attempt in self.history  # whatever came later may be of the new store
        ]

    async def _go_on(self, seconds: float) -> None:
        before = self.responses
        await asyncio.sleep(seconds)
        while self.responses < before + self.floor and not self.gone:  # noqa: ASYNC110 - a slow disk
            await asyncio.sleep(0.01)

    @property
    def gone(self) -> bool:
        """Whether everything stored is gone."""
        return self.gone_at < inf

    @property
    def responses(self) -> int:
        """How many attempts got a response."""
        return len(self.history) - self.unknown

    @property
    def unknown(self) -> int:
        """How many attempts have an unknown outcome."""
        return sum(attempt.response is None for attempt in self.history)

    def uncertain(self) -> list[list[Attempt]]:
        """Return the attempts of keys that were refused, though an earlier one may succeed."""
        return [
            attempts
            for attempts in by_key(self.history).values()
            if any(attempt.response is None for attempt in attempts)
            and not any(attempt.got(201) for attempt in attempts)
        ]

    @property
    def lost_responses(self) -> int:
        """How many keys had their effect in an attempt whose response was lost."""
        return sum(
            any(attempt.got(201) for attempt in attempts)
            and all(a.response.replayed for a in attempts if a.response and a.got(201))
            for attempts in by_key(self.history).values()
        )

    def count(self, action: str, status: int, *, replayed: bool = False) -> int:
        """How many attempts of an action got this status."""
        return sum(
            attempt.action == action and attempt.got(status) and response.replayed == replayed
            for attempt in self.history
            if (response := attempt.response)
        )

    def violations(self, *, replaced: bool = False, pages_are_moments: bool = True) -> list[str]:
        """Return all that was wrong with a race.

        replaced -- whether another server took over: then only what was acknowledged must last.
            What was read or refused may have followed from writes that were never confirmed
        pages_are_moments -- whether a page shows all its items at one moment
        """
        history, found = self.history, self.wrong[:]
        if replaced:
            history = [a for a in history if a.sent >= self.settled or _is_write(a)]
        else:
            found += self.wrong_walks()
            found += [f"{attempt}" for attempt in history if _is_lost(attempt)]
        if not self.gone:
            found += violations(*self.final, history)
        wrong, undecided = nonlinearizable(history, pages_are_moments=pages_are_moments)
        self.undecided += undecided
        return found + wrong

    def wrong_walks(self) -> Iterator[str]:
        """Check that each walk showed each pet that existed when it began once, and none twice."""
        created = [a for a in self.history if a.action == "create" and a.got(201)]
        for sent, shown in self.walks:
            before = {a.response.item["id"] for a in created if a.response and a.ended < sent}
            if missing := before - set(shown):
                yield f"a walk that began at {sent} does not show the pets {missing}"
            if twice := repeated(shown):
                yield f"a walk that began at {sent} shows the pets {twice} twice"

    def judge(self, name: str) -> list[str]:
        """Return all that was wrong, and print the figures of the race in a line."""
        pets, orders = self.final
        lost = [f"{attempt}" for attempt in self.history if _is_lost(attempt)]
        found = self.wrong + lost + violations(pets, orders, self.history)
        statuses = Counter(order["status"] for order in orders)
        replays = self.count("place", 201, replayed=True) + self.count("create", 201, replayed=True)
        sys.stdout.write(
            f"{name}: {self.clients} clients, {self.kills} kills, {len(pets)} pets,"
            f" {len(orders)} orders ({', '.join(f'{n} {s}' for s, n in statuses.items())}),"
            f" {self.responses} responses, {self.count('place', 409)} + {self.count('close', 409)}"
            f" refused, {replays} replayed, {self.unknown} unknown"
            f" ({self.target.unavailable} of them 503;"
            f" {self.lost_responses} had taken effect), {len(found)} violations\n"
        )
        return found


def _is_write(attempt: Attempt) -> bool:
    acknowledged = attempt.response is None or attempt.response.status in {200, 201}
    return attempt.action in {"create", "place", "close"} and acknowledged


def _is_lost(attempt: Attempt) -> bool:
    """Return whether a write did not find its pet or order, which had been acknowledged."""
    return attempt.action in {"place", "close"} and attempt.got(404)
