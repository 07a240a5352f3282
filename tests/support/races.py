"""A race: many clients compete for a few pets, and the service may be killed meanwhile.

It knows a service only by its address, so it works with any backend.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.histories import Attempt, Response, by_key, repeated, violations
from tests.support.interface import ORDERS, PETS, Item
from tests.support.responses import walk
from tests.support.services import Live
from tests.support.wire import Connection, Target

STOCK = 8
"""How many pets are on offer: a client that makes one unavailable for good adds another."""

LIMIT_SECONDS = 60
FLOOR = 50
"""How many attempts must have got a response before a kill, so that there was a load."""

PATIENCE = 50
"""How often a request is sent until it gets a response other than 503, not counting kills."""

REPEATED = 20
"""How many of its writes a client repeats when the race is over."""

Restart = Callable[[Live], Live]


class Client:
    """A client: it sends one request after the other, and some writes over two connections."""

    def __init__(self, race: "Race", number: int) -> None:
        self._race = race
        self._number = number
        self._connections = (Connection(race.target), Connection(race.target))
        self._count = 0
        self._created: list[tuple[str, str, int]] = []
        self.random = random.Random(number)  # noqa: S311 - no secret

    async def run(self, turn: "Turn") -> None:
        """Take turns until the race is over, then repeat the last writes that got 201."""
        while not self._race.over:
            await turn(self)
        for action, key, id_ in self._created[-REPEATED:]:
            await self._send(self._connections[0], action, key, id_)
        self.close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def shop(self) -> None:
        """Order a pet, unless another client is first, and close that order and another one."""
        race = self._race
        if not race.stock:  # other clients are just replacing all of them
            await asyncio.sleep(0.01)
            return
        pet_id = self.random.choice(race.stock)
        order = await self.post("place", pet_id)
        if order is None:
            if self.random.random() < 0.1:
                await self._read_pages()
            return
        race.placed.append(order["id"])
        if self.random.random() < 0.05:  # it stays placed
            await self._replace(pet_id)
        else:
            await self._close(order["id"])
        if self.random.random() < 0.5:
            await self._close(self.random.choice(race.placed[-4:]))
        if self.random.random() < 0.1:
            await self._send(self._connections[0], *self._created[-1])

    async def create(self) -> None:
        """Create a pet."""
        await self.post("create", 0)

    async def post(self, action: str, id_: int) -> Item | None:
        """Place or create until there is a response; return the new item, or None for 409."""
        self._count += 1
        key = f"{action}-{self._number}-{self._count}"
        connections = self._connections[: 1 + (self.random.random() < 0.25)]
        responses = await asyncio.gather(
            *(self._send(connection, action, key, id_) for connection in connections)
        )
        for response in responses:
            if response.status == 201:
                self._created.append((action, key, id_))
                return response.item
        return None

    async def _replace(self, pet_id: int) -> None:
        """Replace a pet that will not be available again by a new one."""
        if pet_id in self._race.stock:
            self._race.stock.remove(pet_id)
            created = await self.post("create", 0)
            if created is not None:
                self._race.stock.append(created["id"])

    async def _close(self, order_id: int) -> None:
        status = self.random.choice(("completed", "cancelled", "cancelled"))
        response = await self._send(self._connections[0], "close", "", order_id, status)
        if response.status == 200 and status == "completed":
            await self._replace(response.item["petId"])

    async def _send(
        self, connection: Connection, action: str, key: str, id_: int, value: str = ""
    ) -> Response:
        """Send a request until it gets a response; record each attempt."""
        method, path, body, expected = {
            "create": (
                "POST",
                "/pets",
                {"name": key, "categoryId": 7, "status": "available"},
                (201,),
            ),
            "place": ("POST", "/store/orders", {"petId": id_}, (201, 409)),
            "close": ("PATCH", f"/store/orders/{id_}", {"status": value}, (200, 409)),
        }[action]
        value = key if action == "create" else value
        for _ in range(self._race.patience + self._race.kills):
            sent = time.monotonic()
            response = await connection.exchange(method, path, body, key)
            attempt = Attempt(action, key, id_, value, sent, time.monotonic(), response)
            self._race.history.append(attempt)
            if response is not None:
                if response.status not in expected:
                    self._race.wrong.append(f"{attempt}")
                return response
        raise AssertionError(f"no response after {self._race.patience} attempts: {attempt}")

    async def _read_pages(self) -> None:
        """Read pages; each must be consistent, as of one moment."""
        connection = self._connections[0]
        for path, status in (("/pets", "available"), ("/store/orders", "placed")):
            response = await connection.exchange("GET", f"{path}?limit=100&status={status}")
            if response is None:
                continue
            items: list[Item] = json.loads(response.content)
            if response.status != 200 or any(item["status"] != status for item in items):
                self._race.wrong.append(f"{path}?status={status}: {response}")
            elif twice := repeated(item["petId"] for item in items if "petId" in item):
                self._race.wrong.append(f"a page has two placed orders of the pets {twice}")
            self._race.pages += 1


Turn = Callable[[Client], Coroutine[Any, Any, None]]


class Race:
    """Clients, the pets that they compete for, and the responses that they got.

    stock -- the ids of the pets on offer
    placed -- the ids of the orders that clients have placed
    wrong -- what was wrong with single responses
    pages -- how many pages were read
    patience -- how often a request is sent until it gets a response other than 503
    """

    def __init__(self, live: Live, patience: int = PATIENCE) -> None:
        self.target = Target(live)
        self.patience = patience
        self.over = False
        self.history: list[Attempt] = []
        self.wrong: list[str] = []
        self.stock: list[int] = []
        self.placed: list[int] = []
        self.pages = self.kills = self.clients = 0

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
        async with asyncio.timeout(LIMIT_SECONDS + 20 * self.kills), asyncio.TaskGroup() as group:
            first = Client(self, -1)
            if turn is not Client.create:
                for _ in range(STOCK):
                    created = await first.post("create", 0)
                    assert created is not None
                    self.stock.append(created["id"])
            first.close()
            for number in range(self.clients):
                group.create_task(Client(self, number).run(turn))
            for _ in range(self.kills):
                assert restart is not None
                await self._go_on(seconds)
                self.target.up.clear()
                self.target.live = await asyncio.to_thread(restart, self.target.live)
                self.target.up.set()
            await self._go_on(seconds)
            self.over = True

    async def _go_on(self, seconds: float) -> None:
        before = self.responses
        await asyncio.sleep(seconds)
        while self.responses < before + FLOOR:  # noqa: ASYNC110 - a slow disk
            await asyncio.sleep(0.01)

    @property
    def responses(self) -> int:
        """How many attempts got a response."""
        return len(self.history) - self.unknown

    @property
    def unknown(self) -> int:
        """How many attempts have an unknown outcome."""
        return sum(attempt.response is None for attempt in self.history)

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

    def judge(self, name: str) -> list[str]:
        """Return all that was wrong, and print the figures of the race in a line."""
        live = self.target.live
        pets, orders = walk(live.client, PETS), walk(live.client, ORDERS)
        found = self.wrong + violations(pets, orders, self.history)
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
