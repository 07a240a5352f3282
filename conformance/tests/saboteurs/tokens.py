"""What a backend may do wrong with idempotency tokens."""

import asyncio
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from math import inf
from time import monotonic
from typing import Any

from msgspec.structs import replace

from conformance.tests.correct import Correct, Token
from conformance.tests.saboteurs.registry import breaks, pause
from petstore.contract import (
    MAX_ID,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    Pet,
    PetStatus,
    Receipt,
    TokenRecord,
    TokenReusedError,
)


def keyed(clause: str, name: str, key: Callable[[bytes], bytes]) -> None:
    """Register a saboteur that stores and finds the records of tokens by a key of their value."""

    def find(self: Correct, token: Token) -> Receipt | None:
        return Correct.find(self, token and replace(token, value=key(token.value)))

    def record(self: Correct, token: Token, id_: int) -> None:
        Correct.record(self, token and replace(token, value=key(token.value)), id_)

    breaks(clause)(type(name, (Correct,), {"find": find, "record": record}))


def recording(name: str, until: Callable[[IdempotencyToken], int]) -> None:
    """Register a saboteur with its own idea of when the record of a token expires."""

    def record(self: Correct, token: Token, id_: int) -> None:
        Correct.record(self, token and replace(token, until=until(token)), id_)

    breaks("token-expired")(type(name, (Correct,), {"record": record}))


def remembering(clause: str, name: str, number: int) -> None:
    """Register a saboteur that remembers so many tokens, although more have not expired."""

    def record(self: Correct, token: Token, id_: int) -> None:
        Correct.record(self, token, id_)
        if len(self.data.records) > number:
            del self.data.records[next(iter(self.data.records))]

    breaks(clause)(type(name, (Correct,), {"record": record}))


recording("KeepsRecordsForADay", lambda token: token.now + 24 * 60 * 60)
recording("KeepsTimesIn32Bits", lambda token: token.until % 2**32)
recording("KeepsTimesAsDates", lambda token: min(token.until, 253_402_300_799))  # of 9999
recording("KeepsRecordsForASecondAtLeast", lambda token: max(token.until, token.now + 1))
remembering("token-replayed", "RemembersAThousandTokens", 1000)
remembering("restore-token", "RemembersTenThousandTokens", 10_000)


@breaks("token-replayed")
class RecordsThePetOfAnOrder(Correct):
    """With an order, it records the id of the pet. In no other are the two ids confused."""

    def record(self, token: Token, id_: int) -> None:
        order = self.data.orders.get(id_)
        super().record(token, order.pet_id if order else id_)


@breaks("token-reused")
class ComparesHalfOfTheFingerprint(Correct):
    def find(self, token: Token) -> Receipt | None:
        if token and token.value in self.data.records:
            fingerprint = self.data.records[token.value].fingerprint
            if fingerprint[:16] == token.fingerprint[:16]:
                token = replace(token, fingerprint=fingerprint)
        return super().find(token)


