"""What a backend may do wrong with the records of tokens when they move."""

from collections.abc import Callable, Sequence
from datetime import datetime
from time import monotonic, time
from typing import Any

from msgspec.structs import replace

from conformance.tests.correct import Correct, Item, Store, Token, backend
from conformance.tests.saboteurs.registry import SABOTEURS, breaks
from petstore.contract import (
    ConflictError,
    Pet,
    Receipt,
    TokenPage,
    TokenRecord,
)


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
class EndsAtAnEmptyPage(Correct):
    """A page without records is taken for the last one."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(cursor, count, now)
        return page if page.records else TokenPage([], "")


@breaks("token-walk")
class EndsAfterAThousand(Correct):
    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        values = sorted(self.data.records)
        page = await super().list_tokens(cursor, count, now)
        beyond = len(values) > 1000 and page.next >= values[999].hex()
        return replace(page, next="" if beyond else page.next)


@breaks("token-walk")
class ContinuesAtARecordThatMayBeDeleted(Correct):
    """The record that a cursor names has been deleted: it expired after its page was read."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        gone = cursor and bytes.fromhex(cursor) not in self.data.records
        return TokenPage([], "") if gone else await super().list_tokens(cursor, count, now)


@breaks("token-deleted")
class KeepsExpiredRecords(Correct):
    def may_delete(self, _expired: TokenRecord) -> bool:
        return False


@breaks("token-deleted")
class DeletesOnlyWhatItHasWritten(Correct):
    """What has expired is found by a queue in memory, which is empty after reopening."""

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        if token is not None:
            self.noted.add(token.value)

    def may_delete(self, expired: TokenRecord) -> bool:
        return expired.value in self.noted


@breaks("token-deleted")
class IsHeldUpByFastClocks(Correct):
    """Considers only the two oldest records, whether or not the caller may delete them."""

    def may_delete(self, expired: TokenRecord) -> bool:
        return expired.value in [*self.data.records][:2]


class Clocked(Correct):
    """Keeps a record until it has expired by a clock of its own, too."""

    def clock(self) -> float:
        return monotonic()

    def record(self, token: Token, id_: int) -> None:
        super().record(token, id_)
        if token is not None:
            ends = self.data.extra.setdefault("ends", {})
            ends[token.value] = self.clock() + token.until - token.now

    def may_delete(self, expired: TokenRecord) -> bool:
        return bool(self.data.extra["ends"][expired.value] <= self.clock())


@breaks("token-deleted")
class BeginsItsClockWhenItIsOpened(Clocked):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.opened = monotonic()

    def clock(self) -> float:
        return super().clock() - self.opened


@breaks("token-deleted")
class CountsTheSecondsInWhichItWrites(Clocked):
    """Its clock goes on by a second at most with each write, however long ago the last one was."""

    def clock(self) -> float:
        return float(self.data.extra.get("clock", 0))

    def record(self, token: Token, id_: int) -> None:
        last = self.data.extra.get("last", monotonic())
        self.data.extra["clock"] = self.clock() + min(monotonic() - last, 1)
        self.data.extra["last"] = monotonic()
        super().record(token, id_)


def restoring(name: str, restore: Callable[[Correct, TokenRecord], None]) -> None:
    """Register a saboteur with its own way to restore a record."""
    breaks("restore-token")(type(name, (Correct,), {"restore_record": restore}))


def _replace_record(self: Correct, record: TokenRecord) -> None:
    self.data.records[record.value] = record


def _compare_fingerprints(self: Correct, record: TokenRecord) -> None:
    stored = self.data.records.get(record.value, record)
    Correct.restore_record(self, replace(record, until=stored.until, id=stored.id))


def _refuse_known(self: Correct, record: TokenRecord) -> None:
    if record.value in self.data.records:
        raise ConflictError("the token is taken")
    self.data.records[record.value] = record


