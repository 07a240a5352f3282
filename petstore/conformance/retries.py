"""Clauses of retries: a write that comes again with the same token takes effect once."""

import asyncio
import hashlib

import pytest

from petstore.conformance.calls import cancel_after
from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import ABSENT, AT, add, check_agreement
from petstore.contract import (
    ConflictError,
    NewPet,
    NotFoundError,
    OrderStatus,
    PetStatus,
    Receipt,
    Repository,
    Retry,
    TokenReusedError,
)

NOW = 1_795_253_400
DAY = 24 * 60 * 60
REX = NewPet("Rex", 7, PetStatus.AVAILABLE)


def retry_of(token: str | bytes, what: object, now: int = NOW) -> Retry:
    """Return the retry of a write.

    token -- its 32 bytes, or a name to make them of
    what -- what is written: a `NewPet`, or the id of the animal that is ordered
    """
    if isinstance(token, str):
        token = hashlib.sha256(token.encode()).digest()
    return Retry(token, hashlib.sha256(repr(what).encode()).digest(), now, now + DAY)


async def count(repository: Repository) -> tuple[int, int]:
    """Return how many animals and orders there are."""
    pets = await repository.list_pets(0, 9999, None)
    return len(pets), len(await repository.list_orders(0, 9999, None))


class RetryClauses(Kit):
    """createPet and placeOrder with a `Retry`."""

    @clause("retry-replayed")
    async def test_a_repeated_write_changes_nothing(self, repository: Repository) -> None:
        """The write is carried out again, or the answer is that of another one."""
        first = await repository.create_pet(REX, retry_of("create", REX))
        placed = await repository.place_order(first.id, AT, retry_of("place", first.id))
        assert not first.replayed
        assert not placed.replayed
        for status in (None, OrderStatus.COMPLETED):
            if status is not None:
                await repository.update_order(placed.id, status)
            again = await repository.create_pet(REX, retry_of("create", REX))
            assert again == Receipt(first.id, replayed=True)
            assert type(again.replayed) is bool
            assert type(again.id) is int
            replayed = await repository.place_order(first.id, AT, retry_of("place", first.id))
            assert replayed == Receipt(placed.id, replayed=True)
        assert await count(repository) == (1, 1)
        sold = await repository.get_pet(first.id)
        assert sold is not None
        assert sold.status is PetStatus.SOLD

    @clause("retry-reused")
    async def test_a_token_cannot_be_used_for_another_write(self, repository: Repository) -> None:
        """The fingerprint is not compared, or only after the animal was looked at."""
        first = await repository.create_pet(REX, retry_of("create", REX))
        placed = await repository.place_order(first.id, AT, retry_of("place", first.id))
        for new in (NewPet("Rex", 8, PetStatus.AVAILABLE), NewPet("Rex", 7), NewPet("", 7)):
            with pytest.raises(TokenReusedError):
                await repository.create_pet(new, retry_of("create", new))
        other = await add(repository)
        for pet_id in (other, other + 1000, *ABSENT, -1):
            with pytest.raises(TokenReusedError):
                await repository.place_order(pet_id, AT, retry_of("place", pet_id))
        assert await count(repository) == (2, 1)
        again = await repository.place_order(first.id, AT, retry_of("place", first.id))
        assert again == Receipt(placed.id, replayed=True), "the record is as it was"

    @clause("retry-apart")
    async def test_tokens_that_differ_are_apart(self, repository: Repository) -> None:
        """Tokens are cut, or taken for text; or writes are known by what they write."""
        tokens = [bytes(32), b"\xff" * 32, b"\n" * 32, b"{}" * 16, b"token".ljust(32, b"\0")]
        tokens += [bytes(31 - at) + b"\x01" + bytes(at) for at in range(0, 32, 3)]
        tokens += [b"\xff" * (31 - at) + b"\xfe" + b"\xff" * at for at in range(0, 32, 3)]
        ids = {}
        for token in tokens:
            receipt = await repository.create_pet(REX, retry_of(token, REX))
            assert not receipt.replayed
            ids[token] = receipt.id
        assert len(set(ids.values())) == len(set(tokens)) == len(tokens)
        for token, number in ids.items():
            again = await repository.create_pet(REX, retry_of(token, REX))
            assert again == Receipt(number, replayed=True)
        without = await repository.create_pet(REX)
        assert not without.replayed
        assert await count(repository) == (len(tokens) + 1, 0)

    @clause("retry-atomic")
    async def test_of_simultaneous_writes_with_one_token_one_takes_effect(
        self, repository: Repository
    ) -> None:
        """The record is written before or after its effect, not with it."""
        creates = [repository.create_pet(REX, retry_of("create", REX)) for _ in range(40)]
        receipts = await asyncio.gather(*creates)
        (pet_id,) = {receipt.id for receipt in receipts}
        assert [receipt.replayed for receipt in receipts].count(False) == 1
        places = [repository.place_order(pet_id, AT, retry_of("p", pet_id)) for _ in range(40)]
        receipts = await asyncio.gather(*places)
        assert len({receipt.id for receipt in receipts}) == 1
        assert [receipt.replayed for receipt in receipts].count(False) == 1
        assert await count(repository) == (1, 1)
        for turns in range(12):
            before, orders = await count(repository)
            retry = retry_of(f"cancelled {turns}", REX)
            await cancel_after(turns, [asyncio.create_task(repository.create_pet(REX, retry))])
            receipt = await repository.create_pet(REX, retry)
            pet_id = receipt.id
            retry = retry_of(f"cancelled order {turns}", pet_id)
            order = asyncio.create_task(repository.place_order(pet_id, AT, retry))
            await cancel_after(turns, [order])
            receipt = await repository.place_order(pet_id, AT, retry)
            assert await count(repository) == (before + 1, orders + 1)
            found = await repository.get_order(receipt.id)
            assert found is not None
            assert found.pet_id == pet_id
        await check_agreement(repository)

    @clause("retry-refused")
    async def test_a_refused_write_records_nothing(self, repository: Repository) -> None:
        """The record is written before it is known whether the write is possible."""
        pet_id = await add(repository)
        first = await repository.place_order(pet_id, AT)
        retry = retry_of("place", pet_id)
        for _ in range(2):
            with pytest.raises(ConflictError):
                await repository.place_order(pet_id, AT, retry)
        await repository.update_order(first.id, OrderStatus.CANCELLED)
        receipt = await repository.place_order(pet_id, AT, retry)
        assert not receipt.replayed
        assert receipt.id != first.id
        with pytest.raises(NotFoundError):
            await repository.place_order(ABSENT[0], AT, retry_of("absent", ABSENT[0]))
        other = await add(repository)
        again = await repository.place_order(other, AT, retry_of("absent", other))
        assert not again.replayed


