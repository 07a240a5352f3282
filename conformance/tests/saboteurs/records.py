"""What a backend may do wrong with the records of tokens when they move."""

from collections.abc import Callable, Sequence
from datetime import datetime
from time import time
from typing import Any

from msgspec.structs import replace

from conformance.tests.correct import Correct, Item, Store, Token
from conformance.tests.saboteurs.registry import NotingRestored, breaks
from petstore.contract import ConflictError, NewPet, Pet, Receipt, TokenPage, TokenRecord


def listing(**changes: Callable[[TokenRecord, Store, int], TokenRecord | None]) -> None:
    """Register saboteurs that change each record of a page, or leave it out."""
    for name, change in changes.items():

        class Lists(Correct):
            async def list_tokens(
                self, cursor: str, count: int, now: int, change: Any = change
            ) -> TokenPage:
                page = await super().list_tokens(cursor, count, now)
                changed = [change(record, self.data, now) for record in page.records]
                return replace(page, records=[record for record in changed if record])

        Lists.__name__ = name
        breaks("token-walk")(Lists)


listing(
    ListsRecordsOfPets=lambda record, store, _: record if record.id in store.pets else None,
    EndsRecordsEarly=lambda record, _, now: record if record.until > now + 1 else None,
    ListsRecordsOfItsOwnTime=lambda record, *_: record if record.until > time() else None,
    ListsTimesToLive=lambda record, _, now: replace(record, until=record.until - now),
    ListsFingerprintsAsText=lambda record, *_: replace(
        record, fingerprint=record.fingerprint.decode(errors="replace").encode()
    ),
)


@breaks("token-walk")
class ListsExpiredRecords(Correct):
    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:  # noqa: ARG002 - its error
        return await super().list_tokens(cursor, count, 0)


@breaks("token-walk")
class ListsAllRecordsAtOnce(Correct):
    """In no other is a page larger than was asked for."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:  # noqa: ARG002 - its error
        return await super().list_tokens(cursor, 2**40, now)


@breaks("token-walk")
class TakesAShortPageForTheLast(Correct):
    """Its engine returns at most a thousand records, which seem to be all."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(cursor, min(count, 1000), now)
        return page if count <= 1000 else replace(page, next="")


@breaks("token-walk")
class ListsWhatItHasListed(Correct):
    """Its cache of pages is emptied by no create. Of no other are later records missing."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        key = cursor, count, now, len(self.data.orders)
        page: TokenPage = self.kept.setdefault(key, await super().list_tokens(cursor, count, now))
        return replace(page, records=[*page.records])


@breaks("token-walk")
class ContinuesAtARecordThatMayBeDeleted(Correct):
    """The record that a cursor names has been deleted: it expired after its page was read."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        gone = cursor and bytes.fromhex(cursor) not in self.data.records
        return TokenPage([], "") if gone else await super().list_tokens(cursor, count, now)


