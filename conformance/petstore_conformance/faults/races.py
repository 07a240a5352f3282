"""A race: many clients compete for a few pets, and the service may be killed meanwhile.

It knows a service only by its address, so it works with any backend.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from petstore.contract import OrderStatus, PetStatus
from petstore_conformance.faults import histories
from petstore_conformance.faults.histories import Attempt, Item, RecordedResponse
from petstore_conformance.faults.services import ClientConnection, Endpoint, set_event

_PETS, _ORDERS = "/v1/pets", "/v1/store/orders"
PATHS = {"pet": _PETS, "order": _ORDERS, "pets": _PETS, "orders": _ORDERS}
STATUSES = {"pets": ("", *PetStatus), "orders": ("", *OrderStatus)}

REPEATED = 4  # how many of its writes a client repeats when the race is over
COMPLETED = 0.1  # the share of orders that a client completes; it cancels the others
WALKED = 3  # how many pets are on each page of a walk through all of them
NO_RESPONSE: Final = "no response"

Fault = Callable[[], Awaitable[None]]


@dataclass
class Race:
    """The pets and orders that the clients of a race share, and the history that they record.

    seed -- determines what the clients choose
    offered -- how many pets are on offer: a client that makes one unavailable for good adds another
    abandoned -- the share of writes whose response the client does not read
    reconnecting -- the share of its actions before which a client reconnects, perhaps to another
        worker
    clients -- how many compete
    stock -- the ids of the pets on offer
    placed -- the ids of the orders that clients have placed
    failed -- the responses with a status of 500 or more, except 503
    gone_at -- when everything stored was gone: requests need no response after that. What ended
        later is not judged, except that no id may be given out again
    missed_at -- when it must be missed if another store is in its place: that gives its own ids out
    going -- while it is not set, clients begin no more actions
    busy -- how many clients are in an action
    quiet_since -- when the clients had ended, and no fault was left
    final -- the pets and the orders then
    """

    target: Endpoint
    seed: str = ""
    offered: int = 8
    abandoned: float = 0
    reconnecting: float = 0.1
    clients: int = 0
    over: bool = False
    stock: list[int] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    history: list[Attempt] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    gone_at: float = inf
    missed_at: float = 0
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
        return [a if a.ended < self.gone_at else replace(a, response=None) for a in self.history]

    @property
    def responses(self) -> int:
        """How many attempts got a response."""
        return sum(attempt.response is not None for attempt in self.history)


class GoneError(Exception):
    """The store is gone for good, with everything in it."""


class Client:
    """A client: it sends one request after the other, and some writes over two connections."""

    def __init__(self, race: Race, number: int) -> None:
        self._race = race
        self._number = number
        self._connections = (ClientConnection(race.target), ClientConnection(race.target))
        self._count = 0
        self._abandoned = race.abandoned
        self._created: list[tuple[str, str, int]] = []
        self.random = random.Random(f"{race.seed} {number}")

    async def run(self) -> None:
        """Act until the race is over, then repeat the last writes that got 201."""
        with closing(self), suppress(GoneError):
            while not self._race.over:
                await self._race.going.wait()
                if self.random.random() < self._race.reconnecting:
                    self.close()
                self._race.busy += 1
                try:
                    await self.act()
                finally:
                    self._race.busy -= 1
            for created in self._created[-REPEATED:]:
                await self.send(*created)

    def close(self) -> None:
        """Close the connections; they are opened again when they are needed."""
        for connection in self._connections:
            connection.close()

    async def act(self) -> None:
        """Do one thing, chosen at random, to a pet or an order that others may be using."""
        race, choice = self._race, self.random.random()
        pet_id = self.random.choice(race.stock) if race.stock else 0
        if choice < 0.05 or not pet_id:
            if created := await self.post("create", 0):
                race.stock = [*race.stock[-race.offered :], created["id"]]
        elif choice < 0.4 or not race.placed:
            order = await self.post("place", pet_id)
            race.placed += [order["id"]] if order else []
        elif choice < 0.65:
            await self._close(self.random.choice(race.placed[-4:]))
        elif choice < 0.7 and self._created:
            await self.send(*self.random.choice(self._created[-5:]))
        elif choice < 0.8:
            await self._exchange("pet", "", pet_id + (self.random.random() < 0.2))
        elif choice < 0.85:
            await self._exchange("order", "", self.random.choice(race.placed[-4:]))
        elif choice < 0.97:
            kind = self.random.choice(("pets", "orders"))
            status, limit = self.random.choice(STATUSES[kind]), self.random.choice((4, 100))
            await self._exchange(kind, "", 0, status, limit=limit)
        else:
            await self._all("pets", limit=WALKED)

    async def write_last(self) -> None:
        """Create a pet, sometimes order it, and sometimes cancel that order.

        So the last request of all is a write that had an effect, if the other clients pause.
        """
        self._abandoned = 0
        key, steps = f"last-{self._number}", self.random.randrange(3)
        created = await self.send("create", key, 0)
        if steps and created.status == 201:
            placed = await self.send("place", key, created.item["id"])
            if steps == 2 and placed.status == 201:
                await self.send("close", "", placed.item["id"], "cancelled")
        self.close()

    async def settle(self) -> tuple[list[Item], list[Item]]:
        """Repeat what has no certain outcome, then read all pets and orders of the race."""
        self._race.quiet_since = time.monotonic()
        for _ in range(3):
            for attempt in histories.uncertain(self._race.history):
                await self.send(attempt.action, attempt.key, attempt.id_)
            pets, orders = [await self._all(kind) for kind in ("pets", "orders")]
            if not any(histories.unreturned(pets, orders, self._race.history)):
                break
        self.close()
        return pets, orders

    async def _all(self, kind: str, limit: int = 100) -> list[Item]:
        """Read all pages, each until there is a response."""
        found: list[Item] = []
        while True:
            after = found[-1]["id"] if found else 0
            page = await self.send(kind, "", after, limit=limit)
            found += page.items
            if not page.more:
                return found

    async def post(self, action: str, id_: int) -> Item | None:
        """Place or create until there is a response; return the new item, or None for 409."""
        self._count += 1
        key = f"{action}-{self._number}-{self._count}"
        copies = 2 if self.random.random() < 0.25 else 1
        sending = [self.send(action, key, id_, over=number) for number in range(copies)]
        for response in await asyncio.gather(*sending):
            if response.status == 201:
                self._created.append((action, key, id_))
                return response.item
        return None

    async def _close(self, order_id: int) -> None:
        status = "completed" if self.random.random() < COMPLETED else "cancelled"
        response = await self.send("close", "", order_id, status)
        pet_id = response.item["petId"] if response.status == 200 else 0
        if status == "completed" and pet_id in self._race.stock:  # it is not on offer any more
            self._race.stock.remove(pet_id)
            if created := await self.post("create", 0):
                self._race.stock.append(created["id"])

    async def send(
        self, action: str, key: str, id_: int, value: str = "", **chosen: int
    ) -> RecordedResponse:
        """Send a request as `_exchange` does, again and again until there is a response."""
        while True:
            if response := await self._exchange(action, key, id_, value, **chosen):
                return response

    async def _exchange(  # noqa: PLR0913 - each of the others has a default
        self, action: str, key: str, id_: int, value: str = "", over: int = 0, *, limit: int = 0
    ) -> RecordedResponse | None:
        """Send a request once, and record it; return None if the outcome is unknown."""
        value = key if action == "create" else value
        method, path, body, expected = _request(action, id_, value, limit)
        abandon = method != "GET" and self.random.random() < self._abandoned
        sent, response, connection = time.monotonic(), None, self._connections[over]
        try:
            response = await connection.exchange(method, path, body, key, abandon=abandon)
            if response and response.status >= 500:
                self._race.failed.append(f"{path}: {response.status} {response.content.decode()}")
                response = None
        finally:  # also if it is cancelled: it may have had its effect
            attempt = Attempt(action, key, id_, value, sent, time.monotonic(), response)
            self._race.history.append(attempt)
        assert response is None or response.status in expected, f"{attempt}"
        if self._race.gone and not (response and attempt.writes):
            raise GoneError
        return response


def _request(action: str, id_: int, value: str, limit: int) -> tuple[str, str, object, set[int]]:
    """Return the method, the path and the body of a request, and the statuses that it may get."""
    match action:
        case "create":
            return "POST", _PETS, {"name": value, "categoryId": 7, "status": "available"}, {201}
        case "place":
            return "POST", _ORDERS, {"petId": id_}, {201, 404, 409}
        case "close":
            return "PATCH", f"{_ORDERS}/{id_}", {"status": value}, {200, 404, 409}
        case "pet" | "order":
            return "GET", f"{PATHS[action]}/{id_}", None, {200, 404}
    query = f"?limit={limit}&cursor={action[0]}{id_:014x}"  # as the service makes them
    return "GET", PATHS[action] + query + (f"&status={value}" if value else ""), None, {200}


async def play(race: Race, clients: int, seconds: float, faults: Sequence[Fault]) -> None:
    """Run a race in this event loop; the caller limits its time.

    faults -- called one after the other: each disturbs the service, and returns when the cause
        of that is over
    """
    race.clients = clients
    async with asyncio.TaskGroup() as group:
        first = Client(race, -1)
        for _ in range(race.offered):
            created = await first.post("create", 0)
            assert created is not None
            race.stock.append(created["id"])
        first.close()
        tasks = [group.create_task(Client(race, number).run()) for number in range(clients)]
        for fault in faults:
            await _go_on(race, seconds)
            await fault()
            if race.gone:  # what waits for the new service has not been sent
                for task in tasks:
                    task.cancel()
        await _go_on(race, seconds)
        race.over = True
        race.going.set()
    if not race.gone:
        race.final = await Client(race, -2).settle()


async def _go_on(race: Race, seconds: float) -> None:
    """Let clients act for so long, and until at least 150 attempts have got a response."""
    enough = race.responses + 150
    await asyncio.sleep(seconds)
    while race.responses < enough and not race.gone:  # noqa: ASYNC110 - a slow disk
        await asyncio.sleep(0.01)


async def served(race: Race, limit_seconds: float, *, writing: bool) -> set[str]:
    """Send a read and a check of readiness over new connections; with `writing`, a write before.

    There are eight connections, so that each worker gets some.

    Returns what got another response than 503, and `NO_RESPONSE` if something got none.
    """
    found = set[str]()

    async def ask() -> None:
        target = Endpoint(race.target.live, limit_seconds)
        connection = ClientConnection(target)
        responses = {}
        if writing:
            key, sent = f"gone-{secrets.token_hex(8)}", time.monotonic()
            method, path, pet, _ = _request("create", 0, key, 0)
            responses["a write"] = response = await connection.exchange(method, path, pet, key)
            race.history.append(Attempt("create", key, 0, key, sent, time.monotonic(), response))
        responses["a read"] = await connection.exchange("GET", _PETS)
        responses["/readyz"] = await connection.exchange("GET", "/readyz")
        connection.close()
        got = {f"{what}: {each.status}": each.status for what, each in responses.items() if each}
        race.failed += [text for text, status in got.items() if status >= 500]
        found.update(got, {NO_RESPONSE} if target.lost else ())

    await asyncio.gather(*(ask() for _ in range(8)))
    return found
