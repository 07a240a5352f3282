"""What a backend may do wrong with idempotency tokens."""

import asyncio
from datetime import datetime
from time import time

from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Pet,
    Receipt,
    TokenReusedError,
)
from tests.contract.saboteurs.registry import breaks
from tests.support.honest import Honest


@breaks("token-replayed")
class ReplaysANewId(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        receipt = super().find(token)
        return Receipt(self.next_id(), replayed=True) if receipt else None


@breaks("token-replayed")
class DoesNotReportReplays(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        receipt = super().find(token)
        return receipt and Receipt(receipt.id)


@breaks("token-reused")
class IgnoresTheFingerprint(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        if token and token.value in self.store.records:
            fingerprint = self.store.records[token.value][0].fingerprint
            return super().find(replace(token, fingerprint=fingerprint))
        return super().find(token)


@breaks("token-reused")
class ChecksThePetFirst(Honest):
    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        if pet_id not in self.store.pets:
            raise NotFoundError("no such pet")
        return await super().place_order(pet_id, at, token)


@breaks("token-apart")
class ReplaysAcrossClients(Honest):
    """Finds records by fingerprint: another client's token finds them, too."""

    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        if token is None:
            return None
        return super().find(replace(token, value=token.fingerprint))

    def record(self, token: IdempotencyToken | None, id_: int) -> None:
        if token is not None:
            self.store.records[token.fingerprint] = (token, id_)


@breaks("token-apart")
class TreatsTokensAsText(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        return super().find(token and replace(token, value=token.value.rstrip(b"\0\n")))

    def record(self, token: IdempotencyToken | None, id_: int) -> None:
        if token is not None:
            self.store.records[token.value.rstrip(b"\0\n")] = (token, id_)


@breaks("token-atomic")
class RecordsBeforeTheEffect(Honest):
    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        if receipt := self.find(token):
            return receipt
        pet_id = self.next_id()
        self.record(token, pet_id)
        await asyncio.sleep(0)
        self.put(Pet(pet_id, new.name, new.category_id, new.status))
        return Receipt(pet_id)


@breaks("token-atomic")
class RecordsAfterTheEffect(Honest):
    async def create_pet(self, new: NewPet, token: IdempotencyToken | None = None) -> Receipt:
        if receipt := self.find(token):
            return receipt
        receipt = await super().create_pet(new)
        await asyncio.sleep(0)
        self.record(token, receipt.id)
        return receipt


@breaks("token-refused")
class RecordsRefusals(Honest):
    async def place_order(
        self, pet_id: int, at: datetime, token: IdempotencyToken | None = None
    ) -> Receipt:
        try:
            return await super().place_order(pet_id, at, token)
        except TokenReusedError:
            raise
        except (NotFoundError, ConflictError):
            self.record(token, 1)
            raise


@breaks("token-expired")
class NeverExpires(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        return super().find(token and replace(token, now=0))


@breaks("token-expired")
class ReadsItsOwnClock(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        return super().find(token and replace(token, now=int(time())))


@breaks("token-expired")
class ReplaysExtendTheRecord(Honest):
    def find(self, token: IdempotencyToken | None) -> Receipt | None:
        receipt = super().find(token)
        if receipt:
            self.record(token, receipt.id)
        return receipt


@breaks("durable-orders")
class KeepsRecordsInMemory(Honest):
    def close(self) -> None:
        super().close()
        self.store.records.clear()
