"""Calls of one iteration that are sent as one: what each caller gets."""

import asyncio
from collections.abc import Sequence

from petstore_redis.batches import Arguments, Batches

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import opened
from tests.support.repositories import REX, make_token


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


async def test_pets_of_one_turn_remove_two_expired_records_each(valkey: Server) -> None:
    async with opened(valkey) as repository:
        for first, now in ((0, 0), (100, 2000)):
            tokens = [make_token(first + n, now=now, until=now + 1000) for n in range(40)]
            await asyncio.gather(*(repository.create_pet(REX, token) for token in tokens[:20]))
            await asyncio.gather(*(repository.create_pet(REX, token) for token in tokens[20:]))
        page = await repository.list_tokens("", 1000, 0)
        assert {record.until for record in page.records} == {3000}
