"""Whether a history is that of one store in which each request took effect at one moment.

The moment lies between the request and its response. The search is that of Wing and Gong, with the
states remembered that have been tried. A history is searched pet by pet, each with its orders, and
all at once, because only pages show several pets at the same moment.
"""

from collections.abc import Sequence
from math import inf

from tests.support.histories import Attempt
from tests.support.operations import Operation, State, operations_of

BUDGET = 200_000
"""How many states are tried before a search gives up."""


Configuration = tuple[int, int, tuple[State, ...]]
"""The index of the first operation that has not taken effect, those after it that have as bits,
and the states of the pets."""

Change = tuple[float, Configuration]
"""By when an operation must have taken effect, and what follows if it is next."""


def nonlinearizable(
    history: list[Attempt], *, pages_are_moments: bool = True
) -> tuple[list[str], int]:
    """Return a sentence for each part of a history that no order of its requests explains.

    pages_are_moments -- whether a page shows all its items at one moment; if not, each pet with its
        orders is searched for, but not all at once

    The second result is how many searches were given up.
    """
    operations, found = operations_of(history)
    undecided = 0
    pets = sorted({pet for operation in operations for pet in operation.steps})
    parts = [[pet] for pet in pets] + ([pets] if pages_are_moments and len(pets) > 1 else [])
    for part in parts:
        concerned = [o for o in operations if any(pet in o.steps for pet in part)]
        verdict, stuck = search(concerned, part)
        undecided += verdict is None
        if verdict is False:
            what = f"pet {part[0]}" if len(part) == 1 else "all pets at once"
            found.append(f"{what}: not linearizable; {stuck.attempt if stuck else 'no requests'}")
    return found, undecided


def search(
    operations: Sequence[Operation], pets: Sequence[int], budget: int = BUDGET
) -> tuple[bool | None, Operation | None]:
    """Return whether there is an order, or None after so many states, and where it got stuck."""
    known = sorted((o for o in operations if o.ended < inf), key=lambda o: o.sent)
    unknown = [operation for operation in operations if operation.ended == inf]
    stack: list[Configuration] = [(0, 0, tuple(State() for _ in pets))]
    tried = set(stack)
    furthest, stuck = -1, None
    while stack:
        (first, later, state), changes, deadline, urgent = _advance(known, pets, stack.pop())
        if first == len(known):
            return True, None
        if not changes and first > furthest:
            furthest, stuck = first, urgent
        changes.sort(key=lambda change: -change[0])
        for operation in unknown:
            after = _after(operation, pets, state) if operation.sent < deadline else None
            if after is not None and after is not state:
                changes.insert(0, (inf, (first, later, after)))
        stack += [reached for _, reached in changes if reached not in tried]
        tried.update(stack)
        if len(tried) > budget:
            return None, None
    return False, stuck


def _advance(
    known: Sequence[Operation], pets: Sequence[int], configuration: Configuration
) -> tuple[Configuration, list[Change], float, Operation | None]:
    """Take what changes nothing as soon as it fits, for taking it later explains no more.

    Return what is left, the changes that may be next, by when one must be, and which one.
    """
    while True:
        following, changes, deadline, urgent = _next(known, pets, *configuration)
        if following is None:
            return configuration, changes, deadline, urgent
        configuration = (*following, configuration[2])


def _next(
    known: Sequence[Operation],
    pets: Sequence[int],
    first: int,
    later: int,
    state: tuple[State, ...],
) -> tuple[tuple[int, int] | None, list[Change], float, Operation | None]:
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
        after = _after(operation, pets, state)
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


def _after(
    operation: Operation, pets: Sequence[int], state: tuple[State, ...]
) -> tuple[State, ...] | None:
    changed = None
    for index, pet in enumerate(pets):
        step = operation.steps.get(pet)
        if step is None:
            continue
        after = step(state[index])
        if after is None:
            return None
        if after is not state[index]:
            changed = (*(changed or state)[:index], after, *(changed or state)[index + 1 :])
    return changed or state