def _cut_fingerprints(self: Correct, record: TokenRecord) -> None:
    stripped = replace(record, fingerprint=record.fingerprint.rstrip())
    if record.value not in self.data.records:
        self.data.records[record.value] = stripped
    elif self.data.records[record.value] not in (record, stripped):
        raise ConflictError("a different record has this token")


restoring("RestoresNoRecords", lambda _, __: None)
restoring("ReplacesDifferentRecords", _replace_record)
restoring("ComparesOnlyFingerprints", _compare_fingerprints)
restoring("RefusesEqualRecords", _refuse_known)
restoring("CutsFingerprints", _cut_fingerprints)


@breaks("restore-token")
class RestoresAThousandRecords(Correct):
    async def restore(self, items: Sequence[Item]) -> None:
        records = [item for item in items if isinstance(item, TokenRecord)]
        await super().restore([item for item in items if item not in records[1000:]])


@breaks("restore-token")
class RestoresRecordsInItsCache(Correct):
    """Of records that are restored together, another handle sees none until this one is closed."""

    async def restore(self, items: Sequence[Item]) -> None:
        self.several = len(items) > 1
        await super().restore(items)

    def restore_record(self, record: TokenRecord) -> None:
        super().restore_record(record)
        if self.several:
            self.data.extra[record.value.hex()] = self

    def find(self, token: Token) -> Receipt | None:
        cached_by = self.data.extra.get(token.value.hex()) if token else None
        hidden = cached_by not in (None, self) and cached_by.open
        return None if hidden else super().find(token)


@breaks("restore-token")
class ReplaysOnlyCreates(Correct):
    """The restored records are in the table of pets."""

    def restore_record(self, record: TokenRecord) -> None:
        super().restore_record(record)
        self.noted.add(record.value)

    async def place_order(self, pet_id: int, at: datetime, token: Token = None) -> Receipt:
        known = token and token.value in self.noted
        return await super().place_order(pet_id, at, None if known else token)


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
class ForgetsRestoredRecords(Correct):
    """They are stored when the next write comes, which may be never."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.restored: list[bytes] = []

    def restore_record(self, record: TokenRecord) -> None:
        super().restore_record(record)
        self.restored.append(record.value)

    def put(self, pet: Pet) -> None:
        super().put(pet)
        self.restored.clear()

    def close(self) -> None:
        super().close()
        for value in self.restored:
            self.data.records.pop(value, None)


@breaks("token-walk")
class EndsAfterExpiredRecords(Correct):
    """Five hundred rows are read for a page; if all of them have expired, it is the last one."""

    async def list_tokens(self, cursor: str, count: int, now: int) -> TokenPage:
        page = await super().list_tokens(cursor, 500, now)
        records = page.records[:count]
        more = page.next or len(page.records) > count
        return TokenPage(records, records[-1].value.hex() if records and more else "")


class NotesRestoredRecords(Correct):
    def restore_record(self, record: TokenRecord) -> None:
        super().restore_record(record)
        self.data.extra.setdefault("restored", set()).add(record.value)

    def was_restored(self, value: bytes) -> bool:
        return value in self.data.extra.get("restored", ())


@breaks("token-deleted")
class KeepsRestoredRecords(NotesRestoredRecords):
    """What was restored is not in the index of times, by which expired records are found."""

    def may_delete(self, expired: TokenRecord) -> bool:
        return not self.was_restored(expired.value)


class ReplaysRestoredRecordsForever(NotesRestoredRecords):
    """A record that was restored has no time to live, until it is opened again."""

    def find(self, token: Token) -> Receipt | None:
        restored = token and self.was_restored(token.value)
        return super().find(replace(token, now=0) if token and restored else token)


# A durable one is caught by `restore-token`, too.
SABOTEURS["ReplaysRestoredRecordsForever"] = (
    "token-expired",
    replace(backend(ReplaysRestoredRecordsForever), durable=False),
)
