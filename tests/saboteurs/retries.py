"""What can be wrong with retries."""

import asyncio
from datetime import datetime
from time import time

from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    NewPet,
    NotFoundError,
    Pet,
    Receipt,
    Retry,
    TokenReusedError,
)
from tests.honest import Honest
from tests.saboteurs.registry import breaks


@breaks("retry-replayed")
class CarriesItOutAgain(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        receipt = super().find(retry)
        return Receipt(self.next_id(), replayed=True) if receipt else None


@breaks("retry-replayed")
class DoesNotSayThatItReplays(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        receipt = super().find(retry)
        return receipt and Receipt(receipt.id)


@breaks("retry-reused")
class IgnoresTheFingerprint(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        if retry and retry.token in self.store.retries:
            fingerprint = self.store.retries[retry.token][0].fingerprint
            return super().find(replace(retry, fingerprint=fingerprint))
        return super().find(retry)


@breaks("retry-reused")
class LooksAtTheAnimalFirst(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        if pet_id not in self.store.pets:
            raise NotFoundError("no such animal")
        return await super().place_order(pet_id, at, retry)


@breaks("retry-apart")
class ReplaysAcrossClients(Honest):
    """Knows writes by what they write: another client's token finds them, too."""

    def find(self, retry: Retry | None) -> Receipt | None:
        if retry is None:
            return None
        return super().find(replace(retry, token=retry.fingerprint))

    def record(self, retry: Retry | None, number: int) -> None:
        if retry is not None:
            self.store.retries[retry.fingerprint] = (retry, number)


@breaks("retry-apart")
class TakesTokensForText(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        return super().find(retry and replace(retry, token=retry.token.rstrip(b"\0\n")))

    def record(self, retry: Retry | None, number: int) -> None:
        if retry is not None:
            self.store.retries[retry.token.rstrip(b"\0\n")] = (retry, number)


@breaks("retry-atomic")
class RecordsBeforeTheEffect(Honest):
    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        if receipt := self.find(retry):
            return receipt
        number = self.next_id()
        self.record(retry, number)
        await asyncio.sleep(0)
        self.put(Pet(number, new.name, new.category_id, new.status))
        return Receipt(number)


@breaks("retry-atomic")
class RecordsAfterTheEffect(Honest):
    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        if receipt := self.find(retry):
            return receipt
        receipt = await super().create_pet(new)
        await asyncio.sleep(0)
        self.record(retry, receipt.id)
        return receipt


@breaks("retry-refused")
class RecordsRefusals(Honest):
    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        try:
            return await super().place_order(pet_id, at, retry)
        except TokenReusedError:
            raise
        except (NotFoundError, ConflictError):
            self.record(retry, 1)
            raise


@breaks("retry-expired")
class NeverForgets(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        return super().find(retry and replace(retry, now=0))


@breaks("retry-expired")
class HasAClockOfItsOwn(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        return super().find(retry and replace(retry, now=int(time())))


@breaks("retry-expired")
class ReplaysProlong(Honest):
    def find(self, retry: Retry | None) -> Receipt | None:
        receipt = super().find(retry)
        if receipt:
            self.record(retry, receipt.id)
        return receipt


@breaks("durable-orders")
class KeepsRecordsInMemory(Honest):
    def close(self) -> None:
        super().close()
        self.store.retries.clear()
