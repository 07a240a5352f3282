"""Calls of one turn that are sent as one: what each caller gets."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest
from petstore_redis.batches import Arguments, Batches

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import opened
from petstore.contract import (
    ConflictError,
    NewPet,
    NotFoundError,
    PetQuery,
    PetStatus,
    Receipt,
    TokenReusedError,
    UnavailableError,
)
from tests.support.repositories import AT, REX, make_token


def test_the_calls_of_a_turn_are_sent_together_up_to_the_size() -> None:
    sent: list[list[Arguments]] = []

    async def send(calls: Sequence[Arguments]) -> list[int | bytes]:
        sent.append(list(calls))
        return [number for (number,) in calls]

    async def call() -> list[object]:
        batches = Batches(send, 4)
        calls = [batches.call((number,)) for number in range(10)]
        calls[5].cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [*found, await batches.call((10,))]

    found = asyncio.run(call())
    assert [len(batch) for batch in sent] == [4, 4, 2, 1]
    assert isinstance(found.pop(5), asyncio.CancelledError)
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_each_caller_gets_its_own_copy_of_an_error() -> None:
    async def send(_: Sequence[Arguments]) -> list[int]:
        raise UnavailableError("redis is down")

    async def call() -> list[object]:
        batches = Batches(send, 4)
        cancelled, *calls = [batches.call(()) for _ in range(3)]
        cancelled.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    one, two = asyncio.run(call())
    assert isinstance(one, UnavailableError)
    assert isinstance(two, UnavailableError)
    assert str(one) == str(two) == "redis is down"
    assert one is not two


async def kinds(*calls: Awaitable[Receipt]) -> list[object]:
    """Make calls in one turn; return their receipts and the types of their errors."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [outcome if isinstance(outcome, Receipt) else type(outcome) for outcome in found]


@pytest.mark.parametrize("partitions", [1, 3])
async def test_orders_of_one_turn_have_outcomes_of_their_own(
    valkey: Server, partitions: int
) -> None:
    """Some have one pet or one token; some are refused; some repeat what was recorded before."""
    one, other, two, three = (make_token(*values) for values in ((1,), (1, 1), (2,), (3,)))
    async with opened(valkey, partitions=partitions) as repository:
        free = NewPet("free", 7, PetStatus.AVAILABLE)
        a, b, c, d = [
            receipt.id for receipt in [await repository.create_pet(free) for _ in range(4)]
        ]
        order = repository.place_order
        first, twice, nowhere, tokened, repeated = await kinds(
            *(order(a, AT), order(a, AT), order(2**40, AT)),
            *(order(b, AT, one), order(b, AT, one)),
        )
        assert isinstance(first, Receipt)
        assert (twice, nowhere) == (ConflictError, NotFoundError)
        assert isinstance(tokened, Receipt)
        assert repeated == Receipt(tokened.id, replayed=True)
        good = [order(c, AT, two), order(d, AT, three)]
        assert await kinds(order(b, AT, other), order(a, AT, two), order(b, AT, one)) == [
            *(TokenReusedError, ConflictError, Receipt(tokened.id, replayed=True)),
        ]
        found = await kinds(*good)
        assert len({receipt.id for receipt in found if isinstance(receipt, Receipt)}) == 2
        pending = await repository.list_pets(PetQuery(0, 9, PetStatus.PENDING))
        assert sorted(pet.id for pet in pending) == sorted([a, b, c, d])


async def test_pets_of_one_turn_remove_two_expired_records_each(valkey: Server) -> None:
    async with opened(valkey) as repository:
        for first, now in ((0, 0), (100, 2000)):
            tokens = [make_token(first + n, now=now, until=now + 1000) for n in range(40)]
            await asyncio.gather(*(repository.create_pet(REX, token) for token in tokens[:20]))
            await asyncio.gather(*(repository.create_pet(REX, token) for token in tokens[20:]))
        page = await repository.list_tokens("", 1000, 0)
        assert {record.until for record in page.records} == {3000}
