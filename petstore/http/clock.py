"""The time on which records of idempotency keys expire, whatever happens to the wall clock."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

RECORD_SECONDS: Final = 24 * 60 * 60
"""How long a write is remembered under its idempotency key."""

_SECOND: Final = 1_000_000_000
_DAY: Final = RECORD_SECONDS * _SECOND

# On Linux, the clock that also counts while the machine sleeps. Elsewhere, sleep looks like a wall
# clock that was set forward, which only makes records last longer.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_monotonic: Final = partial(time.clock_gettime_ns, _CLOCK)


class TokenClock:
    """Turns the wall clock into `now` and `until` of a token.

    The wall clock's lead over a monotonic clock changes only when the wall clock is set. `now` uses
    the smallest lead that was seen in the last 24 to 48 hours, `until` the greatest. So a record
    lasts for 24 hours of this process, however the wall clock is set meanwhile, and a clock that
    is set once and for all is believed after a day or two.

    wall -- returns nanoseconds since 1970
    monotonic -- returns nanoseconds that only go forward
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = _monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        begin = monotonic()
        self._turn = begin + _DAY
        self._low = self._high = wall() - begin  # of this day
        self._before = (self._low, self._high)  # of the day before
        self._least = self._greatest = self._low  # of both

    def read(self) -> tuple[int, int]:
        """Return `now` and `until` of a token, in seconds since 1970."""
        monotonic = self._monotonic()
        lead = self._wall() - monotonic
        if not self._low <= lead <= self._high or monotonic >= self._turn:
            self._note(lead, monotonic)
        now = (monotonic + self._least) // _SECOND
        return now, -(-(monotonic + self._greatest) // _SECOND) + RECORD_SECONDS

    def _note(self, lead: int, monotonic: int) -> None:
        if monotonic >= self._turn:
            self._turn = monotonic + _DAY
            self._before = (self._low, self._high)
            self._low = self._high = lead
        self._low, self._high = min(self._low, lead), max(self._high, lead)
        self._least = min(self._low, self._before[0])
        self._greatest = max(self._high, self._before[1])
