"""A race: many clients compete for a few pets, and the service may be killed meanwhile.

It knows a service only by its address, so it works with any backend.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from petstore_conformance.faults.histories import Attempt, Item, repeated
from petstore_conformance.faults.racers import Client
from petstore_conformance.faults.services import RunningService
from petstore_conformance.faults.state import RaceState
from petstore_conformance.faults.wire import Endpoint

FLOOR = 150
"""How many attempts must have got a response before each fault, and after the last one."""

Fault = Callable[[], Awaitable[None]]


class Race(RaceState):
    """Clients, the pets that they compete for, and the responses that they got.

    limit_seconds -- how long the race may take at most
    final -- the pets and the orders at its end
    """

    def __init__(
        self,
        live: RunningService,
        *,
        seed: str = "",
        abandoned: float = 0,
        limit_seconds: float = 60,
    ) -> None:
        super().__init__(Endpoint(live), seed, abandoned)
        self.limit_seconds = limit_seconds
        self.final: tuple[list[Item], list[Item]] = ([], [])
        self.clients = 0

    async def play(self, clients: int, seconds: float, faults: Sequence[Fault]) -> None:
        """Run a race in this event loop.

        faults -- called one after the other: each disturbs the service, and returns when the cause
            of that is over
        """
        self.clients = clients
        async with asyncio.timeout(self.limit_seconds), asyncio.TaskGroup() as group:
            first = Client(self, -1)
            for _ in range(self.offered):
                created = await first.post("create", 0)
                assert created is not None
                self.stock.append(created["id"])
            first.close()
            tasks = [
                group.create_task(Client(self, number).run()) for number in range(self.clients)
            ]
            for fault in faults:
                await self._go_on(seconds)
                await fault()
                if self.gone:  # what waits for the new service has not been sent
                    for task in tasks:
                        task.cancel()
            await self._go_on(seconds)
            self.over = True
            self.going.set()
        if not self.gone:
            self.final = await Client(self, -2).settle()

    async def _go_on(self, seconds: float) -> None:
        before = self.responses
        await asyncio.sleep(seconds)
        while self.responses < before + FLOOR and not self.gone:  # noqa: ASYNC110 - a slow disk
            await asyncio.sleep(0.01)

    @property
    def responses(self) -> int:
        """How many attempts got a response."""
        return len(self.history) - self.unknown

    @property
    def unknown(self) -> int:
        """How many attempts have an unknown outcome."""
        return sum(attempt.response is None for attempt in self.history)

    def wrong_walks(self) -> Iterator[str]:
        """Check that each walk showed each pet that existed when it began once, and none twice."""
        created = [a for a in self.history if a.action == "create" and a.got(201)]
        for sent, shown in self.walks:
            before = {a.response.item["id"] for a in created if a.response and a.ended < sent}
            if missing := before - set(shown):
                yield f"a walk that began at {sent} does not show the pets {missing}"
            if twice := repeated(shown):
                yield f"a walk that began at {sent} shows the pets {twice} twice"


def is_write(attempt: Attempt) -> bool:
    """Return whether an attempt is a write that was acknowledged, or whose outcome is unknown."""
    acknowledged = attempt.response is None or attempt.response.status in {200, 201}
    return attempt.action in {"create", "place", "close"} and acknowledged


def is_lost(attempt: Attempt) -> bool:
    """Return whether a write did not find its pet or order, which had been acknowledged."""
    return attempt.action in {"place", "close"} and attempt.got(404)
