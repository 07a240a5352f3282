"""A race: many clients want the same few animals, and the service may be killed meanwhile.

It knows a service by its address alone, so it does not matter what that runs on.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.histories import Answer, Attempt, Item, by_key, repeated, violations
from tests.live import Live
from tests.test_paging import next_link
from tests.wire import Connection, Target

ANIMALS = 8
"""How many animals are on offer: whoever takes one away brings another."""

LIMIT_SECONDS = 60
FLOOR = 50
"""How many attempts must have been answered before a kill, so that there was a load."""

PATIENCE = 50
"""How often a request is sent that is not answered, or with 503, beside those that meet a kill."""

AGAIN = 20
"""How many of its writes a client repeats in the end."""

Restart = Callable[[Live], Live]


class Client:
    """One client: it does one thing after the other, and some writes over two connections."""

    def __init__(self, race: "Race", number: int) -> None:
        self._race = race
        self._number = number
        self._connections = (Connection(race.target), Connection(race.target))
        self._count = 0
        self._done: list[tuple[str, str, int]] = []
        self.random = random.Random(number)  # noqa: S311 - no secret

    async def keep_on(self, turn: "Turn") -> None:
        """Take turns until the race is over, then repeat what was answered 201."""
        while not self._race.over:
            await turn(self)
        for action, key, about in self._done[-AGAIN:]:
            await self._send(self._connections[0], action, key, about)
        self.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def shop(self) -> None:
        """Order an animal, if nobody is quicker, and close that order and another client's."""
        race = self._race
        if not race.stock:  # all have been taken just now
            await asyncio.sleep(0.01)
            return
        pet = self.random.choice(race.stock)
        order = await self.post("place", pet)
        if order is None:
            if self.random.random() < 0.1:
                await self._look()
            return
        race.placed.append(order["id"])
        if self.random.random() < 0.05:  # it stays placed
            await self._take_away(pet)
        else:
            await self._close(order["id"])
        if self.random.random() < 0.5:
            await self._close(self.random.choice(race.placed[-4:]))
        if self.random.random() < 0.1:
            await self._send(self._connections[0], *self._done[-1])

    async def create(self) -> None:
        """Create an animal."""
        await self.post("create", 0)

    async def post(self, action: str, about: int) -> Item | None:
        """Place or create until there is an answer; return what there is then, or None for 409."""
        self._count += 1
        key = f"{action}-{self._number}-{self._count}"
        twins = self._connections[: 1 + (self.random.random() < 0.25)]
        answers = await asyncio.gather(
            *(self._send(connection, action, key, about) for connection in twins)
        )
        for answer in answers:
            if answer.status == 201:
                self._done.append((action, key, about))
                return answer.item
        return None

    async def _take_away(self, pet: int) -> None:
        """Bring an animal for one that is not for sale any more."""
        if pet in self._race.stock:
            self._race.stock.remove(pet)
            created = await self.post("create", 0)
            if created is not None:
                self._race.stock.append(created["id"])

    async def _close(self, order: int) -> None:
        to = self.random.choice(("completed", "cancelled", "cancelled"))
        answer = await self._send(self._connections[0], "close", "", order, to)
        if answer.status == 200 and to == "completed":
            await self._take_away(answer.item["petId"])

    async def _send(
        self, connection: Connection, action: str, key: str, about: int, to: str = ""
    ) -> Answer:
        """Send a request again and again until it is answered."""
        method, path, body, right = {
            "create": (
                "POST",
                "/pets",
                {"name": key, "categoryId": 7, "status": "available"},
                (201,),
            ),
            "place": ("POST", "/store/orders", {"petId": about}, (201, 409)),
            "close": ("PATCH", f"/store/orders/{about}", {"status": to}, (200, 409)),
        }[action]
        to = key if action == "create" else to
        for _ in range(self._race.patience + self._race.kills):
            sent = time.monotonic()
            answer = await connection.exchange(method, path, body, key)
            attempt = Attempt(action, key, about, to, sent, time.monotonic(), answer)
            self._race.history.append(attempt)
            if answer is not None:
                if answer.status not in right:
                    self._race.wrong.append(f"{attempt}")
                return answer
        raise AssertionError(f"{attempt}, and so it was {self._race.patience} times before")

    async def _look(self) -> None:
        """Read pages: what is on them was true at one moment."""
        connection = self._connections[0]
        for path, status in (("/pets", "available"), ("/store/orders", "placed")):
            answer = await connection.exchange("GET", f"{path}?limit=100&status={status}")
            if answer is None:
                continue
            items: list[Item] = json.loads(answer.content)
            if answer.status != 200 or any(item["status"] != status for item in items):
                self._race.wrong.append(f"{path}?status={status}: {answer}")
            elif twice := repeated(item["petId"] for item in items if "petId" in item):
                self._race.wrong.append(f"placed orders, twice for the animals {twice}")
            self._race.looks += 1


