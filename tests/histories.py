"""What clients of the Store group saw, and the checks that say whether a store may be so.

Each check returns what is wrong, in sentences: none is what a right store gives. Times are those
of one clock. An attempt without an answer has an unknown outcome; its client sent it again until
there was one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

Item = dict[str, Any]

LIVE = ("placed", "completed")
PET_STATUS = {"placed": "pending", "completed": "sold"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, as far as it matters here."""

    status: int
    content: bytes = b""
    location: str = ""
    replayed: bool = False

    @property
    def item(self) -> Item:
        """The animal or the order in the body."""
        found: Item = json.loads(self.content)
        return found


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that was sent once.

    action -- create (an animal), place (an order), close (an order)
    key -- its Idempotency-Key; a close has none
    about -- the id of the animal that is ordered, of the order that is closed
    to -- the name of a new animal, the status that an order is to get
    answer -- None: the connection broke, or the answer was 503; nobody knows what happened
    """

    action: str
    key: str
    about: int
    to: str
    sent: float
    ended: float
    answer: Answer | None

    def said(self, status: int) -> bool:
        """Return whether the answer had this status."""
        return self.answer is not None and self.answer.status == status


def violations(pets: list[Item], orders: list[Item], history: list[Attempt]) -> list[str]:
    """Return all that is wrong with a store as it is in the end, after this history."""
    return [
        *listed_once(pets, orders),
        *sold_twice(orders),
        *disagreements(pets, orders),
        *broken_promises(pets, orders, history),
        *wrong_keys(pets, orders, history),
        *overlaps(orders, history),
        *groundless_refusals(orders, history),
    ]


def listed_once(pets: list[Item], orders: list[Item]) -> Iterator[str]:
    """Ids are unique."""
    for kind, items in (("animal", pets), ("order", orders)):
        for number in repeated(item["id"] for item in items):
            yield f"{kind} {number} is listed twice"


def sold_twice(orders: list[Item]) -> Iterator[str]:
    """Check that an animal is in at most one order that is placed or completed."""
    for pet in repeated(order["petId"] for order in orders if order["status"] in LIVE):
        yield f"animal {pet} is in two orders that are placed or completed"


def disagreements(pets: list[Item], orders: list[Item]) -> Iterator[str]:
    """Check that the status of each animal is what its orders say. All began as available."""
    live = {order["petId"]: order["status"] for order in orders if order["status"] in LIVE}
    for pet in pets:
        expected = PET_STATUS.get(live.get(pet["id"], ""), "available")
        if pet["status"] != expected:
            yield f"animal {pet['id']} is {pet['status']}, its orders say {expected}"
    for number in {order["petId"] for order in orders} - {pet["id"] for pet in pets}:
        yield f"animal {number} is ordered, but it does not exist"


def broken_promises(pets: list[Item], orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that every acknowledged answer is still true, and that nobody else closed an order."""
    now = {("create", pet["id"]): pet for pet in pets}
    now |= {("place", order["id"]): order for order in orders}
    asked = {(attempt.about, attempt.to) for attempt in history if attempt.action == "close"}
    for order in orders:
        if order["status"] != "placed" and (order["id"], order["status"]) not in asked:
            yield f"{order}, but nobody asked for that"
    for attempt in history:
        if attempt.action == "close" and attempt.answer:
            if not _close_is_true(attempt, attempt.answer, now.get(("place", attempt.about), {})):
                yield f"{attempt}, but now {now.get(('place', attempt.about), 'it is lost')}"
        elif attempt.answer and attempt.said(201):
            told = attempt.answer.item
            item = now.get((attempt.action, told["id"]), {})
            if told | {"status": item.get("status")} != item:  # the status may have changed
                yield f"{attempt}, but now {item or 'it is lost'}"
            if not _is_as_sent(attempt, told):
                yield f"{attempt} is not what was sent"


def _close_is_true(attempt: Attempt, answer: Answer, order: Item) -> bool:
    if attempt.said(200):
        return answer.item == order and order["status"] == attempt.to
    return order.get("status") in {"completed", "cancelled"} - {attempt.to}


def _is_as_sent(attempt: Attempt, told: Item) -> bool:
    if attempt.action == "create":
        return bool(told["name"] == attempt.to and told["status"] == "available")
    return bool(told["petId"] == attempt.about and told["status"] == "placed")


