"""The command: python -m tests.faults.torture --minutes 60 --seed 1 [--only histories]."""

import argparse
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

from tests.faults.torture import histories, power_cuts, soak
from tests.faults.torture.report import Result, combined, markdown
from tests.support.environments import BUILD

Part = Callable[[float, int], Iterator[Result]]

PARTS: Final[dict[str, tuple[Part, int]]] = {
    "power-cuts": (power_cuts.run, 20),
    "histories": (histories.run, 68),
    "soak": (soak.run, 12),
}
"""Each part, and its share of the time."""

VIOLATED: Final = 1
INTERRUPTED: Final = 130


class Progress:
    """Shows what runs: in a line that a terminal rewrites; elsewhere once, at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: Result | None = None

    def show(self, result: Result) -> None:
        """Show what was done in a set-up since it was last shown."""
        if self._shown is not None and self._shown.what != result.what:
            self.end()
        if self._shown is None:
            [self._shown] = combined([result])
        else:
            self._shown.add(result)
        if self._stream.isatty():
            line = str(self._shown)[: shutil.get_terminal_size().columns - 1]
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()

    def end(self) -> None:
        """Leave the last line as it is."""
        if self._shown is not None:
            start = "\r\x1b[K" if self._stream.isatty() else ""
            self._stream.write(f"{start}{self._shown}\n")
            self._stream.flush()
            self._shown = None


def collect(parts: dict[str, tuple[Part, int]], seconds: float, seed: int) -> Iterator[Result]:
    """Yield the results of all parts; a part that breaks is a violation, and the next one runs."""
    deadline = time.monotonic() + seconds
    shares = sum(share for _, share in parts.values())
    for name, (run, share) in parts.items():
        budget = max(0, deadline - time.monotonic()) * share / shares
        shares -= share
        try:
            yield from run(budget, seed)
        except Exception as error:  # noqa: BLE001 - the report must say so
            traceback.print_exc()
            yield Result(f"{name}, which broke", {}, [f"{error!r}"], seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the torture; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args(arguments)
    parts = {options.only: PARTS[options.only]} if options.only else PARTS
    progress, results, status = Progress(sys.stderr), [], 0
    began = time.monotonic()
    try:
        for result in collect(parts, options.minutes * 60, options.seed):
            progress.show(result)
            results.append(result)
    except KeyboardInterrupt:
        status = INTERRUPTED
    progress.end()
    report = markdown(combined(results), (time.monotonic() - began) / 60, options.seed)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "torture.md").write_text(report)
    sys.stdout.write(report)
    return status or (VIOLATED if any(result.violations for result in results) else 0)


if __name__ == "__main__":
    sys.exit(main())
