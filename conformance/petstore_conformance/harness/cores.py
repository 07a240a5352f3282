"""Whether something was slow because this process, or its server, had to wait for a core."""

from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

INCONCLUSIVE: Final = 75  # the exit status if there can be no verdict (EX_TEMPFAIL: try again)
EXCUSED_SECONDS: Final = 1  # a call that took less is not slow: a busy machine never explains it


class Cores:
    """How long all processes ran on a core and waited for one, if the system tells: only Linux."""

    def __init__(self) -> None:
        self._begin = monotonic()
        self._before = read()

    def shortage(self) -> str | None:
        """Return a sentence if processes had too little of the cores to be judged by time.

        They had too little if they waited for a core for a second and a quarter of the time or
        more, and longer than they had one: what failed sooner was not slow. To wait for anything
        else, such as a call that never returns, does not count. All processes that still run count
        together, because the storage's server may be any of them.
        """
        seconds = monotonic() - self._begin
        times = [(self._before.get(thread, (0, 0)), now) for thread, now in read().items()]
        ran = sum(now[0] - before[0] for before, now in times)
        waited = sum(now[1] - before[1] for before, now in times)
        if waited <= ran or waited / 1e9 < max(EXCUSED_SECONDS, seconds / 4):
            return None
        return (
            f"the machine is too busy: in {seconds:.0f} s its processes waited {waited / 1e9:.0f} s"
            f" for a core, and had {ran / (ran + waited):.0%} of what they needed"
        )


def read() -> dict[str, tuple[int, int]]:
    """Return how long each thread of this machine ran, and waited for a core, in nanoseconds."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            for thread in (process / "task").iterdir():
                with suppress(OSError, ValueError):  # so has it, or the kernel does not count
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    found[thread.name] = int(ran), int(waited)
    return found


def children() -> defaultdict[int, list[int]]:
    """Return the ids of the running child processes of each process."""
    found = defaultdict[int, list[int]](list)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            state, parent = (process / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                found[int(parent)].append(int(process.name))
    return found
