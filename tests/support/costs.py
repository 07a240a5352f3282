"""What input costs in CPU time, and generated input that may cost more than its length."""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from operator import itemgetter
from time import process_time

from msgspec import Struct

Call = Callable[[bytes], object]
"""Whatever reads input."""

_WORST = 6
_ROUNDS = 20
_LEAST_SECONDS = 0.001  # less is too little to be compared


class Input(Struct, frozen=True):
    """Input of any size: a unit that is repeated between a prefix and a suffix."""

    prefix: bytes
    unit: bytes
    suffix: bytes

    def of(self, size: int) -> bytes:
        """Return input of about this many bytes."""
        return self.prefix + self.unit * (size // len(self.unit)) + self.suffix


def cost(call: Call, content: bytes, times: int = 1) -> float:
    """Return the CPU seconds that a call takes with some input: the least of several times."""
    least = float("inf")
    for _ in range(times):
        begin = process_time()
        call(content)
        least = min(least, process_time() - begin)
    return least


def inputs(examples: Iterable[bytes], letters: Iterable[bytes]) -> Iterator[Input]:
    """Yield inputs in which something is repeated after an example, and within it.

    That is every word of one or two letters, and parts of the examples.

    examples -- input that is read in full
    letters -- what means something to the reader
    """
    rng = random.Random(0)  # noqa: S311 - the same inputs each time
    examples, letters = sorted(set(examples)), sorted(set(letters))
    units = [*letters, *map(b"".join, product(letters, repeat=2))]
    for example in examples:
        starts = (rng.randrange(max(1, len(example) - 2)) for _ in range(20))
        units += [example[start : start + rng.randint(3, 12)] for start in starts if example]
    for unit, example in product(units, examples):
        for begin in (rng.randint(0, len(example)), len(example)):
            suffix = rng.choice((b"", example[begin:], rng.choice(letters)))
            yield Input(example[:begin], unit, suffix)


def superlinear(
    call: Call, candidates: Iterable[Input], least: int = 200, most: int = 65536
) -> Input | None:
    """Return an input whose cost grows faster than its size, or None if there is none.

    The candidates that cost most are measured with more and more bytes.

    least, most -- how many bytes; by default up to the limit on a body
    """
    costs = [(cost(call, input_.of(least)), input_) for input_ in candidates]
    slow = sorted(costs, key=itemgetter(0), reverse=True)[: _WORST * 5]
    slow = [(cost(call, input_.of(least), 3), input_) for _, input_ in slow]
    for _, worst in sorted(slow, key=itemgetter(0), reverse=True)[:_WORST]:
        if _grows(call, worst, least, most):
            return worst
    return None


def _grows(call: Call, input_: Input, least: int, most: int) -> bool:
    """Return whether twice the input costs three times as much: linear is 2, quadratic is 4."""
    size, before = least, float("inf")
    while size <= most:
        now = cost(call, input_.of(size), 3)
        for _ in range(_ROUNDS):
            if now <= 3 * before or now <= _LEAST_SECONDS:
                break
            before = min(before, cost(call, input_.of(size // 2), 3))  # the machine may be busy
            now = min(now, cost(call, input_.of(size), 3))
        else:  # unless it is one step, as of the allocator to larger blocks: that is less than 9
            if now > 9 * cost(call, input_.of(size // 4), _ROUNDS):
                return True
        size, before = 2 * size, now
    return False
