"""Whether a history is that of one store in which each request took effect at one moment.

The moment lies between the request and its response. The search is that of Wing and Gong; it
remembers the states that it has tried. To search a whole history would take too long: it is
searched pet by pet, each with its orders.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple

from petstore.contract import MAX_ID, PET_STATUS_BY_ORDER, OrderStatus
from petstore_conformance.faults.histories import Attempt, uncertain

BUDGET = 200_000  # how many states are tried before a search gives up


class State(NamedTuple):
    """A pet and its orders at one moment.

    status -- empty while there is no such pet
    orders -- the id and the status of each order
    """

    status: str = ""
    orders: frozenset[tuple[int, str]] = frozenset()


Step = Callable[[State], State | None]
"""Returns the state after a request: the same object if nothing changed, or None if the request
cannot have got its response in this state."""

Ids = dict[tuple[str, str], int]  # an action and a key -> the id of the pet or order they made


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A request: what it did to one pet, or has shown of it, and when.

    A page is several of them, because it may show each item as it was at another moment.

    ended -- infinite if the outcome is unknown: it may take effect at any time, or never
    """

    sent: float
    ended: float
    step: Step
    attempt: Attempt


def operations_of(history: list[Attempt]) -> dict[int, list[RecordedCall]]:
    """Return the operations of a history on each pet, as they were sent."""
    seen = [item for attempt in history for item in attempt.items]
    pet_of = {item["id"]: item["petId"] for item in seen if "petId" in item}
    ids = _ids(history, {item["name"]: item["id"] for item in seen if "name" in item}, pet_of)
    pets = {id_ for (action, _), id_ in ids.items() if action == "create"}
    pet_of |= {id_: a.id_ for a in history if (id_ := ids.get(("place", a.key)))}
    # Others may have been there before the history.
    pet_of = {order: pet for order, pet in pet_of.items() if pet in pets}
    operations = defaultdict[int, list[RecordedCall]](list)
    unknown: set[tuple[str, str, int, str]] = set()
    for attempt in sorted(history, key=lambda attempt: attempt.sent):
        if attempt.response is None:  # a repetition explains no more than the first of its kind
            write = (attempt.action, attempt.key, attempt.id_, attempt.value)
            if write in unknown:
                continue
            unknown.add(write)
        ended = attempt.ended if attempt.response else inf
        steps = _write(attempt, ids, pet_of) if attempt.writes else _read(attempt, pet_of, pets)
        for pet, step in steps:
            operations[pet].append(RecordedCall(attempt.sent, ended, step, attempt))
    return operations


def _write(attempt: Attempt, ids: Ids, pet_of: dict[int, int]) -> Iterator[tuple[int, Step]]:
    """Yield what a write did to its pet; without an id and a response it did nothing."""
    id_ = ids.get((attempt.action, attempt.key), 0)
    match attempt.action:
        case "create" if id_:
            yield id_, partial(_create, attempt)
        case "place" if id_ or attempt.response:
            yield attempt.id_, partial(_place, attempt, id_)
        case "close" if attempt.id_ in pet_of:
            yield pet_of[attempt.id_], partial(_close, attempt)


def _read(attempt: Attempt, pet_of: dict[int, int], pets: set[int]) -> Iterator[tuple[int, Step]]:
    """Yield what a read has shown of each pet: its status, or the status of an order of it.

    A page has only what is after `id_` and, if there is a `value`, has that status.
    """
    if attempt.response is None:
        return
    shown = {item["id"]: item["status"] for item in attempt.response.items}
    last = max(shown) if attempt.response.more else inf
    is_page, of_orders = attempt.action in {"pets", "orders"}, attempt.action.startswith("order")
    for id_, pet in pet_of.items() if of_orders else ((pet, pet) for pet in pets):
        if attempt.id_ < id_ <= last if is_page else id_ == attempt.id_:
            order = id_ if of_orders else 0
            yield pet, partial(_show, order, shown.get(id_, ""), attempt.value)


