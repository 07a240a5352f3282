"""Whether a history is that of one store in which each request took effect at one moment.

The moment lies between the request and its response. The search is that of Wing and Gong; it
remembers the states that it has tried. To search a whole history would take too long: it is
searched pet by pet, each with its orders.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import inf

from petstore_conformance.faults.histories import Attempt
from petstore_conformance.faults.operations import RecordedCall, State, operations_of

BUDGET = 200_000
"""How many states are tried before a search gives up."""

Reached = tuple[int, int, State]
"""The index of the first operation that has not taken effect, those after it that have as bits,
and the state of the pet."""

Change = tuple[float, Reached]
"""The time by which an operation must have taken effect, and what follows if it is next."""


Searched = tuple[int, list[RecordedCall], bool | None, RecordedCall | None]
"""A pet, the operations on it, and what `search` has found."""


def searches(history: list[Attempt]) -> tuple[list[str], list[Searched]]:
    """Search a history pet by pet; return what is wrong with the ids in it, and the results."""
    operations, found = operations_of(history)
    by_pet = defaultdict[int, list[RecordedCall]](list)
    for operation in operations:
        by_pet[operation.pet].append(operation)
    return found, [(pet, concerned, *search(concerned)) for pet, concerned in by_pet.items()]


def search(
    operations: Sequence[RecordedCall], budget: int = BUDGET
) -> tuple[bool | None, RecordedCall | None]:
    """Return whether operations on a pet have an order, and where the search got stuck if not.

    budget -- after how many states the search gives up, and returns None

    The search does not remember which operations of unknown outcome have taken effect, so none of
    them may change anything a second time. Those in `operations` do not.
    """
    known = sorted((o for o in operations if o.ended < inf), key=lambda o: o.sent)
    unknown = [operation for operation in operations if operation.ended == inf]
    stack: list[Reached] = [(0, 0, State())]
    tried = set(stack)
    furthest, stuck = -1, None
    while stack:
        (first, later, state), changes, deadline, urgent = _advance(known, stack.pop())
        if first == len(known):
            return True, None
        if not changes and first > furthest:
            furthest, stuck = first, urgent
        changes.sort(key=lambda change: -change[0])
        for operation in unknown:
            after = operation.step(state) if operation.sent < deadline else None
            if after is not None and after is not state:
                changes.insert(0, (inf, (first, later, after)))
        stack += [reached for _, reached in changes if reached not in tried]
        tried.update(stack)
        if len(tried) > budget:
            return None, None
    return False, stuck


def _advance(
    known: Sequence[RecordedCall], configuration: Reached
) -> tuple[Reached, list[Change], float, RecordedCall | None]:
    """Take operations that change nothing as soon as they fit: later they would explain no more.

    Return what is left, the changes that may be next, by when one must be, and which one.
    """
    while True:
        following, changes, deadline, urgent = _next(known, *configuration)
        if following is None:
            return configuration, changes, deadline, urgent
        configuration = (*following, configuration[2])


def _next(
    known: Sequence[RecordedCall], first: int, later: int, state: State
) -> tuple[tuple[int, int] | None, list[Change], float, RecordedCall | None]:
    """Look at the operations that may be next.

    first -- the index of the first that has not taken effect
    later -- which of those after it have, as bits

    Return what is left after one that changes nothing, if there is one; the states after those
    that change something; by when one must be next; and the one that must be.
    """
    deadline, urgent = inf, None
    changes: list[tuple[float, Change]] = []
    for offset in range(len(known) - first):
        if later >> offset & 1:
            continue
        operation = known[first + offset]
        if operation.sent > deadline:
            break
        if operation.ended < deadline:
            deadline, urgent = operation.ended, operation
        after = operation.step(state)
        if after is None:
            continue
        done_first, done_later = first, later | 1 << offset
        while done_later & 1:
            done_first, done_later = done_first + 1, done_later >> 1
        if after is state:
            return (done_first, done_later), [], deadline, urgent
        changes.append((operation.sent, (operation.ended, (done_first, done_later, after))))
    ready = [change for sent, change in changes if sent <= deadline]
    return None, ready, deadline, urgent
