"""How far it has come, on standard error: a bar on a terminal, a line every few seconds else."""

import sys
from time import monotonic
from typing import Any, Final, Self

from petstore.contract import Order, Pet

SECONDS: Final = 5
"""The time between two lines where there is no terminal."""


class Progress:
    """Counts what was moved, and shows it until the block is left.

    verb -- what is done to animals and orders: "exported"
    total -- what the share is of, in whatever unit `at` counts; None if nobody knows
    """

    def __init__(self, verb: str, total: int | None) -> None:
        self._verb = verb
        self._total = total
        self._pets = self._orders = 0
        self._begin = self._shown = monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Begin; rich is only asked where there is a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(self._verb, total=self._total, text="")
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def count(self, item: Pet | Order) -> None:
        """Count an item that was moved."""
        if isinstance(item, Pet):
            self._pets += 1
        else:
            self._orders += 1

    def at(self, place: int) -> None:
        """Show how far it is, if it is time to.

        place -- how much of `total` is done, in the same unit
        """
        now = monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=place, text=f"{self._counted()}, {self._rate()}")
        elif now - self._shown >= SECONDS:
            self._shown = now
            text = f"{self._counted()}, {self._rate()}"
            if self._total and place:
                left = (now - self._begin) * (self._total - place) / place
                text += f", {place / self._total:.0%}, {max(left, 0):.0f} s left"
            say(text)

    def finish(self) -> None:
        """Say what was moved in all."""
        self.__exit__()
        seconds = monotonic() - self._begin
        say(f"{self._counted()} in {seconds:.1f} s ({self._rate()})")

    def _counted(self) -> str:
        return f"{self._verb} {_number(self._pets, 'animal')} and {_number(self._orders, 'order')}"

    def _rate(self) -> str:
        seconds = max(monotonic() - self._begin, 0.001)
        return f"{(self._pets + self._orders) / seconds:,.0f}/s"


def say(text: str) -> None:
    """Write a line to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"petstore: {text}\n")
        sys.stderr.flush()


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _bar() -> Any:
    """Return a bar with counts and rate, share and time left, that vanishes in the end."""
    from rich.console import Console  # noqa: PLC0415 - takes a while
    from rich.progress import (  # noqa: PLC0415 - so does this
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[text]}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
