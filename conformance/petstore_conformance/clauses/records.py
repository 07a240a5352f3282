"""Clauses of the records of tokens: listed in pages, and restored in another store."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from itertools import cycle, product, repeat
from typing import Any

import pytest
from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    NewPet,
    Order,
    OrderStatus,
    Pet,
    PetStatus,
    Receipt,
    Repository,
    TokenPage,
    TokenRecord,
    TokenReusedError,
)
from petstore_conformance.clauses.orders import add_pet
from petstore_conformance.clauses.restore import pet_and_order
from petstore_conformance.harness.effort import MANY_SECONDS, current, sample, time_limit
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import watch
from petstore_conformance.model.model import Payload, send
from petstore_conformance.model.reads import check_shown, check_types, each, read_all, read_each
from petstore_conformance.model.values import (
    AT,
    DAY_SECONDS,
    DIGESTS,
    NOW,
    PAST,
    REX,
    SPANS,
    make_token,
    record_of,
)

MANY_RECORDS = 2500  # more than an engine returns at once, or takes in one statement
REMEMBERED_RECORDS = 10_500  # more than a memory of ten thousand tokens holds
BATCH = 80  # how many records expire together
LATER = 56  # how many writes come after that: if each deleted only one, too many would be left
KEPT = BATCH // 4  # may be left: a write may find those of a fast clock, or none of its partition
LIFE_SECONDS = 1  # how long these records last, which no clock of a backend's own may hold up
EXPIRED_SECONDS = 2.1  # after this time they have expired, also by a clock of whole seconds

RESTORED_ORDER = Order(2**42, 2**40, OrderStatus.COMPLETED, AT)


def token_of(record: TokenRecord, now: int = NOW) -> IdempotencyToken:
    """Return the token of a retry of the write that left this record."""
    return IdempotencyToken(record.value, record.fingerprint, now, now + DAY_SECONDS)


def short_lived(name: str, now: int, number: int = BATCH) -> list[IdempotencyToken]:
    """Return a number of tokens whose records expire after `LIFE_SECONDS`."""
    return [make_token(f"{name} {n}", REX, now, LIFE_SECONDS) for n in range(number)]


def many_records(id_: int, number: int, now: int = NOW) -> list[TokenRecord]:
    """Return a number of records of writes that were all assigned this id."""
    return [record_of(make_token(f"many {n}", REX, now), id_) for n in range(number)]


async def walk(
    repository: Repository, count: int, now: int = NOW
) -> AsyncIterator[list[TokenRecord]]:
    """Yield the records of each page; fail if the pages do not end."""
    cursor, pages = "", 0
    while pages == 0 or cursor:
        page = await repository.list_tokens(cursor=cursor, count=count, now=now)
        check_types(page.records)
        assert len(page.records) <= max(10 * count, 1000), "a page has far more than `count`"
        yield page.records
        await asyncio.sleep(0)  # so that walks that are made at once take turns
        assert (type(page), type(page.next)) == (TokenPage, str)
        cursor, pages = page.next, pages + 1
        assert pages < 100_000, "the walk does not end"


async def read_records(repository: Repository, count: int, now: int = NOW) -> set[TokenRecord]:
    """Return all records, in pages of about this size."""
    return {record async for records in walk(repository, count, now) for record in records}


async def check_deleted(
    repository: Repository, expired: Iterable[IdempotencyToken | TokenRecord]
) -> None:
    """Check that most of these records are not stored any more."""
    left = {record.value for record in await read_records(repository, 100, now=0)}
    assert len(left & {each.value for each in expired}) <= KEPT, "expired records are still stored"


class RecordClauses(Kit):
    """Clauses of `list_tokens`, and the one of restoring what it returns."""

    @clause("token-walk")
    async def test_a_walk_returns_every_record_in_force(self, repository: Repository) -> None:
        """The cursor is a position or text, or ends at expired records; or some are left out."""
        for size in (1, 10_000):
            assert await read_records(repository, size) == set()
        await self._walk_while_records_expire(repository, PAST - 3 * DAY_SECONDS)
        stored = await self._write_with_tokens(repository, PAST)
        assert await read_records(repository, 3, PAST) == stored
        stored = await self._write_with_tokens(repository, NOW)
        in_time = time_limit(MANY_SECONDS / 2)

        async def read(size: int) -> None:
            found = set[TokenRecord]()
            async for records in walk(repository, size):
                found |= set(records)
                if not in_time():
                    current().note(len(found), len(stored))
                    break
            else:
                assert found == stored
            assert found <= stored

        async def read_later(now: int) -> None:
            living = {record for record in stored if record.until > now}
            assert await read_records(repository, 4, now) == living

        await read_each(repository, (1000, 1, 2, 3, 7, 64, 100, 10, 5, 500), read)
        times = sorted({record.until for record in stored})
        await read_each(repository, times, read_later)
        await self._walk_while_others_write(repository, times[-1])

    async def _write_with_tokens(self, repository: Repository, now: int) -> set[TokenRecord]:
        """Create and order with hostile tokens; return what must be remembered."""
        digests = await sample(repository, DIGESTS, together=True)
        used = set[TokenRecord]()

        async def write(numbered: tuple[int, bytes]) -> None:
            number, digest = numbered
            until = now + SPANS[number % len(SPANS)]
            token = IdempotencyToken(digest, digests[-1 - number], now, until)
            payload = REX if number % 3 else await add_pet(repository)
            used.add(record_of(token, (await send(repository, payload, token)).id))

        await each(enumerate(digests), write)
        return used

    async def _walk_while_records_expire(self, repository: Repository, now: int) -> None:
        """Walk while writes delete expired records, also that at which a page has ended."""
        numbers = await sample(repository, range(8))
        trials = product(numbers, (1, DAY_SECONDS))
        tokens = [make_token(f"{n} {seconds}", REX, now, seconds) for n, seconds in trials]
        receipts = await asyncio.gather(*(repository.create_pet(REX, t) for t in tokens))
        stored = {record_of(token, r.id) for token, r in zip(tokens, receipts, strict=True)}
        expiring = {record for record in stored if record.until == now + 1}
        late = make_token("late", REX, now + 1, 0)  # adds a single record
        await asyncio.sleep(1.1)  # now they have expired by the backend's own clock, too
        found = set[TokenRecord]()
        async for records in walk(repository, 1, now):
            found |= set(records)
            # Records before the page are deleted, so that those after it have other positions.
            if expiring & set(records) and 2 * len(expiring & found) >= len(expiring):
                for _ in numbers:
                    await repository.create_pet(REX, late)
        assert stored - expiring <= found

    async def _walk_while_others_write(self, repository: Repository, now: int) -> None:
        """Walk through many records while others use tokens: none of the many is missing."""
        many = set(many_records((await repository.create_pet(REX)).id, MANY_RECORDS, now))
        await repository.restore([*many])
        added = set[TokenRecord]()

        async def write() -> None:
            token = make_token(f"added {len(added)}", REX, now)
            added.add(record_of(token, (await repository.create_pet(REX, token)).id))
            await repository.create_pet(REX, token)  # replayed

        found = await watch(partial(read_records, repository, 50, now), [write])
        assert many <= found <= many | added
        assert await read_records(repository, MANY_RECORDS, now) == many | added
        left = set[TokenRecord]()
        for payload in (REX, await add_pet(repository), None):  # each write is seen at once
            found = await read_records(repository, MANY_RECORDS, now + DAY_SECONDS)
            assert found == left, "all others expire"
            if payload:
                token = make_token(f"last {payload}", payload, now, 2 * DAY_SECONDS)
                left.add(record_of(token, (await send(repository, payload, token)).id))
        assert await read_records(repository, 50, now + DAY_SECONDS) == left

    @location_clause("token-deleted")
    async def test_expired_records_do_not_pile_up(self, location: Location) -> None:
        """Not every write deletes two, restored ones stay, renewed ones go, or a clock errs."""
        async with location.new() as other, location.new() as third:
            bursts = self._write_at_once(location, REX), self._write_at_once(third)
            tried = asyncio.gather(*bursts, self._create_later(other), return_exceptions=True)
            for failure in filter(None, await tried):  # once all have left their locations
                raise failure

    async def _write_at_once(self, location: Location, new: NewPet | None = None) -> None:
        """Write records, some of the year 2286; when the others have expired, write in a burst.

        new -- what is created then; by default, orders are placed
        """
        async with location.open_several(2) as handles:
            repository, other = handles[0], handles[-1]
            ahead = [*short_lived("ahead", 10**10, 6), make_token("a day ahead", REX, 10**10 + 9)]
            for token in ahead:  # the last one deletes two of the others
                await repository.create_pet(REX, token)
            (renewed,) = short_lived("renewed", PAST, 1)
            receipt = await repository.create_pet(REX, renewed)
            expired = short_lived("expired", PAST)
            for number, token in enumerate(expired):
                if number % 3:
                    await send(other, REX if number % 2 else await add_pet(other), token)
                else:
                    await repository.restore([record_of(token, receipt.id)])
            await asyncio.sleep(EXPIRED_SECONDS)
            later = replace(renewed, now=renewed.until, until=PAST + 99 * DAY_SECONDS)
            receipt = await repository.create_pet(REX, later)  # what is deleted first is in force
            tokens = short_lived("later", PAST + 40 * DAY_SECONDS, LATER)
            payloads = [new or await add_pet(repository) for _ in tokens]
            await asyncio.gather(*map(send, repeat(repository), payloads, tokens))
            await check_deleted(repository, expired)
            assert await repository.create_pet(REX, later) == replace(receipt, replayed=True)
            assert (await repository.create_pet(REX, ahead[-1])).replayed

    async def _create_later(self, location: Location) -> None:
        """Restore records; create pets once they have expired, each after reopening the store."""
        async with AsyncExitStack() as stack:
            repository = await stack.enter_async_context(location.open())
            id_ = (await repository.create_pet(REX)).id
            expired = [record_of(token, id_) for token in short_lived("expired", PAST)]
            await repository.restore(expired)
            await asyncio.sleep(EXPIRED_SECONDS)
            for token in short_lived("later", PAST + 40 * DAY_SECONDS, LATER):
                if location.backend.durable:
                    await stack.aclose()
                    repository = await stack.enter_async_context(location.open())
                await repository.create_pet(REX, token)
            await check_deleted(repository, expired)

    @location_clause("restore-token")
    async def test_a_restored_record_is_in_force_at_once(self, location: Location) -> None:
        """Records are skipped, kept where only a restore looks, replaced, or soon forgotten."""
        async with location.open() as repository:
            pets = [Pet(2**40 + n, "Rex", 7, PetStatus.SOLD) for n in range(3)]
            created = [record_of(make_token(f"create {pet.id}", pet), pet.id) for pet in pets]
            of_another_kind = Pet(2**42, "Rex", 7), Order(2**40, 2**42, OrderStatus.CANCELLED, AT)
            await repository.restore([*pets, *of_another_kind, RESTORED_ORDER, *created])
            old = make_token("old", REX, PAST)  # it has expired by the clock of any server
            await repository.restore([record_of(old, pets[0].id)])
            await repository.check()  # called once a second, and deletes none
            assert await repository.create_pet(REX, old) == Receipt(pets[0].id, replayed=True)
            ids = pets[0].id, RESTORED_ORDER.id
            digests = await sample(repository, DIGESTS, together=True)
            until = repeat(NOW + DAY_SECONDS)
            hostile = list(map(TokenRecord, digests, digests[::-1], until, cycle(ids)))
            many = many_records(pets[1].id, REMEMBERED_RECORDS)
            await repository.restore(hostile)
            await repository.restore([*many, *created])
            await repository.create_pet(REX, make_token("one more", REX))
            # Of the many some are enough, if the first is one that a full memory forgets.
            records = await sample(repository, [*created, *hostile, *many[::400]], together=True)
            await self._replay(repository, records)
            if location.backend.shared:
                async with location.open() as other:
                    await self._replay(other, records)
                    late = record_of(make_token("late", REX), pets[2].id)
                    await other.restore([late])
                    await self._replay(repository, [late])
            await self._restore_again(repository, records)
            for record in records[::50]:
                await self._refuse_different(repository, record)
            last = record_of(make_token("last", REX), pets[0].id)  # no write follows
            await repository.restore([last])
        if location.backend.durable:
            async with location.open() as repository:
                await self._replay(repository, [*records, last])
                expired = token_of(created[0], created[0].until)
                assert not (await repository.create_pet(REX, expired)).replayed

    async def _replay(self, repository: Repository, records: Sequence[TokenRecord]) -> None:
        """Retry the writes of records; and use their tokens for others, which is refused."""
        before = await read_all(repository)

        async def replay(record: TokenRecord) -> None:
            token, receipt = token_of(record), Receipt(record.id, replayed=True)
            other = replace(token, fingerprint=bytes(255 - byte for byte in token.fingerprint))
            payload: Payload = RESTORED_ORDER.pet_id if record.id == RESTORED_ORDER.id else REX
            assert await send(repository, payload, token) == receipt
            with pytest.raises(TokenReusedError):  # of either kind
                await send(repository, REX if record.value[0] % 2 else -1, other)

        await each(records, replay)
        assert await read_all(repository) == before

    async def _restore_again(self, repository: Repository, records: Sequence[TokenRecord]) -> None:
        """Restore what is stored, and what a write has left: all of it is skipped."""
        token = make_token("written", REX)
        written = record_of(token, (await repository.create_pet(REX, token)).id)
        pet = Pet(2**41, "Rex", 7)
        new = record_of(make_token("new", REX), pet.id)
        await repository.restore([*records, written, pet, written, new, new, *reversed(records)])
        assert await repository.get_pet(pet.id) == pet
        for record in (written, record_of(make_token("at once", REX), RESTORED_ORDER.id)):
            with pytest.raises(ConflictError):
                await repository.restore([record, replace(record, id=pet.id)])
        await self._replay(repository, [*records[:2], written, new])

    async def _refuse_different(self, repository: Repository, record: TokenRecord) -> None:
        """Restore what differs in one field, after items of each kind, which are stored."""
        flipped = bytes([*record.fingerprint[:-1], record.fingerprint[-1] ^ 1])
        others: list[Any] = [
            replace(record, fingerprint=flipped),
            replace(record, until=record.until + 1),
            replace(record, until=record.until - 1),
            replace(record, id=record.id + 1),
            replace(RESTORED_ORDER, placed_at=AT + timedelta(microseconds=1)),
            Pet(RESTORED_ORDER.pet_id, "another", 7, PetStatus.SOLD),
        ]
        for other, id_ in zip(others, (await read_all(repository)).free_ids(2**43), strict=False):
            before = record_of(make_token(f"before {id_}", REX), record.id)
            with pytest.raises(ConflictError):
                await repository.restore([before, *pet_and_order(id_), other])
            await check_shown(repository, pet_and_order(id_)[1])
            await self._replay(repository, [before, record])
