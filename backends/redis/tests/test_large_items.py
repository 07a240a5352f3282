"""Pages and writes of many megabytes: what arrives is not late, and nobody else waits long."""

import asyncio
from time import monotonic
from unittest.mock import Mock

import pytest
from petstore_conformance.faults.proxy import Proxy
from petstore_redis.client import WINDOW_BYTES, Connection
from petstore_redis.encoding import decode_pets

from backends.redis.tests.servers import Server
from backends.redis.tests.stores import client_of, opened, unavailable
from petstore.contract import NewPet, Pet, PetQuery
from tests.support.repositories import REX, again, pets
from tests.support.waiting import HANG_SECONDS, PATIENCE

LARGE = NewPet("x" * 65_000, 1)
SECONDS = 2 * PATIENCE


async def test_a_page_is_late_only_if_it_no_longer_arrives_and_others_do_not_wait_for_it(
    front: Proxy,
) -> None:
    async with opened(front, timeout_seconds=SECONDS) as repository:
        await asyncio.gather(*(repository.create_pet(LARGE) for _ in range(100)))
        (first,) = await repository.list_pets(PetQuery(0, 1))
        front.delay = 0.04 * PATIENCE  # for at most 64 KiB, so the pages take longer than may be
        begin = monotonic()
        reading = [asyncio.ensure_future(repository.list_pets(PetQuery(0, 100))) for _ in range(2)]
        await asyncio.sleep(0.1)
        for _ in range(5):
            assert await repository.get_pet(first.id) == first
            await repository.create_pet(REX)
            await repository.check()
        assert not any(page.done() for page in reading)
        for page in reading:
            assert len(await page) == 100
        assert monotonic() - begin > SECONDS
        page = asyncio.ensure_future(repository.list_pets(PetQuery(0, 100)))
        await asyncio.sleep(0.5)
        front.frozen = True
        try:
            message = await unavailable(page, within=2 * SECONDS)
            assert f"no reply within {SECONDS:g} s" in message
        finally:
            front.heal()
        await again(lambda: pets(repository))


async def test_of_many_large_writes_to_a_stalled_server_few_have_an_unknown_outcome(
    front: Proxy,
) -> None:
    async with opened(front, timeout_seconds=SECONDS) as repository:
        await repository.create_pet(REX)
        front.frozen = True
        try:
            creates = [repository.create_pet(LARGE) for _ in range(200)]
            failing = (unavailable(create, within=3 * SECONDS) for create in creates)
            messages = await asyncio.gather(*failing)
        finally:
            front.frozen = False
        unknown = [message for message in messages if "not carried out" not in message]
        assert 0 < len(unknown) <= WINDOW_BYTES // 65_000
        assert all(f"no reply within {SECONDS:g} s" in message for message in messages)
        await again(lambda: repository.create_pet(REX))
        await asyncio.sleep(0.3)
        assert len(await pets(repository)) - 2 <= len(unknown)


@pytest.mark.parametrize("stalls", [False, True])
async def test_a_command_that_a_server_is_taking_is_not_late(stalls: bool) -> None:
    size = 24 * 1024 * 1024

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = size
        while left > 0 and (chunk := await reader.read(262_144)):
            left -= len(chunk)
            await asyncio.sleep(
                HANG_SECONDS if stalls and left < size * 2 // 3 else 0.02 * PATIENCE
            )
        writer.write(b"+OK\r\n")

    async with client_of(serve, SECONDS) as client:
        begin = monotonic()
        call = client.call("SET", "x", bytes(size))
        if stalls:
            message = await unavailable(call, within=HANG_SECONDS)
            assert f"no reply within {SECONDS:g} s" in message
        else:
            assert await call == b"OK"
            assert monotonic() - begin > SECONDS


async def test_as_many_commands_are_in_flight_as_their_replies_leave_room_for() -> None:
    connection = Connection("it", SECONDS, lambda _: None, lambda: None)
    connection.connection_made(Mock())
    small, large = 10, 2 * WINDOW_BYTES
    fitted = []
    for size in [*[small] * 10, large, *[small] * 10]:
        fitted.append(connection.fitting([b"GET"] * 1000))
        reply = connection.call("GET")
        connection.data_received(b"$%d\r\n%b\r\n" % (size, bytes(size)))
        assert len(await reply) == size
    assert fitted[0] == 1  # how large its reply will be is not known
    assert fitted[:11] == sorted(fitted[:11])
    assert 200 < fitted[10] < 300
    assert fitted[11] == 1  # it may be as large as the last one
    connection.call("GET")
    assert connection.fitting([bytes(2 * WINDOW_BYTES)]) == 0
    assert connection.fitting([bytes(WINDOW_BYTES // 4)] * 1000) == 3
    connection.close("the end")


async def test_the_connection_for_pages_is_replaced_with_that_for_other_calls(
    valkey: Server,
) -> None:
    async with opened(valkey) as repository:
        master = repository._masters.owners[0]  # noqa: SLF001 - to see its connections
        before = await master.pages.call("CLIENT", "ID")
        assert await master.reads.call("CLIENT", "ID") != before
        master.reads.disconnect("for the test")
        assert master.pages.down
        assert "for the test" in await unavailable(pets(repository))
        await again(lambda: repository.create_pet(REX))
        assert len(await again(lambda: pets(repository))) == 1
        assert await master.pages.call("CLIENT", "ID") != before
        master.pages.disconnect("for the test")
        assert not master.reads.down
        assert len(await again(lambda: pets(repository))) == 1


@pytest.mark.parametrize(("pets_of_it", "apart"), [(100, True), (10, False)])
async def test_a_large_page_is_returned_in_another_iteration_than_it_is_decoded(
    server: Server, monkeypatch: pytest.MonkeyPatch, pets_of_it: int, *, apart: bool
) -> None:
    passed = list[bool]()

    def decode(text: bytes) -> list[Pet]:
        asyncio.get_running_loop().call_soon(passed.append, True)
        return decode_pets(text)

    async with opened(server) as repository:
        await asyncio.gather(*(repository.create_pet(LARGE) for _ in range(pets_of_it)))
        monkeypatch.setattr("petstore_redis.repository.decode_pets", decode)
        assert len(await repository.list_pets(PetQuery(0, pets_of_it))) == pets_of_it
        assert passed == [True] * apart
