"""Records of writes outlive wrong clocks: they are removed by the server's clock, too."""

import time

import pytest
from petstore_redis import RedisRepository

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import opened
from petstore.contract import IdempotencyToken, OrderStatus, TokenReusedError
from tests.support.repositories import AT, REX, make_token

DAY = 24 * 60 * 60

LATE = 4_000_000_000  # in 2096: nothing has expired by the server's clock


def token(value: int, now: int) -> IdempotencyToken:
    """Return a token of a service whose clock shows this time."""
    return make_token(value, now=now, until=now + DAY)


async def write(repository: RedisRepository, values: range, now: int) -> None:
    for value in values:
        await repository.create_pet(REX, token(value, now))


async def test_one_jump_of_a_clock_removes_no_valid_record(valkey: Server) -> None:
    """Whatever writes: it removes those that are expired for it, two with each write."""
    now, size = int(time.time()), 3
    async with opened(valkey, partitions=size) as repository:
        pet = (await repository.create_pet(REX)).id
        await write(repository, range(1, 10), now)
        order = (await repository.place_order(pet, AT, token(10, now))).id
        ahead = now + DAY + 3600
        await write(repository, range(100, 150), ahead)
        for value in range(200, 220):  # reservations and records of orders
            other = (await repository.create_pet(REX)).id
            await repository.place_order(other, AT, token(value, ahead))
        for value in range(1, 10):
            assert (await repository.create_pet(REX, token(value, now))).replayed
        again = await repository.place_order(pet, AT, token(10, now))
        assert (again.id, again.replayed) == (order, True)


async def test_a_slow_clock_finds_the_latest_use_of_a_token(valkey: Server) -> None:
    """Its first record is in the partition of the token, its second one in another partition."""
    async with opened(valkey, partitions=2) as repository:
        ids = sorted([(await repository.create_pet(REX)).id for _ in range(2)])
        for value in (2, 3):  # one of them has the partition of the first pet
            for body, (pet, begin) in enumerate(zip(ids, (LATE, LATE + 2 * DAY), strict=True)):
                used = make_token(value, body, now=begin, until=begin + DAY)
                order = await repository.place_order(pet, AT, used)
                await repository.update_order(order.id, OrderStatus.CANCELLED)
            slow = make_token(value, 0, now=LATE + 1, until=LATE + DAY)
            with pytest.raises(TokenReusedError):
                await repository.place_order(ids[0], AT, slow)
            ids.reverse()
