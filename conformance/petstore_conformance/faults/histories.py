"""Histories of requests by many clients, and checks of the final store against them.

Each check yields a sentence for each violation; a correct store has none. All times are of one
clock. An attempt without a response has an unknown outcome; its client repeats it until there is
one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

Item = dict[str, Any]
"""A pet or an order, as JSON has it."""

LIVE = ("placed", "completed")
HELD_STATUS = {"placed": "pending", "completed": "sold"}


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
        """The pet or the order in the body."""
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
        """Return it in one line."""
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
    def created(self) -> Item | None:
        """The pet or the order that the response says its key has created."""
        return self.response.item if self.response and self.got(201) else None

    def line(self, begin: float) -> str:
        """Return it in one line, its times in seconds after the beginning."""
        return f"{self.sent - begin:8.3f} to {self.ended - begin:.3f} s: {self}"

    def __str__(self) -> str:
        """Return the request and the response in one line."""
        sent = {
            "create": f"create pet {self.value}",
            "place": f"order pet {self.id_} with the key {self.key}",
            "close": f"make order {self.id_} {self.value}",
            "pet": f"read pet {self.id_}",
            "order": f"read order {self.id_}",
        }.get(self.action, f"list {self.value} {self.action} after {self.id_}")
        return f"{sent}: {self.response or 'unknown outcome'}"


def listed_twice(pets: list[Item], orders: list[Item]) -> Iterator[str]:
    """Check that ids are unique."""
    for kind, items in (("pet", pets), ("order", orders)):
        for id_ in repeated(item["id"] for item in items):
            yield f"{kind} {id_} is listed twice"


def sold_twice(orders: list[Item]) -> Iterator[str]:
    """Check that a pet is in at most one order that is placed or completed."""
    for pet_id in repeated(order["petId"] for order in orders if order["status"] in LIVE):
        yield f"pet {pet_id} is in two orders that are placed or completed"


def wrong_statuses(pets: list[Item], orders: list[Item]) -> Iterator[str]:
    """Check that the status of each pet follows from its orders: at first, all were available."""
    live = {order["petId"]: order["status"] for order in orders if order["status"] in LIVE}
    for pet in pets:
        expected = HELD_STATUS.get(live.get(pet["id"], ""), "available")
        if pet["status"] != expected:
            yield f"pet {pet['id']} is {pet['status']}; after its orders it must be {expected}"
    for pet_id in {order["petId"] for order in orders} - {pet["id"] for pet in pets}:
        yield f"pet {pet_id} is in an order, but it is not stored"


def broken_promises(pets: list[Item], orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that every response is still true, and that only requests closed orders."""
    now = _by_action(pets, orders)
    requested = {(attempt.id_, attempt.value) for attempt in history if attempt.action == "close"}
    for order in orders:
        if order["status"] != "placed" and (order["id"], order["status"]) not in requested:
            yield f"{order}, but no request gave it this status"
    for attempt in history:
        if attempt.action == "close" and attempt.response:
            if not _close_is_true(attempt, attempt.response, now.get(("place", attempt.id_), {})):
                yield f"{attempt}, but now {now.get(('place', attempt.id_), 'it is lost')}"
        elif created := attempt.created:
            item = now.get((attempt.action, created["id"]), {})
            if created | {"status": item.get("status")} != item:  # the status may have changed
                yield f"{attempt}, but now {item or 'it is lost'}"
            if not _is_as_sent(attempt, created):
                yield f"{attempt} is not what was sent"


def _close_is_true(attempt: Attempt, response: RecordedResponse, order: Item) -> bool:
    if attempt.got(200):
        return response.item == order and order["status"] == attempt.value
    return order.get("status") in {"completed", "cancelled"} - {attempt.value}


def _is_as_sent(attempt: Attempt, created: Item) -> bool:
    if attempt.action == "create":
        return bool(created["name"] == attempt.value and created["status"] == "available")
    return bool(created["petId"] == attempt.id_ and created["status"] == "placed")


def wrong_keys(pets: list[Item], orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that a key has one effect and one response, and that each item has its key."""
    for (action, key), attempts in by_key(history).items():
        for text in wrong_responses(attempts):
            yield f"{action} {key}: {text}"
    returned = {(a.action, item["id"]) for a in history if (item := a.created)}
    for action, id_ in _by_action(pets, orders).keys() - returned:
        yield f"{action}: {id_} is stored, but was not returned for any key"
    for name in repeated(pet["name"] for pet in pets):
        yield f"create {name}: it is stored twice"


def given_twice(history: list[Attempt]) -> Iterator[str]:
    """Check that no id was given to two keys, even if the item that had it is lost."""
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    for attempt in history:
        if item := attempt.created:
            owners[attempt.action, item["id"]].add(attempt.key)
    for (action, id_), keys in owners.items():
        if len(keys) > 1:
            yield f"{action}: {id_} was returned for the keys {sorted(keys)}"


def lost(pets: list[Item], orders: list[Item], history: list[Attempt]) -> list[Attempt]:
    """Return the attempts whose pet or order was acknowledged and is gone."""
    stored = _by_action(pets, orders)
    return [
        attempt
        for attempt in history
        if (item := attempt.created) and (attempt.action, item["id"]) not in stored
    ]


def _by_action(pets: list[Item], orders: list[Item]) -> dict[tuple[str, int], Item]:
    """Return what is stored, by the action that makes it and its id."""
    made = {("create", pet["id"]): pet for pet in pets}
    return made | {("place", order["id"]): order for order in orders}


def wrong_responses(attempts: list[Attempt]) -> Iterator[str]:
    """Check the attempts with one key."""
    created = [a.response for a in attempts if a.response and a.got(201)]
    unknown = sum(attempt.response is None for attempt in attempts)
    if unknown == len(attempts):
        yield "no response"
    if len({(response.content, response.location) for response in created}) > 1:
        yield f"different responses: {'; '.join(map(str, created))}"
    for response in created:
        if not response.location.endswith(f"/{response.item['id']}"):
            yield f"Location {response.location}"
    fresh = sum(not response.replayed for response in created)
    if fresh > 1 or (created and not fresh and not unknown):
        yield f"executed {fresh} times, according to the responses"
    since = min((attempt.ended for attempt in attempts if attempt.got(201)), default=inf)
    for attempt in attempts:
        if attempt.response and not attempt.got(201) and attempt.sent > since:
            yield f"{attempt} after a 201"


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def by_key(history: list[Attempt]) -> dict[tuple[str, str], list[Attempt]]:
    """Return the attempts of each action and key."""
    found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in history:
        if attempt.key:
            found[attempt.action, attempt.key].append(attempt)
    return found