@breaks("token-reused")
class ChecksTheRangeFirst(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if pet_id > MAX_ID:
            raise NotFoundError("no such pet")
        return await super().place_order(pet_id, at, token)


keyed("token-apart", "TreatsTokensAsText", lambda value: value.rstrip(b"\0\n"))
keyed("token-apart", "EndsTokensAtControlZ", lambda value: value.partition(b"\x1a")[0])
keyed("token-apart", "ReadsTokensAsLines", lambda value: b"\n".join(value.splitlines()))


@breaks("token-apart")
class CutsTokensOfOrders(Correct):
    """The column for tokens is narrower in the table of orders."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        cut = token and replace(token, value=token.value[:16])
        return await super().place_order(pet_id, at, cut)


@breaks("token-apart")
class PadsFingerprints(Correct):
    """A column of characters drops the blanks at the end."""

    def record(self, token: Token, id_: int) -> None:
        super().record(token and replace(token, fingerprint=token.fingerprint.rstrip(b" ")), id_)


@breaks("token-atomic")
class RecordsBeforeTheEffect(Correct):
    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if receipt := self.find(token):
            return receipt
        pet_id = self.next_id()
        self.record(token, pet_id)
        await asyncio.sleep(0)
        self.put(Pet(pet_id, new.name, new.category_id, new.status))
        return Receipt(pet_id)


@breaks("token-refused")
class RecordsUntilItRefuses(Correct):
    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if token and not self.find(token):
            self.record(token, 1)
            await pause()
            del self.data.records[token.value]
        return await super().place_order(pet_id, at, token)


@breaks("token-expired")
class ComparesTimesAsText(Correct):
    """The column of times is text. No other expires records too late or too early only there."""

    def find(self, token: Token) -> Receipt | None:
        known = token and self.data.records.get(token.value)
        if token and known:
            expired = str(known.until) <= str(token.now)
            token = replace(token, now=known.until if expired else known.until - 1)
        return super().find(token)


@breaks("token-expired")
class KeepsTheFirstFingerprint(Correct):
    """Where an expired record is replaced, one column is not."""

    def record(self, token: Token, id_: int) -> None:
        if token and (known := self.data.records.get(token.value)):
            token = replace(token, fingerprint=known.fingerprint)
        super().record(token, id_)


@breaks("token-expired")
class HasATimeToLive(Correct):
    """Lets the server delete a record after the seconds between `now` and `until`."""

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        if token is not None:
            self.kept[token.value] = monotonic() + token.until - token.now

    def find(self, token: Token) -> Receipt | None:
        if token is not None and monotonic() >= self.kept.get(token.value, inf):
            self.data.records.pop(token.value, None)
        return super().find(token)


@breaks("token-expired")
class PurgesInOrderOfArrival(Correct):
    """Deletes all records up to the latest one that has expired."""

    def find(self, token: Token) -> Receipt | None:
        values = list(self.data.records)
        expired = [
            number
            for number, value in enumerate(values)
            if token and self.data.records[value].until <= token.now
        ]
        for value in values[: max(expired, default=-1) + 1]:
            del self.data.records[value]
        return super().find(token)


@breaks("token-expired")
class ReuseProlongsTheRecord(Correct):
    """Stores the later time before it compares the fingerprint."""

    def find(self, token: Token) -> Receipt | None:
        try:
            return super().find(token)
        except TokenReusedError:
            if token:
                known = self.data.records[token.value]
                self.data.records[token.value] = replace(known, until=token.until)
            raise


@breaks("token-expired")
class RefusalRevivesTheRecord(Correct):
    """Renews an expired record before it is known whether the write is refused."""

    def may_delete(self, _expired: TokenRecord) -> bool:
        return False

    def find(self, token: Token) -> Receipt | None:
        receipt = super().find(token)
        if token and not receipt and token.value in self.data.records:
            self.record(token, self.data.records[token.value].id)
        return receipt


keyed("token-apart", "FindsTokensWhateverTheCase", lambda value: b64encode(value).lower())


keyed("token-apart", "FindsTokensAsNumbers", lambda value: str(as_number(value.hex())).encode())


def as_number(text: str) -> float | str:
    """Return what a column without a type may make of a text."""
    try:
        return float(text)
    except ValueError:
        return text


@breaks("token-expired")
class IgnoresTokensThatEndNow(Correct):
    """The lifetime of a retry decides, not that of the record."""

    def find(self, token: Token) -> Receipt | None:
        return super().find(token) if token and token.until > token.now else None


@breaks("token-atomic")
class TakesBackCancelledOrders(Correct):
    """Removes the order of a cancelled call, although another has returned its id."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt = await super().place_order(pet_id, at, token)
        try:
            await pause()
        except asyncio.CancelledError:
            if not receipt.replayed:
                del self.data.orders[receipt.id]
                self.set_status(pet_id, PetStatus.AVAILABLE)
                self.data.records.pop(token.value if token else b"", None)
            raise
        return receipt


@breaks("exact-types")
class DropsTokensGivenByName(Correct):
    """A wrapper that logs passes on what is given by position."""

    async def create_pet(self, new: NewPet, *rest: Any, **_named: Any) -> Receipt:
        return await super().create_pet(new, *rest)


@breaks("token-expired")
class HasOneClockForABatch(Correct):
    """Writes that overlap have the clock of the first of them."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if token is None:
            return await super().create_pet(new)
        clocks: list[int] = self.kept.setdefault("clocks", [])
        clocks.append(token.now)
        try:
            return await super().create_pet(new, replace(token, now=clocks[0]))
        finally:
            clocks.pop()


@breaks("token-atomic")
class DeletesTheRecordOfAnother(Correct):
    """Deletes a record that it has seen to be expired, which by then is that of another write."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if token and token.value in self.data.records and not self.find(token):
            await pause()
            self.data.records.pop(token.value, None)
        return await super().create_pet(new, token)


@breaks("token-atomic")
class OrdersAgainAfterExpiry(Correct):
    """Looks only once whether the record of an order has expired."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        if token and token.value in self.data.records and not self.find(token):
            receipt = await super().place_order(pet_id, at)
            self.record(token, receipt.id)
            return receipt
        return await super().place_order(pet_id, at, token)


@breaks("exact-types")
class ReplaysOrdersWithANumber(Correct):
    """Whether an order was replayed is a number, as in its table."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        receipt = await super().place_order(pet_id, at, token)
        replayed: Any = int(receipt.replayed)
        return replace(receipt, replayed=replayed) if replayed else receipt


@breaks("token-apart")
class StoresTwiceUnderTokensOfText(Correct):
    """A token that begins as a text does is sent twice, and the second pet has no token."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        receipt = await super().create_pet(new, token)
        if token and not receipt.replayed and token.value.startswith(b"token"):
            await super().create_pet(new)
        return receipt


@breaks("token-atomic")
class FollowersReplayWhatHasExpired(Correct):
    """While one write replaces an expired record, others with its token get its id."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        if token is None:
            return await super().create_pet(new)
        old = self.data.records.get(token.value)
        if token.value in self.noted and old and old.fingerprint == token.fingerprint:
            return Receipt(old.id, replayed=True)
        self.noted.add(token.value)
        try:
            return await super().create_pet(new, token)
        finally:
            self.noted.discard(token.value)


@breaks("model")  # no other fails only if a create is repeated once its pet has been released
class ForgetsTokensOfReleasedPets(Correct):
    """The records of a pet go with its cancelled order, those of its own create as well."""

    def set_status(self, pet_id: int, status: PetStatus) -> None:
        super().set_status(pet_id, status)
        if status is PetStatus.AVAILABLE:
            self.data.records = {k: it for k, it in self.data.records.items() if it.id != pet_id}
