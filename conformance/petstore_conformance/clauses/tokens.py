"""Clauses of tokens: a write that is repeated with the same token takes effect once."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat

import pytest
from msgspec.structs import replace

from petstore.contract import (
    ConflictError,
    IdempotencyToken,
    NewPet,
    NotFoundError,
    OrderStatus,
    PetStatus,
    Receipt,
    Repository,
    TokenReusedError,
)
from petstore_conformance.clauses.orders import add_pet, check_agreement, status_of
from petstore_conformance.harness.effort import fill, measure, sample, yield_to_others
from petstore_conformance.harness.kit import Kit, Location, clause, location_clause
from petstore_conformance.model.calls import cancel, kind, one_effect
from petstore_conformance.model.model import Payload, send
from petstore_conformance.model.reads import check_types, read_all
from petstore_conformance.model.values import (
    AT,
    DAY_SECONDS,
    DIGESTS,
    MANY,
    NOW,
    PAST,
    REX,
    SPANS,
    absent_ids,
    make_token,
    record_of,
)


async def count_stored(repository: Repository) -> tuple[int, int]:
    """Return how many pets and how many orders are stored."""
    stored = await read_all(repository)
    return len(stored.pets), len(stored.orders)


async def create_many(repository: Repository, count: int = MANY, now: int = NOW) -> list[Receipt]:
    """Create pets, each with its own token; the same tokens in each call. Return the receipts."""
    return await fill(count, lambda n: repository.create_pet(REX, make_token(f"many {n}", n, now)))


class TokenClauses(Kit):
    """Clauses of `create_pet` and `place_order` with an `IdempotencyToken`."""

    @clause("token-replayed")
    async def test_a_repeated_write_changes_nothing(self, repository: Repository) -> None:
        """The write takes effect again, or the receipt of another write is returned."""
        creating, _ = make_token("create", REX), await add_pet(repository)
        first = await repository.create_pet(REX, creating)
        placing = make_token("place", first.id)
        placed = await repository.place_order(first.id, AT, placing)
        assert not first.replayed
        assert not placed.replayed

        async def repeat_both() -> None:
            again = await repository.create_pet(REX, creating)
            assert again == replace(first, replayed=True)
            placed_again = await repository.place_order(first.id, AT, placing)
            assert placed_again == replace(placed, replayed=True)
            check_types([again, placed_again])

        await repeat_both()
        await repository.update_order(placed.id, OrderStatus.COMPLETED)
        await repeat_both()
        assert await count_stored(repository) == (2, 1)
        assert await status_of(repository, first.id) is PetStatus.SOLD
        receipts = await create_many(repository)
        for number in range(0, len(receipts), 37):  # some of them, from the first on
            again = await repository.create_pet(REX, make_token(f"many {number}", number))
            assert again == replace(receipts[number], replayed=True)

    @clause("token-reused")
    async def test_a_token_cannot_be_used_for_another_write(self, repository: Repository) -> None:
        """The fingerprint is not compared, or only after the pet has been checked."""
        first = await repository.create_pet(REX, make_token("create", REX))
        placed = await repository.place_order(first.id, AT, make_token("place", first.id))
        for new in (NewPet("Rex", 8, PetStatus.AVAILABLE), NewPet("Rex", 7), NewPet("", 7)):
            with pytest.raises(TokenReusedError):
                await repository.create_pet(new, make_token("create", new))
        other = await add_pet(repository)
        for pet_id in (other, *absent_ids(first.id, other), -1, 2**63 - 1):
            with pytest.raises(TokenReusedError):
                await repository.place_order(pet_id, AT, make_token("place", pet_id))
        assert await count_stored(repository) == (2, 1)
        again = await repository.place_order(first.id, AT, make_token("place", first.id))
        assert again == Receipt(placed.id, replayed=True), "the record was changed"
        await self._write_two_at_once(repository)
        if self.remote:  # a service makes the tokens, for each operation
            return
        with pytest.raises(TokenReusedError):  # a token of one operation in another
            await repository.place_order(other, AT, make_token("create", other))
        with pytest.raises(TokenReusedError):
            await repository.create_pet(REX, make_token("place", REX))
        # Fingerprints that differ from the recorded ones in little.
        digests = await sample(repository, DIGESTS, together=True)
        for base in (bytes(32), b"\xff" * 32, DIGESTS[-1]):
            token = IdempotencyToken(base, base, NOW, NOW + DAY_SECONDS)
            await repository.create_pet(REX, token)
            stored = await count_stored(repository)
            others = [replace(token, fingerprint=digest) for digest in digests if digest != base]
            creates = (repository.create_pet(REX, other) for other in others)
            results = await asyncio.gather(*creates, return_exceptions=True)
            assert {kind(result) for result in results} == {TokenReusedError}, results
            assert await count_stored(repository) == stored

    @location_clause("token-apart")
    async def test_different_tokens_do_not_affect_each_other(self, location: Location) -> None:
        """Tokens are cut or treated as text, or writes are identified by what they store."""
        async with location.open() as repository:
            values = await sample(repository, DIGESTS, together=True)
            await self._use_each(repository, values, [REX] * len(values))
            assert not (await repository.create_pet(REX)).replayed
            assert await count_stored(repository) == (len(values) + 1, 0)
        async with location.new() as other, other.open() as repository:  # the same tokens
            pet_ids = await asyncio.gather(*(add_pet(repository) for _ in values))
            await self._use_each(repository, values, pet_ids)
            assert await count_stored(repository) == (len(values), len(values))

    async def _use_each(
        self, repository: Repository, values: Sequence[bytes], payloads: Sequence[Payload]
    ) -> None:
        """Make a write with each token, all at once and then again; two have one fingerprint."""
        writes = [
            (payload, IdempotencyToken(value, values[number // 2], NOW, NOW + DAY_SECONDS))
            for number, (payload, value) in enumerate(zip(payloads, values, strict=True))
        ]
        receipts = await asyncio.gather(*(send(repository, *write) for write in writes))
        assert not any(receipt.replayed for receipt in receipts)
        assert len({receipt.id for receipt in receipts}) == len(values)
        again = await asyncio.gather(*(send(repository, *write) for write in writes))
        assert again == [replace(receipt, replayed=True) for receipt in receipts]

    @clause("token-atomic")
    async def test_of_overlapping_writes_with_one_token_one_takes_effect(
        self, repository: Repository
    ) -> None:
        """The record is stored before or after the effect, not in the same atomic step."""
        creates = [repository.create_pet(REX, make_token("create", REX)) for _ in range(40)]
        pet_id = one_effect(await asyncio.gather(*creates))
        placings = [repository.place_order(pet_id, AT, make_token("p", pet_id)) for _ in range(40)]
        one_effect(await asyncio.gather(*placings))
        assert await count_stored(repository) == (1, 1)
        if not self.remote:
            await self._use_expired_tokens(repository)
        await self._cancel_one_of_several(repository)
        await check_agreement(repository)

    async def _cancel_one_of_several(self, repository: Repository) -> None:
        """Cancel one of several writes with one token; the others take effect once."""
        length, _ = await measure(repository.create_pet(REX, make_token("measured", REX)))
        for tenth in range(10):
            pets, orders = await count_stored(repository)
            for payload in (REX, await add_pet(repository)):
                token = make_token(f"cancelled {tenth} {payload}", payload)
                tasks = [asyncio.create_task(send(repository, payload, token)) for _ in range(3)]
                await length.wait(tenth)
                cancelled = tasks.pop(tenth % 3)  # one that leads the others, or waits for them
                ending = asyncio.create_task(cancel([cancelled]))
                await yield_to_others()
                more = (send(repository, payload, token) for _ in range(2))
                results = await asyncio.gather(*tasks, *more, return_exceptions=True)
                await ending
                assert [kind(result) for result in results] == [Receipt] * 4, results
                assert len({result.id for result in results if isinstance(result, Receipt)}) == 1
            assert await count_stored(repository) == (pets + 2, orders + 1)

    async def _use_expired_tokens(self, repository: Repository) -> None:
        """Make writes at once whose token has expired: they are one write."""

        async def write(payload: Payload, token: IdempotencyToken, iterations: int) -> Receipt:
            await yield_to_others(iterations)
            return await send(repository, payload, token)

        for delay in range(3):  # the next one begins so many iterations of the event loop later
            now = NOW + 3 * (delay + 1) * DAY_SECONDS
            for payload in (REX, await add_pet(repository)):
                token = make_token(f"expired {type(payload)}", "the same", now)
                await repository.create_pet(REX, replace(token, now=now - DAY_SECONDS, until=now))
                writes = (write(payload, token, number * delay) for number in range(3))
                one_effect(await asyncio.gather(*writes))

    async def _write_two_at_once(self, repository: Repository) -> None:
        """Make two different writes with one token, each four times: only one has an effect."""
        for attempt in range(5):
            first, *pet_ids = [await add_pet(repository) for _ in range(3)]
            news = [NewPet("Rex", number, PetStatus.AVAILABLE) for number in range(2)]
            lists: list[Sequence[Payload]] = [news * 4, pet_ids * 4]
            lists += [] if self.remote else [[news[0], first]]  # a service makes its own
            before = sum(await count_stored(repository))
            for number, payloads in enumerate(lists):
                tokens = (make_token(f"two {attempt} {number}", it) for it in payloads)
                writes = map(send, repeat(repository), payloads, tokens)
                results = await asyncio.gather(*writes, return_exceptions=True)
                one_effect(results)
                assert {kind(result) for result in results} == {Receipt, TokenReusedError}, results
            assert sum(await count_stored(repository)) == before + len(lists)
        await check_agreement(repository)

    @clause("token-refused")
    async def test_a_refused_write_records_nothing(self, repository: Repository) -> None:
        """The record is stored before it is known whether the write is refused."""
        pet_id = await add_pet(repository)
        first = await repository.place_order(pet_id, AT)
        token = make_token("place", pet_id)
        for at_once in (1, 8):  # nor is any of these taken for recorded meanwhile
            placings = (repository.place_order(pet_id, AT, token) for _ in range(at_once))
            results = await asyncio.gather(*placings, return_exceptions=True)
            assert {kind(result) for result in results} == {ConflictError}, results
        await repository.update_order(first.id, OrderStatus.CANCELLED)
        receipt = await repository.place_order(pet_id, AT, token)
        assert not receipt.replayed
        assert receipt.id != first.id
        absent = absent_ids(pet_id)[-1]
        with pytest.raises(NotFoundError):
            await repository.place_order(absent, AT, make_token("absent", absent))
        other = await add_pet(repository)
        assert not (await repository.place_order(other, AT, make_token("absent", other))).replayed


class ExpiryClauses(Kit):
    """The clause that needs control of the clock, which a running service does not give."""

    @clause("token-expired")
    async def test_an_expired_record_counts_as_absent(self, repository: Repository) -> None:
        """The backend reads its own clock, a replay extends the record, or it never expires."""
        await self._expire_one_by_one(repository, PAST - 1)  # a time of nine digits, then of ten
        pet_id = await add_pet(repository)
        placed = await repository.place_order(pet_id, AT, make_token("place", pet_id))
        in_time = make_token("place", pet_id, NOW + DAY_SECONDS - 1)
        assert await repository.place_order(pet_id, AT, in_time) == replace(placed, replayed=True)
        late = make_token("place", pet_id, NOW + DAY_SECONDS)
        for _ in range(2):  # a refused write must not revive the record
            with pytest.raises(ConflictError):
                await repository.place_order(pet_id, AT, late)
        for _ in range(2):  # expired from the beginning
            at_once = make_token("at once", REX, seconds=0)
            assert not (await repository.create_pet(REX, at_once)).replayed
        # These records expire after the last second that 32 bits can count.
        await self._expire_together(repository, 2**32 - DAY_SECONDS // 2)
        await self._expire_beside_slow_clocks(repository, 2**32 + 10 * DAY_SECONDS)
        last = make_token("last", REX, 2**53 - 2, 1)  # `until` is the last second of all
        receipt = await repository.create_pet(REX, last)
        assert await repository.create_pet(REX, last) == replace(receipt, replayed=True)
        assert not (await repository.create_pet(REX, replace(last, now=last.until))).replayed

    async def _expire_beside_slow_clocks(self, repository: Repository, begin: int) -> None:
        """Use tokens that have expired, while callers with slower clocks use others."""
        for position in range(4):  # so many of the others come first
            now = begin + position * DAY_SECONDS
            for payloads in ([REX] * 4, [await add_pet(repository) for _ in range(4)]):
                expired = make_token(f"expired {payloads}", "another", now, 10)
                await repository.create_pet(REX, expired)
                tokens = [make_token(f"slow {n} {payloads}", REX, now) for n in range(3)]
                tokens.insert(position, make_token(f"expired {payloads}", REX, now + 10, 10))
                for is_again in (False, True):  # the fingerprints are now those of the later writes
                    writes = map(send, repeat(repository), payloads, tokens)
                    replayed = {receipt.replayed for receipt in await asyncio.gather(*writes)}
                    assert replayed == {is_again}

    async def _expire_together(self, repository: Repository, begin: int) -> None:
        """Use hundreds of tokens again at once, of which the records have just expired."""
        number = len(await sample(repository, range(300), together=True))
        times = begin, begin + DAY_SECONDS, begin + DAY_SECONDS
        first, second, third = [await create_many(repository, number, now) for now in times]
        assert len({receipt.id for receipt in (*first, *second)}) == len(first) + len(second)
        for receipt, again in zip(second, third, strict=False):  # a slow one makes fewer of either
            assert again == replace(receipt, replayed=True)

    async def _expire_one_by_one(self, repository: Repository, begin: int) -> None:
        """Let many records expire, each when it must, whatever is tried with it before."""
        written = list[tuple[IdempotencyToken, int]]()
        for seconds in sorted(SPANS, key=lambda span: hashlib.sha256(b"%d" % span).digest()):
            token = make_token(f"for {seconds}", REX, begin, seconds)  # in no order of time
            receipt = await repository.create_pet(REX, token)
            # Restored records expire, too; here not before they have by any other clock.
            restored = make_token(f"restored {seconds}", REX, begin, seconds + NOW - begin)
            await repository.restore([record_of(restored, receipt.id)])
            written += [(token, receipt.id), (restored, receipt.id)]
        await asyncio.sleep(1.1)  # with a server's own time to live, the first would expire
        slow_clock = latest_clock = begin - 1000
        for token, id_ in sorted(written, key=lambda it: it[0].until):
            for now in (slow_clock, begin, token.until - 1):
                if now < latest_clock:
                    continue  # the record may be gone by now: another call found it expired
                for until in (now, now + 10 * DAY_SECONDS):  # a replay changes nothing
                    later = replace(token, now=now, until=until)
                    assert await repository.create_pet(REX, later) == Receipt(id_, replayed=True)
                with suppress(TokenReusedError):  # nor does a reuse
                    await repository.create_pet(REX, replace(later, fingerprint=bytes(32)))
            latest_clock = end = token.until
            expired = replace(token, now=end, until=end + 1, fingerprint=bytes(32))
            assert not (await repository.create_pet(REX, expired)).replayed
