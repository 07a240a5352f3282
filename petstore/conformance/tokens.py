"""Clauses of tokens: a write that is repeated with the same token takes effect once."""

import asyncio
import hashlib

import pytest

from petstore.conformance.concurrency import cancel_after
from petstore.conformance.kit import Kit, clause
from petstore.conformance.orders import ABSENT_IDS, AT, add_pet, check_agreement
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

NOW = 1_795_253_400
DAY_SECONDS = 24 * 60 * 60
REX = NewPet("Rex", 7, PetStatus.AVAILABLE)


def make_token(value: str | bytes, payload: object, now: int = NOW) -> IdempotencyToken:
    """Return a token that is valid for a day.

    value -- its 32 bytes, or a name to hash to 32 bytes
    payload -- what the write stores: a `NewPet`, or the id of the pet that is ordered
    now -- the caller's clock, in seconds since 1970
    """
    if isinstance(value, str):
        value = hashlib.sha256(value.encode()).digest()
    fingerprint = hashlib.sha256(repr(payload).encode()).digest()
    return IdempotencyToken(value, fingerprint, now, now + DAY_SECONDS)


async def count_stored(repository: Repository) -> tuple[int, int]:
    """Return how many pets and how many orders are stored."""
    pets = await repository.list_pets(0, 9999, None)
    return len(pets), len(await repository.list_orders(0, 9999, None))


class TokenClauses(Kit):
    """Clauses of `create_pet` and `place_order` with an `IdempotencyToken`."""

    @clause("token-replayed")
    async def test_a_repeated_write_changes_nothing(self, repository: Repository) -> None:
        """The write takes effect again, or the receipt of another write is returned."""
        first = await repository.create_pet(REX, make_token("create", REX))
        placed = await repository.place_order(first.id, AT, make_token("place", first.id))
        assert not first.replayed
        assert not placed.replayed
        for status in (None, OrderStatus.COMPLETED):
            if status is not None:
                await repository.update_order(placed.id, status)
            again = await repository.create_pet(REX, make_token("create", REX))
            assert again == Receipt(first.id, replayed=True)
            assert type(again.replayed) is bool
            assert type(again.id) is int
            replayed = await repository.place_order(first.id, AT, make_token("place", first.id))
            assert replayed == Receipt(placed.id, replayed=True)
        assert await count_stored(repository) == (1, 1)
        sold = await repository.get_pet(first.id)
        assert sold is not None
        assert sold.status is PetStatus.SOLD

    @clause("token-reused")
    async def test_a_token_cannot_be_used_for_another_write(self, repository: Repository) -> None:
        """The fingerprint is not compared, or only after the pet has been checked."""
        first = await repository.create_pet(REX, make_token("create", REX))
        placed = await repository.place_order(first.id, AT, make_token("place", first.id))
        for new in (NewPet("Rex", 8, PetStatus.AVAILABLE), NewPet("Rex", 7), NewPet("", 7)):
            with pytest.raises(TokenReusedError):
                await repository.create_pet(new, make_token("create", new))
        other = await add_pet(repository)
        for pet_id in (other, other + 1000, *ABSENT_IDS, -1):
            with pytest.raises(TokenReusedError):
                await repository.place_order(pet_id, AT, make_token("place", pet_id))
        assert await count_stored(repository) == (2, 1)
        again = await repository.place_order(first.id, AT, make_token("place", first.id))
        assert again == Receipt(placed.id, replayed=True), "the record was changed"

    @clause("token-apart")
    async def test_different_tokens_do_not_affect_each_other(self, repository: Repository) -> None:
        """Tokens are cut or treated as text, or writes are identified by what they store."""
        values = [bytes(32), b"\xff" * 32, b"\n" * 32, b"{}" * 16, b"token".ljust(32, b"\0")]
        values += [bytes(31 - at) + b"\x01" + bytes(at) for at in range(0, 32, 3)]
        values += [b"\xff" * (31 - at) + b"\xfe" + b"\xff" * at for at in range(0, 32, 3)]
        ids = {}
        for value in values:
            receipt = await repository.create_pet(REX, make_token(value, REX))
            assert not receipt.replayed
            ids[value] = receipt.id
        assert len(set(ids.values())) == len(set(values)) == len(values)
        for value, pet_id in ids.items():
            again = await repository.create_pet(REX, make_token(value, REX))
            assert again == Receipt(pet_id, replayed=True)
        without = await repository.create_pet(REX)
        assert not without.replayed
        assert await count_stored(repository) == (len(values) + 1, 0)

    @clause("token-atomic")
    async def test_of_overlapping_writes_with_one_token_one_takes_effect(
        self, repository: Repository
    ) -> None:
        """The record is stored before or after the effect, not in the same atomic step."""
        creates = [repository.create_pet(REX, make_token("create", REX)) for _ in range(40)]
        receipts = await asyncio.gather(*creates)
        (pet_id,) = {receipt.id for receipt in receipts}
        assert [receipt.replayed for receipt in receipts].count(False) == 1
        placings = [repository.place_order(pet_id, AT, make_token("p", pet_id)) for _ in range(40)]
        receipts = await asyncio.gather(*placings)
        assert len({receipt.id for receipt in receipts}) == 1
        assert [receipt.replayed for receipt in receipts].count(False) == 1
        assert await count_stored(repository) == (1, 1)
        for turns in range(12):
            pets, orders = await count_stored(repository)
            token = make_token(f"cancelled {turns}", REX)
            await cancel_after(turns, [asyncio.create_task(repository.create_pet(REX, token))])
            receipt = await repository.create_pet(REX, token)
            pet_id = receipt.id
            token = make_token(f"cancelled order {turns}", pet_id)
            order = asyncio.create_task(repository.place_order(pet_id, AT, token))
            await cancel_after(turns, [order])
            receipt = await repository.place_order(pet_id, AT, token)
            assert await count_stored(repository) == (pets + 1, orders + 1)
            found = await repository.get_order(receipt.id)
            assert found is not None
            assert found.pet_id == pet_id
        await check_agreement(repository)

    @clause("token-refused")
    async def test_a_refused_write_records_nothing(self, repository: Repository) -> None:
        """The record is stored before it is known whether the write is refused."""
        pet_id = await add_pet(repository)
        first = await repository.place_order(pet_id, AT)
        token = make_token("place", pet_id)
        for _ in range(2):
            with pytest.raises(ConflictError):
                await repository.place_order(pet_id, AT, token)
        await repository.update_order(first.id, OrderStatus.CANCELLED)
        receipt = await repository.place_order(pet_id, AT, token)
        assert not receipt.replayed
        assert receipt.id != first.id
        with pytest.raises(NotFoundError):
            await repository.place_order(ABSENT_IDS[0], AT, make_token("absent", ABSENT_IDS[0]))
        other = await add_pet(repository)
        again = await repository.place_order(other, AT, make_token("absent", other))
        assert not again.replayed


