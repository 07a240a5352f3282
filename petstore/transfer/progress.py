"""Progress on standard error: a bar on a terminal, otherwise a line every few seconds."""

import sys
from collections.abc import Iterable
from time import monotonic
from typing import Any, Final, Self

from petstore.config.errors import count
from petstore.contract import Order, Pet, TokenRecord
from petstore.observability.logs import report
from petstore.transfer.ndjson import MEMBERS, Transferred

REPORT_SECONDS: Final = 5
"""The time between two lines without a terminal."""


class Progress:
    """Counts transferred items and shows the progress until the block is left.

    verb -- what happens to the items, as a participle: "exported"
    total -- the total amount of work, in any unit; None if unknown
    counts -- how many of each type were added
    """

    def __init__(self, verb: str, total: int | None) -> None:
        self._verb = verb
        self._total = total
        self.counts = dict.fromkeys(MEMBERS, 0)
        self._done = 0
        self._begin = self._shown = monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Start; on a terminal, show a bar."""
        if sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(self._verb, total=self._total, text="")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def add(self, items: Iterable[Transferred], work: int) -> None:
        """Count transferred items, and report the progress if a report is due.

        work -- how much of `total` they were, in the same unit
        """
        for item in items:
            self.counts[type(item)] += 1
        self._done += work
        now = monotonic()
        if self._bar is not None:
            text = f"{self._counted()}, {self._rate()}"
            self._bar.update(self._task, completed=self._done, text=text)
        elif now - self._shown >= REPORT_SECONDS:
            self._shown = now
            text = f"{self._counted()}, {self._rate()}"
            if self._total and self._done:
                left = (now - self._begin) * (self._total - self._done) / self._done
                text += f", {self._done / self._total:.0%}, {max(left, 0):.0f} s left"
            report(text)

    def finish(self, remark: str = "") -> None:
        """Report the totals, and a remark after them."""
        self.__exit__()
        seconds = monotonic() - self._begin
        report(f"{self._counted()} in {seconds:.1f} s ({self._rate()}){remark}")

    def _counted(self) -> str:
        pets, orders = count(self.counts[Pet], "pet"), count(self.counts[Order], "order")
        if records := self.counts[TokenRecord]:
            return f"{self._verb} {pets}, {orders} and {count(records, 'record')}"
        return f"{self._verb} {pets} and {orders}"

    def _rate(self) -> str:
        seconds = max(monotonic() - self._begin, 0.001)
        return f"{sum(self.counts.values()) / seconds:,.0f}/s"


def _bar() -> Any:
    """Return a bar with counts, rate, share and time left, which disappears at the end."""
    from rich import progress  # noqa: PLC0415 - slow to import
    from rich.console import Console  # noqa: PLC0415 - slow to import

    columns = (
        progress.TextColumn("{task.fields[text]}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
    )
    return progress.Progress(*columns, console=Console(stderr=True), transient=True)
