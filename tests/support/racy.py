"""Repositories that are wrong only when requests overlap: the controls of races and histories."""

import asyncio
from datetime import datetime

from msgspec.structs import replace
from petstore_memory import MemoryRepository

from petstore.contract import IdempotencyToken, NewPet, Pet, PetQuery, PetStatus, Receipt


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
