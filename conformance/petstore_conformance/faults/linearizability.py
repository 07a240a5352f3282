"""Whether a history is that of one store in which each request took effect at one moment.

The moment lies between the request and its response. The search is that of Wing and Gong; it
remembers the states that it has tried. To search a whole history would take too long: it is
searched pet by pet, each with its orders.
"""

from collections.abc import Sequence
from math import inf

from petstore_conformance.faults.operations import RecordedCall, State

BUDGET = 200_000
"""How many states are tried before a search gives up."""


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
        ready = _ready(known, done)
        if not ready:
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
    first_left = (~done & (done + 1)).bit_length() - 1
    for number in range(first_left, len(known)):
        if done >> number & 1:
            continue
        if known[number].sent > deadline:
            break
        deadline = min(deadline, known[number].ended)
        found.append(number)
    return found