def wrong_keys(pets: list[Item], orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that a key has one effect and one answer, and that nothing has an effect without."""
    made: dict[str, list[int]] = {"create": [], "place": []}
    for (action, key), attempts in by_key(history).items():
        created = [a.answer for a in attempts if a.answer and a.said(201)]
        made[action] += {answer.item["id"] for answer in created}
        for text in wrong_answers(attempts, created):
            yield f"{action} {key}: {text}"
    for action, items in (("create", pets), ("place", orders)):
        for number in repeated(made[action]):
            yield f"{action}: two keys were answered with {number}"
        for number in {item["id"] for item in items} - set(made[action]):
            yield f"{action}: no key was answered with {number}, yet it is there"
    for name in repeated(pet["name"] for pet in pets):
        yield f"create {name}: there are two of it"


def wrong_answers(attempts: list[Attempt], created: list[Answer]) -> Iterator[str]:
    """Check the attempts with one key, and the answers 201 among theirs."""
    unknown = sum(attempt.answer is None for attempt in attempts)
    if unknown == len(attempts):
        yield "never answered"
    if len({(answer.content, answer.location) for answer in created}) > 1:
        yield f"different answers {created}"
    for answer in created:
        if not answer.location.endswith(f"/{answer.item['id']}"):
            yield f"Location {answer.location}"
    fresh = sum(not answer.replayed for answer in created)
    if fresh > 1 or (created and not fresh and not unknown):
        yield f"carried out {fresh} times, by what the answers say"
    since = min((attempt.ended for attempt in attempts if attempt.said(201)), default=inf)
    for attempt in attempts:
        if attempt.answer and not attempt.said(201) and attempt.sent > since:
            yield f"{attempt}, although it had been answered 201"


def overlaps(orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that no animal was ever held by two orders at one time.

    That finds what the end does not show, for one of the two may have been cancelled.
    """
    held: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    cancels = closes(history, "cancelled")
    answered = {number: attempts for number, (_, attempts) in placings(history).items()}
    for order in orders:
        since = min((a.ended for a in answered.get(order["id"], [])), default=inf)
        until = inf
        if order["status"] == "cancelled":  # released after that at the soonest
            until = min((a.sent for a in cancels[order["id"]]), default=0)
        if since < until:
            held[order["petId"]].append((since, until, order["id"]))
    for pet, spans in held.items():
        spans.sort()
        for (_, until, one), (since, _, other) in pairwise(spans):
            if since < until:
                yield f"animal {pet} was held by the orders {one} and {other} at one time"


def groundless_refusals(orders: list[Item], history: list[Attempt]) -> Iterator[str]:
    """Check that an order was refused only while another one could have held the animal."""
    spans: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
    keys = by_key(history)
    by_id = {order["id"]: order for order in orders}
    closed = closes(history, *LIVE, "cancelled")
    for number, (key, _) in placings(history).items():
        order = by_id.get(number)
        if order is None:
            continue
        since = min(attempt.sent for attempt in keys["place", key])
        until = inf
        if order["status"] == "cancelled":  # any answer, 409 too, says that it was by then
            until = min((a.ended for a in closed[number] if a.answer), default=inf)
        spans[order["petId"]].append((since, until, key))
    for refused in history:
        if refused.action == "place" and refused.said(409):
            others = (span for span in spans[refused.about] if span[2] != refused.key)
            if not any(since < refused.ended and refused.sent < end for since, end, _ in others):
                yield f"{refused} although nothing held the animal"


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that there are twice or more."""
    return [value for value, count in Counter(values).items() if count > 1]


def by_key(history: list[Attempt]) -> dict[tuple[str, str], list[Attempt]]:
    """Return the attempts of each action and key."""
    found: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in history:
        if attempt.key:
            found[attempt.action, attempt.key].append(attempt)
    return found


def closes(history: list[Attempt], *statuses: str) -> dict[int, list[Attempt]]:
    """Return the attempts to give each order one of these statuses."""
    found: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in history:
        if attempt.action == "close" and attempt.to in statuses:
            found[attempt.about].append(attempt)
    return found


def placings(history: list[Attempt]) -> dict[int, tuple[str, list[Attempt]]]:
    """Return for each order the key that it was placed with and the attempts answered 201."""
    found: dict[int, tuple[str, list[Attempt]]] = {}
    for attempt in history:
        if attempt.action == "place" and attempt.said(201) and attempt.answer:
            found.setdefault(attempt.answer.item["id"], (attempt.key, []))[1].append(attempt)
    return found
