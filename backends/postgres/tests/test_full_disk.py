"""A disk that is full: calls are unavailable, no acknowledged write is lost."""

import asyncio
import os
from pathlib import Path

import pytest

from backends.postgres.tests.disks import small_disk_of_the_log, small_disk_of_the_tables
from backends.postgres.tests.places import opened, unavailable
from backends.postgres.tests.servers import Server
from petstore.contract import NewPet, UnavailableError
from tests.support.repositories import again, pets
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow


async def check(server: Server, ballast: Path, *, ends: bool) -> None:
    """Fill the disk, make room, and check that everything is there that was acknowledged.

    ends -- whether the server ends, instead of refusing what does not fit
    """
    async with opened(server) as repository:
        acknowledged: list[int] = []

        async def create() -> None:
            receipt = await repository.create_pet(NewPet(os.urandom(25_000).hex(), 1))
            acknowledged.append(receipt.id)

        async def fill() -> None:
            async with asyncio.timeout(HANG_SECONDS):
                while True:
                    await asyncio.gather(*(create() for _ in range(10)))

        with pytest.raises(UnavailableError) as caught:
            await fill()
        if ends:
            await asyncio.to_thread(server.until_ended)
            assert "No space left on device" in server.log()
        else:
            assert "(53100)" in str(caught.value)
        await unavailable(create())
        await asyncio.to_thread(ballast.unlink)
        if ends:
            await asyncio.to_thread(server.start)
        before = len(acknowledged)
        for _ in range(20):
            await again(create)
        assert len(acknowledged) == before + 20
        assert len(set(acknowledged)) == len(acknowledged), "an id was assigned twice"
        assert set(acknowledged) <= {pet.id for pet in await pets(repository)}


def test_a_full_disk_of_the_tables(failing: Server) -> None:
    with small_disk_of_the_tables(failing) as ballast:
        asyncio.run(check(failing, ballast, ends=False))


def test_a_full_disk_of_the_log(failing: Server) -> None:
    """The server must be started again."""
    with small_disk_of_the_log(failing) as ballast:
        asyncio.run(check(failing, ballast, ends=True))
