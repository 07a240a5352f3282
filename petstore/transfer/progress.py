"""Progress on standard error: a bar on a terminal, otherwise a line every few seconds."""

import sys
from collections.abc import Iterable
from time import monotonic
from typing import Any, Final, Self

from petstore.contract import Order, Pet, TokenRecord
from petstore.observability.logs import report
from petstore.text.phrases import count
from petstore.transfer.ndjson import MEMBERS, Transferred

REPORT_SECONDS: Final = 5
"""The time between two lines without a terminal."""


class Progress:
    """Counts transferred items and shows the progress until the block is left.

    verb -- what happens to the items, as a participle: "exported"
    total -- how many bytes there are to read; None if unknown
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
            self._bar = _bar(self._total)
            self._bar.start()
            self._task = self._bar.add_task(self._verb, total=self._total, text="")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def add(self, items: Iterable[Transferred], size: int = 0) -> None:
        """Count transferred items, and report the progress if a report is due.

        size -- how many bytes were read for them
        """
        for item in items:
            self.counts[type(item)] += 1
        self._done += size
        now = monotonic()
        if self._bar is not None:
            text = f"{self._counted()}, {self._rate()}"
            self._bar.update(self._task, completed=self._done, text=text)
        elif now - self._shown >= REPORT_SECONDS:
            self._shown = now
            share = f", {self._done / self._total:.0%}" if self._total else ""
            report(f"{self._counted()}, {self._rate()}{share}")

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


def _bar(total: int | None) -> Any:
    """Return counts and rate, and with a total a bar; they disappear at the end."""
    from rich import progress  # noqa: PLC0415 - slow to import
    from rich.console import Console  # noqa: PLC0415 - slow to import

    columns: list[progress.ProgressColumn] = [progress.TextColumn("{task.fields[text]}")]
    if total is not None:
        columns += [
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("left"),
        ]
    return progress.Progress(*columns, console=Console(stderr=True), transient=True)
