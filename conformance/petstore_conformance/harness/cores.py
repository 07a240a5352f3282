"""Whether something was slow because this process and its children had to wait for a core."""

import os
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

INCONCLUSIVE: Final = 75
"""The exit status if the machine was too slow for a verdict (EX_TEMPFAIL: try again)."""


EXCUSED_SECONDS: Final = 1
"""What took less is not slow: a busy machine never explains it."""


class Cores:
    """How long this process, and those that it has started, ran on a core and waited for one.

    Only Linux tells. On other systems no shortage is ever found.
    """

    def __init__(self) -> None:
        self._begin = monotonic()
        self._before = read()
        self._last = self._before

    def note(self) -> None:
        """Remember the times of processes that are about to end: the system forgets them."""
        self._last = self._last | read()

    def shortage(self) -> str | None:
        """Return a sentence if these processes had too little of the cores to be judged by time.

        They had too little if they waited for a core for a second and a quarter of the time or
        more, and longer than they had one: what failed sooner was not slow. To wait for anything
        else, such as a call that never returns, does not count.
        """
        seconds = monotonic() - self._begin
        ran = waited = 0
        self.note()
        for thread, (ran_now, waited_now) in self._last.items():
            ran_before, waited_before = self._before.get(thread, (0, 0))
            ran += ran_now - ran_before
            waited += waited_now - waited_before
        if waited <= ran or waited / 1e9 < max(EXCUSED_SECONDS, seconds / 4):
            return None
        return (
            f"the machine is too busy: in {seconds:.0f} s this process and those that it started"
            f" waited {waited / 1e9:.0f} s for a core, and had {ran / (ran + waited):.0%} of what"
            " they needed"
        )


def read() -> dict[str, tuple[int, int]]:
    """Return how long each thread of these processes ran, and waited for a core, in nanoseconds."""
    found = {}
    running, processes = children(), [os.getpid()]
    for process in processes:  # it grows
        processes += running.get(process, [])
        for thread in Path(f"/proc/{process}/task").glob("*"):
            with suppress(OSError, ValueError):  # it has ended, or the kernel does not count
                ran, waited, _ = (thread / "schedstat").read_text().split()
                found[thread.name] = int(ran), int(waited)
    return found


def children() -> dict[int, list[int]]:
    """Return the ids of the running child processes of each process."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                found.setdefault(int(parent), []).append(int(stat.parent.name))
    return found
