"""A storage that fails: 503 where it says that it is unavailable, 500 for what nobody declared."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec
import pytest
from petstore_memory import MemoryRepository, MemorySettings
from petstore_memory import backend as memory

from petstore.backends import Plugin
from petstore.contract import NewPet, Order, Pet, PetStatus, Receipt, Retry, UnavailableError
from tests.live import in_thread
from tests.test_specification import check_error


class Failing(MemoryRepository):
    """Memory that fails as it is told."""

    error: Exception | None = None
    hang = False

    async def create_pet(self, new: NewPet, retry: Retry | None = None) -> Receipt:
        await self._fail()
        return await super().create_pet(new, retry)

    async def list_pets(self, after: int, count: int, status: PetStatus | None) -> Sequence[Pet]:
        await self._fail()
        return await super().list_pets(after, count, status)

    async def place_order(self, pet_id: int, at: datetime, retry: Retry | None = None) -> Receipt:
        await self._fail()
        return await super().place_order(pet_id, at, retry)

    async def get_order(self, order_id: int) -> Order | None:
        await self._fail()
        return await super().get_order(order_id)

    async def _fail(self) -> None:
        if self.hang:
            await asyncio.sleep(60)
        if self.error is not None:
            raise self.error


def plugin(repository: Failing) -> Plugin:
    @asynccontextmanager
    async def open_(_: MemorySettings) -> AsyncIterator[Failing]:
        yield repository

    backend = msgspec.structs.replace(memory, open=open_)
    return Plugin("failing", "petstore-failing", "0", backend)


PET = {"name": "Rex", "categoryId": 7}


def test_an_unavailable_storage_is_503_with_retry_after() -> None:
    repository = Failing()
    with in_thread(plugin=plugin(repository)) as live:
        repository.error = UnavailableError("no route to redis://u:geheim@db")
        for answer in (
            live.client.get("/v1/pets"), live.client.post("/v1/pets", json=PET),
            live.client.post("/v1/store/orders", json={"petId": 1}),
            live.client.get("/v1/store/orders/1"), live.client.patch("/v1/store/orders/1"),
            live.client.get("/readyz"),
        ):  # fmt: skip
            assert "geheim" not in check_error(answer, 503, "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert live.client.get("/livez").status_code == 200
        repository.error = None
        assert live.client.post("/v1/pets", json=PET).status_code == 201
        assert live.client.get("/readyz").status_code == 200


def test_what_nobody_declared_is_500_and_logged_under_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repository = Failing()
    with in_thread(plugin=plugin(repository)) as live, caplog.at_level(logging.ERROR, "petstore"):
        repository.error = RuntimeError("the cat is in row 17")
        answer = live.client.get("/v1/pets", headers={"X-Request-Id": "find-me"})
        assert "cat" not in check_error(answer, 500, "internal_error")
        repository.error = None
        assert live.client.get("/v1/pets").status_code == 200
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.__dict__["request_id"] == "find-me"


def test_readiness_is_503_when_the_storage_takes_too_long() -> None:
    repository = Failing()
    with in_thread(plugin=plugin(repository)) as live:
        repository.hang = True
        check_error(live.client.get("/readyz"), 503, "unavailable")
