"""The controls of the checks: repositories that are wrong, which they must notice each time."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from petstore_conformance.faults.racers import play
from petstore_conformance.faults.races import Race
from petstore_conformance.faults.rounds import RoundOutcome
from petstore_conformance.faults.verdicts import Findings, judge
from petstore_memory import MemoryRepository

from tests.faults.torture.runs import Run
from tests.support.plugins import plugin_of
from tests.support.racy import Careless, Forgetful, Outdated, Piecemeal
from tests.support.services import in_thread

RACY: Final[dict[str, type[MemoryRepository]]] = {
    racy.__name__: racy for racy in (Careless, Forgetful, Piecemeal, Outdated)
}
HISTORIES: Final = 10
"""In how many histories a control must be noticed at the latest."""


class Controls:
    """One round of all controls, however little time there is."""

    reachable = True

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def plans(self) -> Iterator[list[str]]:
        """Yield the names of the controls."""
        yield [*RACY]

    def run(self, number: int, plan: list[str]) -> RoundOutcome:
        """Run each until it is noticed; it is a violation if it is not."""
        outcome = RoundOutcome(number, ", ".join(plan), Counter(rounds=1))
        for name in plan:
            for attempt in range(HISTORIES):
                outcome.counts["histories"] += 1
                if noticed(RACY[name](), f"{self._seed} {attempt}"):
                    break
            else:
                text = f"{name}: not noticed in {HISTORIES} histories"
                outcome.found.setdefault("otherwise wrong", []).append(text)
        return outcome


@contextmanager
def controls(_: Path, run: Run) -> Iterator[Controls]:
    """Yield the controls."""
    yield Controls(run.seed)


def noticed(repository: MemoryRepository, seed: str) -> Findings:
    """Return what was found wrong in one history on such a repository."""
    with in_thread(plugin=plugin_of(repository)) as live:
        race = Race(live, seed=seed, abandoned=0.02)
        clients = Random(seed).randrange(6, 12)  # noqa: S311 - no secret
        asyncio.run(play(race, clients, 0.05, []))
        return judge(race, ended=True, moments=True)[0]