class ExpiryClauses(Kit):
    """The clause that needs control of the clock, which a running service does not give."""

    @clause("token-expired")
    async def test_an_expired_record_counts_as_absent(self, repository: Repository) -> None:
        """The backend reads its own clock, a replay extends the record, or it never expires."""
        first = await repository.create_pet(REX, make_token("create", REX))
        placed = await repository.place_order(first.id, AT, make_token("place", first.id))
        for now in (NOW, NOW + 1, NOW + DAY_SECONDS - 1):
            again = await repository.create_pet(REX, make_token("create", REX, now))
            assert again == Receipt(first.id, replayed=True)
            again = await repository.place_order(first.id, AT, make_token("place", first.id, now))
            assert again == Receipt(placed.id, replayed=True)
        new = NewPet("other", 8)
        second = await repository.create_pet(new, make_token("create", new, NOW + DAY_SECONDS))
        assert not second.replayed
        assert second.id != first.id
        with pytest.raises(ConflictError):
            await repository.place_order(
                first.id, AT, make_token("place", first.id, NOW + DAY_SECONDS)
            )
        for other in range(20):  # dropping expired records must not drop the new one
            name = f"other {other}"
            await repository.create_pet(REX, make_token(name, REX, NOW + DAY_SECONDS + other))
        again = await repository.create_pet(
            new, make_token("create", new, NOW + 2 * DAY_SECONDS - 1)
        )
        assert again == Receipt(second.id, replayed=True)
        third = await repository.create_pet(new, make_token("create", new, NOW + 2 * DAY_SECONDS))
        assert not third.replayed