Turn = Callable[[Client], Coroutine[Any, Any, None]]


class Race:
    """Clients, what they want, and what they were answered.

    stock -- the animals that are on offer
    placed -- the orders that were placed, as clients learnt of them
    wrong -- what was wrong with single answers
    patience -- how often a request is sent that is not answered, or with 503
    """

    def __init__(self, live: Live, patience: int = PATIENCE) -> None:
        self.target = Target(live)
        self.patience = patience
        self.over = False
        self.history: list[Attempt] = []
        self.wrong: list[str] = []
        self.stock: list[int] = []
        self.placed: list[int] = []
        self.looks = self.kills = self.clients = 0

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

        restart -- kills a service and returns its successor
        seconds -- how long the clients go on between the start, the kills and the end
        """
        self.clients = clients
        self.kills = kills
        asyncio.run(self._run(turn, seconds, restart))

    async def _run(self, turn: Turn, seconds: float, restart: Restart | None) -> None:
        async with asyncio.timeout(LIMIT_SECONDS + 20 * self.kills), asyncio.TaskGroup() as group:
            first = Client(self, -1)
            if turn is not Client.create:
                for _ in range(ANIMALS):
                    created = await first.post("create", 0)
                    assert created is not None
                    self.stock.append(created["id"])
            first.close()
            for number in range(self.clients):
                group.create_task(Client(self, number).keep_on(turn))
            for _ in range(self.kills):
                assert restart is not None
                await self._go_on(seconds)
                self.target.up.clear()
                self.target.live = await asyncio.to_thread(restart, self.target.live)
                self.target.up.set()
            await self._go_on(seconds)
            self.over = True

    async def _go_on(self, seconds: float) -> None:
        before = self.answered
        await asyncio.sleep(seconds)
        while self.answered < before + FLOOR:  # noqa: ASYNC110 - a slow disk
            await asyncio.sleep(0.01)

    @property
    def answered(self) -> int:
        """How many attempts have been answered."""
        return len(self.history) - self.broken

    @property
    def broken(self) -> int:
        """How many attempts have no known outcome."""
        return sum(attempt.answer is None for attempt in self.history)

    @property
    def survived(self) -> int:
        """How many keys had their effect in an attempt whose answer was lost."""
        return sum(
            any(attempt.said(201) for attempt in attempts)
            and all(a.answer.replayed for a in attempts if a.answer and a.said(201))
            for attempts in by_key(self.history).values()
        )

    def count(self, action: str, status: int, *, replayed: bool = False) -> int:
        """How many attempts of an action were answered with this status."""
        return sum(
            attempt.action == action and attempt.said(status) and answer.replayed == replayed
            for attempt in self.history
            if (answer := attempt.answer)
        )

    def judge(self, name: str) -> list[str]:
        """Return what is wrong in the end, and print the figures of the race in a line."""
        live = self.target.live
        pets, orders = walk(live, "/v1/pets"), walk(live, "/v1/store/orders")
        found = self.wrong + violations(pets, orders, self.history)
        statuses = Counter(order["status"] for order in orders)
        replays = self.count("place", 201, replayed=True) + self.count("create", 201, replayed=True)
        sys.stdout.write(
            f"{name}: {self.clients} clients, {self.kills} kills, {len(pets)} animals,"
            f" {len(orders)} orders ({', '.join(f'{n} {s}' for s, n in statuses.items())}),"
            f" {self.answered} answers, {self.count('place', 409)} + {self.count('close', 409)}"
            f" refused, {replays} replayed, {self.broken} unknown"
            f" ({self.target.unavailable} of them 503;"
            f" {self.survived} had created something), {len(found)} violations\n"
        )
        return found


def walk(live: Live, path: str) -> list[Item]:
    """Return all animals or orders, from page to page."""
    items: list[Item] = []
    url: str | None = f"{path}?limit=100"
    while url is not None:
        answer = live.client.get(url)
        assert answer.status_code == 200
        items += answer.json()
        url = next_link(answer)
    return items
