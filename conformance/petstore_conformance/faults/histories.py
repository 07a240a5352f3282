"""Histories of requests by many clients, and checks of the final store against them.

Each check yields a sentence for each violation; a correct store has none. All times are of one
clock. An attempt without a response has an unknown outcome; its client repeats it until there is
one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from petstore.contract import PET_STATUS_BY_ORDER, OrderStatus

Item = dict[str, Any]  # a pet or an order, as JSON has it
LIVE = ("placed", "completed")


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """The parts of a response that the checks use.

    more -- whether there is a next page
    """

    status: int
    content: bytes = b""
    location: str = ""
    replayed: bool = False
    more: bool = False

    @property
    def item(self) -> Item:
        """The pet, the order or the error in the body."""
        found: Item = json.loads(self.content)
        return found

    @property
    def items(self) -> list[Item]:
        """The pets or orders in the body, if the request succeeded."""
        if self.status not in {200, 201}:
            return []
        found: Any = json.loads(self.content)
        return found if isinstance(found, list) else [found]

    def __str__(self) -> str:
        replayed = ", replayed" if self.replayed else ""
        return f"{self.status}{replayed} {self.content[:160].decode(errors='replace')}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that was sent once.

    action -- create (a pet), place (an order), close (an order); pet, order (read it); pets, orders
        (read a page)
    key -- its Idempotency-Key; only create and place have one
    id_ -- of the pet to order, of the order to close, of the item to read, or the one after which
        the page begins; 0 for a new pet
    value -- the name of the new pet, the status that the order is to get, or the filter of the page
    response -- None if the outcome is unknown: the connection broke, or the status was 503
    """

    action: str
    key: str
    id_: int
    value: str
    sent: float
    ended: float
    response: RecordedResponse | None

    def got(self, status: int) -> bool:
        """Return whether there was a response, with this status."""
        return self.response is not None and self.response.status == status

    @property
    def writes(self) -> bool:
        """Whether it is a write, which may have changed something."""
        return self.action in {"create", "place", "close"}

    @property
    def items(self) -> list[Item]:
        """The pets or orders in the response."""
        return self.response.items if self.response else []

    @property
    def effect(self) -> tuple[str, int] | None:
        """What the response acknowledges: ("create", PET), ("place", ORDER) or (STATUS, ORDER)."""
        if self.response is None or not (self.got(201) or (self.got(200) and self.writes)):
            return None
        return self.value if self.action == "close" else self.action, self.response.item["id"]

    @property
    def may_have_written(self) -> bool:
        """Whether it is a write that was acknowledged, or whose outcome is unknown."""
        return self.writes and (self.response is None or self.effect is not None)

    def __str__(self) -> str:
        sent = {
            "create": f"create pet {self.value}",
            "place": f"order pet {self.id_} with the key {self.key}",
            "close": f"make order {self.id_} {self.value}",
            "pet": f"read pet {self.id_}",
            "order": f"read order {self.id_}",
        }.get(self.action, f"list {self.value} {self.action} after {self.id_}")
        return f"{sent}: {self.response or 'unknown outcome'}"


def sold_twice(orders: list[Item]) -> Iterator[str]:
    """Check that a pet is in at most one order that is placed or completed."""
    counts = Counter(order["petId"] for order in orders if order["status"] in LIVE)
    for pet_id, count in counts.items():
        if count > 1:
            yield f"pet {pet_id} is in two orders that are placed or completed"


def wrong_statuses(pets: list[Item], orders: list[Item]) -> Iterator[str]:
    """Check that the status of each pet follows from its orders: at first, all were available."""
    live = {order["petId"]: order["status"] for order in orders if order["status"] in LIVE}
    for pet in pets:
        expected = PET_STATUS_BY_ORDER[OrderStatus(live.get(pet["id"], "cancelled"))]
        if pet["status"] != expected:
            yield f"pet {pet['id']} is {pet['status']}; after its orders it must be {expected}"
    for pet_id in {order["petId"] for order in orders} - {pet["id"] for pet in pets}:
        yield f"pet {pet_id} is in an order, but it is not stored"