def _ids(history: list[Attempt], pets: dict[str, int], orders: dict[int, int]) -> Ids:
    """Return the id that each key had as its effect.

    An item whose response was lost is found in a page: a pet by its name; an order is given to the
    first request for its pet that has no response, for any other one could only explain less. An
    order that no page shows, because the store was gone before, has an id above all others.

    pets -- the ids of the pets in all responses, by their names
    orders -- the pets of the orders in all responses
    """
    ids = {(a.action, a.key): a.effect[1] for a in history if a.key and a.effect}
    waiting: dict[int, list[str]] = defaultdict(list)
    for attempt in uncertain(history):
        if attempt.action == "place":
            waiting[attempt.id_].append(attempt.key)
        elif attempt.key in pets:  # which is its name, too
            ids["create", attempt.key] = pets[attempt.key]
    known = {id_ for (action, _), id_ in ids.items() if action == "place"}
    for order, pet in sorted(orders.items()):
        if order not in known and waiting[pet]:
            ids["place", waiting[pet].pop(0)] = order
    unseen = [key for keys in waiting.values() for key in keys]  # though their pets may have been
    return ids | {("place", key): MAX_ID + 1 + number for number, key in enumerate(unseen)}


def _create(attempt: Attempt, state: State) -> State | None:
    if attempt.response is None or (attempt.got(201) and not attempt.response.replayed):
        created = State("available")
        return created if not state.status else state if attempt.response is None else None
    return state if state.status and attempt.got(201) else None


def _place(attempt: Attempt, order: int, state: State) -> State | None:
    placed = any(id_ == order for id_, _ in state.orders)
    if attempt.got(409):
        return state if state.status not in {"", "available"} and not placed else None
    if attempt.response and (not attempt.got(201) or attempt.response.replayed):
        return state if placed and attempt.got(201) else None
    if not placed and state.status == "available":
        return State("pending", state.orders | {(order, "placed")})
    return None if attempt.response else state


def _close(attempt: Attempt, state: State) -> State | None:
    wanted, open_ = (attempt.id_, attempt.value), (attempt.id_, "placed")
    if attempt.got(409):
        closed = {"completed", "cancelled"} - {attempt.value}
        return state if state.orders & {(attempt.id_, status) for status in closed} else None
    if attempt.response is None or attempt.got(200):
        if wanted in state.orders:
            return state
        if open_ in state.orders:
            pet_status = PET_STATUS_BY_ORDER[OrderStatus(attempt.value)]
            return State(pet_status, state.orders - {open_} | {wanted})
    return None if attempt.response else state


def _show(order: int, shown: str, only: str, state: State) -> State | None:
    """Read the status of a pet, or of an order of it.

    order -- the id of the order; 0 for the pet
    shown -- the status; empty if it was not found, or not on the page
    only -- what the page is filtered by
    """
    status = dict(state.orders).get(order, "") if order else state.status
    left_out = not status or (only and status != only)
    return state if (status == shown if shown else left_out) else None


def search(operations: Sequence[RecordedCall]) -> tuple[bool | None, RecordedCall | None]:
    """Return whether operations on a pet have an order, and where the search got stuck if not.

    None says neither. The search does not remember which operations of unknown outcome have taken
    effect, so none of them may change anything a second time. Those in `operations` do not.
    """
    known = sorted((o for o in operations if o.ended < inf), key=lambda o: o.sent)
    unknown = [operation for operation in operations if operation.ended == inf]
    # The operations that have taken effect, as the bits of their indices, and the state of the pet.
    stack = [(0, State())]
    tried = set(stack)
    most, stuck = -1, None
    while stack:
        done, state = stack.pop()
        if not (ready := _ready(known, done)):
            return True, None
        # What changes nothing is taken as soon as it fits: later it would explain no more.
        if unchanging := [number for number in ready if known[number].step(state) is state]:
            stack.append((done | sum(1 << number for number in unchanging), state))
            continue
        ready.sort(key=lambda number: -known[number].ended)  # the last one is tried first
        urgent = known[ready[-1]]
        if done.bit_count() > most:
            most, stuck = done.bit_count(), urgent
        following = [(done, o.step(state)) for o in unknown if o.sent < urgent.ended]
        following += [(done | 1 << number, known[number].step(state)) for number in ready]
        new = [(after, s) for after, s in following if s is not None and s is not state]
        stack += [reached for reached in new if reached not in tried]
        tried.update(new)
        if len(tried) > BUDGET:
            return None, None
    return False, stuck


def _ready(known: Sequence[RecordedCall], done: int) -> list[int]:
    """Return the operations that may be next: sent before any that is left had ended."""
    found, deadline = [], inf
    for number in range((~done & (done + 1)).bit_length() - 1, len(known)):  # from the first left
        if done >> number & 1:
            continue
        if known[number].sent > deadline:
            break
        deadline = min(deadline, known[number].ended)
        found.append(number)
    return found