class ClockClauses(Kit):
    """What depends on the time that a `Retry` says: where the service says it, not run."""

    @clause("retry-expired")
    async def test_a_record_is_forgotten_when_its_time_is_over(
        self, repository: Repository
    ) -> None:
        """The backend has a clock of its own, a replay prolongs the record, or it never ends."""
        first = await repository.create_pet(REX, retry_of("create", REX))
        placed = await repository.place_order(first.id, AT, retry_of("place", first.id))
        for now in (NOW, NOW + 1, NOW + DAY - 1):
            again = await repository.create_pet(REX, retry_of("create", REX, now))
            assert again == Receipt(first.id, replayed=True)
            again = await repository.place_order(first.id, AT, retry_of("place", first.id, now))
            assert again == Receipt(placed.id, replayed=True)
        new = NewPet("other", 8)
        second = await repository.create_pet(new, retry_of("create", new, NOW + DAY))
        assert not second.replayed
        assert second.id != first.id
        with pytest.raises(ConflictError):
            await repository.place_order(first.id, AT, retry_of("place", first.id, NOW + DAY))
        for other in range(20):  # whatever tidies up must not take the new record
            name = f"other {other}"
            await repository.create_pet(REX, retry_of(name, REX, NOW + DAY + other))
        again = await repository.create_pet(new, retry_of("create", new, NOW + 2 * DAY - 1))
        assert again == Receipt(second.id, replayed=True)
        third = await repository.create_pet(new, retry_of("create", new, NOW + 2 * DAY))
        assert not third.replayed