@breaks("token-walk")
class ContinuesTheLatestWalk(Correct):
    """The cursor is the handle's. Of no other do two walks disturb each other."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(self.kept.get("at", "") if cursor else "", count, now)
        self.kept["at"] = page.next
        return page


@breaks("token-deleted")
class DeletesOneRecord(Correct):
    """A write deletes as many as it adds."""

    def delete_expired(self, now: int) -> None:
        for value in [it.value for it in self.data.records.values() if it.until <= now][:1]:
            del self.data.records[value]


@breaks("token-deleted")
class DeletesTheSameTwo(Correct):
    """Creates that overlap have chosen the same records before one of them deletes these."""

    async def create_pet(self, new: NewPet, token: Token = None) -> Receipt:
        now = token.now if token else 0
        chosen = [it.value for it in self.data.records.values() if it.until <= now][:2]
        receipt = await super().create_pet(new, token)
        for value in chosen:
            if value in self.data.records and self.data.records[value].until <= now:
                del self.data.records[value]
        return receipt

    def delete_expired(self, now: int) -> None:
        if self.data.last_id in self.data.orders:
            super().delete_expired(now)


@breaks("token-deleted")
class DeletesOnlyWhatItHasWritten(NotingRestored):
    """What expires is found by a queue in memory, which is filled at opening and by own writes."""

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        if token is not None:
            self.noted.add(token.value)

    def may_delete(self, expired: TokenRecord) -> bool:
        return expired.value in self.noted | self.loaded.records.keys()


@breaks("token-deleted")
class IsHeldUpByFastClocks(Correct):
    """Considers only the two oldest records, whether or not the caller may delete them."""

    def may_delete(self, expired: TokenRecord) -> bool:
        return expired.value in [*self.data.records][:2]


@breaks("token-deleted")
class StopsAtARenewedRecord(Correct):
    """Its queue has the old expiry of a record whose token was used again, and ends there."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.queue: list[TokenRecord] = store.extra.setdefault("queue", [])

    def record(self, token: Token, id_: int) -> None:
        if token is not None:
            record = TokenRecord(token.value, token.fingerprint, token.until, id_)
            self.data.records[token.value] = record
            self.queue.append(record)
            self.delete_expired(token.now)

    def restore_record(self, record: TokenRecord) -> None:
        super().restore_record(record)
        self.queue.append(record)

    def delete_expired(self, now: int) -> None:
        self.queue.sort(key=lambda record: record.until)
        for record in self.queue[:2]:
            if record.until > now or self.data.records.get(record.value) != record:
                break
            del self.data.records[record.value], self.queue[0]


@breaks("token-deleted")
class DeletesARenewedRecord(StopsAtARenewedRecord):
    """Its queue has the old expiry of a record, and then it deletes the new one."""

    def delete_expired(self, now: int) -> None:
        self.queue.sort(key=lambda record: record.until)
        while self.queue and self.queue[0].until <= now:
            self.data.records.pop(self.queue.pop(0).value, None)


def restoring(name: str, restore: Callable[[Correct, TokenRecord], None]) -> None:
    """Register a saboteur with its own way to restore a record."""
    breaks("restore-token")(type(name, (Correct,), {"restore_record": restore}))


def _refuse_known(self: Correct, record: TokenRecord) -> None:
    if record.value in self.data.records:
        raise ConflictError("the token is taken")
    self.data.records[record.value] = record


def _drop_expired(self: Correct, record: TokenRecord) -> None:
    if record.until > time():
        Correct.restore_record(self, record)


restoring("RestoresNoneThatHaveExpiredByItsOwnClock", _drop_expired)
restoring("RefusesEqualRecords", _refuse_known)


@breaks("restore-token")
class ReplaysOnlyCreates(NotingRestored):
    """The restored records are in the table of pets."""

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        known = token and token.value in self.noted
        return await super().place_order(pet_id, at, None if known else token)


@breaks("restore-token")
class StoresTheLastRecordOfACall(Correct):
    """The records of a call are collected by their tokens."""

    async def restore(self, items: Sequence[Item]) -> None:
        last = {item.value: item for item in items if isinstance(item, TokenRecord)}
        await super().restore(
            [last[it.value] if isinstance(it, TokenRecord) else it for it in items]
        )


@breaks("restore-token")
class SortsRecordsLast(Correct):
    """A refused record is found after the pets, but before the records that precede it."""

    async def restore(self, items: Sequence[Item]) -> None:
        records = [item for item in items if isinstance(item, TokenRecord)]
        for record in records:
            if self.data.records.get(record.value, record) != record:
                raise ConflictError("a different record has this token")
        await super().restore(items)


@breaks("restore-token")
class ForgetsRestoredRecords(NotingRestored):
    """They are stored when the next write comes, which may be never."""

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.noted.clear()

    def close(self) -> None:
        super().close()
        for value in self.noted:
            self.data.records.pop(value, None)


@breaks("token-walk")
class EndsAfterExpiredRecords(Correct):
    """Five hundred rows are read for a page; if all of them have expired, it is the last one."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(cursor, 500, now)
        records = page.records[:count]
        more = page.next or len(page.records) > count
        return TokenPage(records, records[-1].value.hex() if records and more else "")


@breaks("token-deleted")
class KeepsRestoredRecords(NotingRestored):
    """What was restored is in the index of expired records only once it was opened again."""

    def may_delete(self, expired: TokenRecord) -> bool:
        return expired.value not in self.noted
