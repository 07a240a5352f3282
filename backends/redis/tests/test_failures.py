"""Calls while a server is gone or frozen, or the network fails.

They raise `UnavailableError`, for which the service responds with 503; nothing is sent twice.
"""

import asyncio
from pathlib import Path
from time import monotonic

import pytest
from petstore_conformance.faults.proxy import Proxy

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.stores import opened, unavailable, unavailable_at_once
from tests.support.repositories import REX, again, check_cut_replies, check_lost_replies, pets


async def test_a_write_whose_reply_is_lost_is_executed_once(front: Proxy) -> None:
    async with opened(front) as repository:
        await check_lost_replies(repository, front)


async def test_a_reply_that_is_cut_off_counts_as_none(front: Proxy) -> None:
    async with opened(front) as repository:
        await check_cut_replies(repository, front)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_frozen_server_costs_one_timeout_and_is_used_again_once_it_resumes(
    server: Server, front: Proxy, whole: bool
) -> None:
    async with opened(front, timeout_seconds=3) as repository:
        await repository.create_pet(REX)
        if whole:
            server.freeze()
        else:
            front.frozen = True
        try:
            begin = monotonic()
            calls = [unavailable(repository.create_pet(REX), within=6) for _ in range(50)]
            messages = await asyncio.gather(*calls)
            assert 3 <= monotonic() - begin < 6
            assert "no reply within 3 s" in messages[0]
            for _ in range(5):
                await unavailable_at_once(lambda: pets(repository))
                await asyncio.sleep(0.1)
        finally:
            server.resume()
            front.frozen = False
        found = await again(lambda: pets(repository))
        assert len(found) in {1, 51}  # sent once, executed or not
        await asyncio.sleep(0.3)
        assert len(await pets(repository)) in {1, 51}


async def test_a_killed_server_is_used_again_once_it_runs_and_has_everything(
    tmp_path: Path,
) -> None:
    with single(tmp_path, *AOF) as server:
        async with opened(server) as repository:
            made = {(await repository.create_pet(REX)).id for _ in range(5)}
            server.kill()
            await unavailable(repository.create_pet(REX))
            await unavailable_at_once(lambda: repository.create_pet(REX))
            await asyncio.to_thread(server.start)
            receipt = await again(lambda: repository.create_pet(REX))
            assert {pet.id for pet in await pets(repository)} == {*made, receipt.id}
            assert receipt.id > max(made) + 1000  # some may have been lost
