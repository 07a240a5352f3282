"""The controls of the histories: repositories that are wrong, which they must notice each time."""

import random
from collections.abc import Iterator
from typing import Final

from petstore_memory import MemoryRepository

from petstore.conformance.faults.racers import Client
from tests.faults.torture.report import Result
from tests.support.plugins import plugin_of
from tests.support.races import JudgedRace
from tests.support.racy import Careless, Forgetful, Outdated, Piecemeal
from tests.support.services import in_thread

RACY: Final[tuple[type[MemoryRepository], ...]] = (Careless, Forgetful, Piecemeal, Outdated)
HISTORIES: Final = 10
"""In how many histories a control must be noticed at the latest."""

FLOOR: Final = 200


def run(seed: int) -> Iterator[Result]:
    """Run each control until it is noticed; it is a violation if it is not."""
    for racy in RACY:
        needed = next((n for n in range(1, HISTORIES + 1) if noticed(racy, f"{seed} {n}")), 0)
        missed = [] if needed else [f"{racy.__name__} was not noticed in {HISTORIES} histories"]
        counts = {"noticed": int(needed > 0), "histories": needed or HISTORIES}
        what = f"control: {racy.__name__}: {racy.__doc__}"
        yield Result(what, counts, missed, seed)


def noticed(repository: type[MemoryRepository], seed: str) -> list[str]:
    """Return what was found wrong in one history on such a repository."""
    with in_thread(plugin=plugin_of(repository())) as live:
        race = JudgedRace(live, name="control-", seed=seed, floor=FLOOR, abandoned=0.02)
        clients = random.Random(seed).randrange(6, 12)  # noqa: S311 - no secret
        race.run(Client.wander, clients=clients, seconds=0.05)
        return race.violations()