def wrong_items(history: list[Attempt]) -> Iterator[str]:
    """Check that writes return what was sent, and that pages are in the order of the ids."""
    for attempt in history:
        sent: dict[str, Item] = {
            "create": {"name": attempt.value, "status": "available"},
            "place": {"petId": attempt.id_, "status": "placed"},
            "close": {"id": attempt.id_, "status": attempt.value},
        }
        if any(item | sent.get(attempt.action, {}) != item for item in attempt.items):
            yield f"{attempt} is not what was sent"
        after = attempt.id_ if attempt.action in {"pets", "orders"} else 0
        ids = [after, *(item["id"] for item in attempt.items)]
        if ids != sorted(set(ids)):
            yield f"{attempt} is not in the order of the ids, or has an item twice"


def changed(history: list[Attempt]) -> Iterator[str]:
    """Check that an item stays as it is, except for its status, which the search judges."""
    shown: dict[tuple[bool, int], Item] = {}
    for attempt in history:
        for item in attempt.items:
            same = item | {"status": ""}
            before = shown.setdefault(("petId" in item, item["id"]), same)
            if before != same:
                yield f"{attempt}, but before it was {before}"


def wrong_keys(history: list[Attempt]) -> Iterator[str]:
    """Check that a key has one effect and one response."""
    for (action, key), attempts in _by_key(history).items():
        created = [a.response for a in attempts if a.response and a.got(201)]
        if len({(response.content, response.location) for response in created}) > 1:
            yield f"{action} {key}: different responses: {'; '.join(map(str, created))}"
        for response in created:
            if not response.location.endswith(f"/{response.item['id']}"):
                yield f"{action} {key}: Location {response.location}"
        fresh = sum(not response.replayed for response in created)
        if fresh > 1 or (created and not fresh and all(attempt.response for attempt in attempts)):
            yield f"{action} {key}: executed {fresh} times, according to the responses"
        since = min((attempt.ended for attempt in attempts if attempt.got(201)), default=inf)
        for attempt in attempts:
            if attempt.response and not attempt.got(201) and attempt.sent > since:
                yield f"{action} {key}: {attempt} after a 201"


def given_twice(history: list[Attempt]) -> Iterator[str]:
    """Check that no id was given to two keys, even if the item that had it is lost."""
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    for attempt in history:
        if attempt.key and attempt.effect:
            owners[attempt.effect].add(attempt.key)
    for (action, id_), keys in owners.items():
        if len(keys) > 1:
            yield f"{action}: {id_} was returned for the keys {sorted(keys)}"


def unreturned(pets: list[Item], orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that each item is the effect of a key, whose response says so."""
    for action, id_ in _items(pets, orders) - {attempt.effect for attempt in history}:
        yield f"{action}: {id_} is stored, but was not returned for any key"


def lost(pets: list[Item], orders: list[Item], history: list[Attempt]) -> list[Attempt]:
    """Return the attempts whose effect was acknowledged and is gone."""
    kept = _items(pets, orders) | {(order["status"], order["id"]) for order in orders}
    return [attempt for attempt in history if attempt.effect and attempt.effect not in kept]


def _items(pets: list[Item], orders: list[Item]) -> set[tuple[str, int]]:
    """Return the effects that items are: the action that makes each, and its id."""
    return {("create", pet["id"]) for pet in pets} | {("place", order["id"]) for order in orders}


def uncertain(history: list[Attempt]) -> list[Attempt]:
    """Return an attempt of each key that got no 201, but may have had its effect."""
    return [
        attempts[0]
        for attempts in _by_key(history).values()
        if any(a.response is None for a in attempts) and not any(a.got(201) for a in attempts)
    ]


def _by_key(history: list[Attempt]) -> dict[tuple[str, str], list[Attempt]]:
    found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in history:
        if attempt.key:
            found[attempt.action, attempt.key].append(attempt)
    return found
