"""Calls of one turn that are sent as one: what each caller gets."""

import asyncio
from collections.abc import Sequence

from petstore_redis.batches import Arguments, Batches

from petstore.contract import UnavailableError


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
