"""The controls of the checks: repositories that are wrong, which they must notice each time."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from msgspec.structs import replace
from petstore_conformance.faults.racers import play
from petstore_conformance.faults.races import Race
from petstore_conformance.faults.verdicts import Findings, RoundOutcome, judge
from petstore_memory import MemoryRepository

from petstore.contract import IdempotencyToken, NewPet, Pet, PetQuery, PetStatus, Receipt
from tests.faults.torture.runs import Outcomes, Run
from tests.support.plugins import plugin_of
from tests.support.services import in_thread


class Careless(MemoryRepository):
    """Checks the status first and changes it later."""

    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        before = await self.get_pet(pet_id)
        await asyncio.sleep(0.01)
        now = await self.get_pet(pet_id)
        replays = token and self._records.find(token)
        if before and now and before.status is PetStatus.AVAILABLE and not replays:
            self._pets.set_status(now, PetStatus.AVAILABLE)  # whoever has ordered it meanwhile
        return await super().place_order(pet_id, at, token)


class Forgetful(MemoryRepository):
    """Looks for the token first and records it later."""

    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        if token and (receipt := self._records.find(token)):
            return receipt
        await asyncio.sleep(0.01)
        receipt = await super().create_pet(new)
        if token:
            self._records.add(token, receipt.id)
        return receipt


class Piecemeal(MemoryRepository):
    """Reads a page in two halves, at two moments."""

    async def list_pets(self, query: PetQuery) -> list[Pet]:
        first = await super().list_pets(replace(query, count=max(query.count // 2, 1)))
        await asyncio.sleep(0.01)
        if not first or len(first) == query.count:
            return first
        rest = replace(query, after=first[-1].id, count=query.count - len(first))
        return first + await super().list_pets(rest)


class Outdated(MemoryRepository):
    """Returns a pet as it was when it was last looked up, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[float, Pet | None]] = {}

    async def get_pet(self, pet_id: int) -> Pet | None:
        now = asyncio.get_running_loop().time()
        if pet_id not in self._seen or now > self._seen[pet_id][0] + 0.05:
            self._seen[pet_id] = (now, await super().get_pet(pet_id))
        return self._seen[pet_id][1]


RACY: Final[dict[str, type[MemoryRepository]]] = {
    racy.__name__: racy for racy in (Careless, Forgetful, Piecemeal, Outdated)
}
HISTORIES: Final = 10
"""In how many histories a control must be noticed at the latest."""


def controls(_: Path, run: Run) -> Outcomes:
    """Run all controls in one round, however little time there is."""
    yield tried(RACY, run.seed)


def tried(racy: Mapping[str, type[MemoryRepository]], seed: int) -> RoundOutcome:
    """Run each repository until it is noticed; it is a violation if it is not."""
    outcome = RoundOutcome(", ".join(racy))
    for name, repository in racy.items():
        for attempt in range(HISTORIES):
            outcome.counts["histories"] += 1
            if noticed(repository(), f"{seed} {attempt}"):
                break
        else:
            text = f"{name}: not noticed in {HISTORIES} histories"
            outcome.found.add("otherwise wrong", text)
    return outcome


def noticed(repository: MemoryRepository, seed: str) -> Findings:
    """Return what was found wrong in one history on such a repository."""
    with in_thread(plugin=plugin_of(repository)) as live:
        race = Race(live, seed=seed, abandoned=0.02)
        clients = Random(seed).randrange(6, 12)  # noqa: S311 - no secret
        asyncio.run(play(race, clients, 0.05, []))
        return judge(race, ended=True, moments=True)[0]
