"""A storage that fails: each error of the contract has its response, anything else is 500."""

import asyncio
import logging
import re
from typing import Any

import pytest
from petstore_memory import MemoryRepository

from petstore import contract
from petstore.http.errors import TABLE
from petstore.observability import storage_health
from tests.support.pets import REX
from tests.support.plugins import plugin_of
from tests.support.responses import check_error
from tests.support.services import in_thread

EXPECTED: dict[type[contract.StorageError], tuple[int, str]] = {
    contract.StorageError: (500, "internal_error"),
    contract.RefusedError: (409, "conflict"),
    contract.NotFoundError: (404, "not_found"),
    contract.ConflictError: (409, "conflict"),
    contract.TokenReusedError: (409, "conflict"),
    contract.UnavailableError: (503, "unavailable"),
    contract.WrongStoreError: (503, "unavailable"),
    contract.ChangeNeededError: (500, "internal_error"),
    contract.SettingsError: (500, "internal_error"),
}


class LostShardError(contract.UnavailableError):
    """A subclass that a backend might define."""


class Failing(MemoryRepository):
    """A memory repository that fails as a test sets it."""

    error: Exception | None = None

    async def create_pet(
        self, new: contract.NewPet, token: contract.IdempotencyToken | None = None
    ) -> contract.Receipt:
        self._fail()
        return await super().create_pet(new, token)

    async def list_pets(self, query: contract.PetQuery) -> list[contract.Pet]:
        self._fail()
        return await super().list_pets(query)

    async def get_order(self, order_id: int) -> contract.Order | None:
        self._fail()
        return await super().get_order(order_id)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


def test_every_storage_error_of_the_contract_has_a_row_in_the_table() -> None:
    classes = {
        value
        for value in vars(contract).values()
        if isinstance(value, type) and issubclass(value, contract.StorageError)
    }
    assert classes == TABLE.keys() == EXPECTED.keys()


@pytest.mark.parametrize("class_", [*EXPECTED, LostShardError])
def test_an_error_that_the_controller_does_not_map_gets_the_status_of_the_table(
    class_: type[contract.StorageError],
) -> None:
    status, code = EXPECTED[contract.UnavailableError if class_ is LostShardError else class_]
    repository = Failing()
    with in_thread(plugin=plugin_of(repository)) as live:
        repository.error = class_("no route to redis://u:hunter2@db")
        for response in (
            live.client.get("/v1/pets"),
            live.client.post("/v1/pets", json=REX),
            live.client.get("/v1/store/orders/1"),
            live.client.patch("/v1/store/orders/1"),
        ):
            assert "hunter2" not in check_error(response, status, code)
            assert ("retry-after" in response.headers) == (status == 503)
        check_error(live.client.get("/readyz"), 503, "unavailable")
        assert live.client.get("/livez").status_code == 200
        repository.error = None
        assert live.client.post("/v1/pets", json=REX).status_code == 201
        assert live.client.get("/readyz").status_code == 200


def test_failures_are_logged_once_a_second_and_those_in_between_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_health, "LOG_SECONDS", 3600)
    repository = Failing()
    with in_thread(plugin=plugin_of(repository)) as live, caplog.at_level(logging.INFO, "petstore"):
        key = {"Idempotency-Key": "one"}
        assert live.client.post("/v1/pets", json=REX, headers=key).status_code == 201
        repository.error = contract.UnavailableError("the disk is full")
        for number in range(3):
            headers = {"X-Request-Id": f"find-me-{number}"}
            live.client.post("/v1/pets", json=REX, headers=headers)
        [record] = caplog.records
        assert record.getMessage() == "a write failed: the disk is full"
        assert record.__dict__["request_id"] == "find-me-0"
        monkeypatch.setattr(storage_health, "LOG_SECONDS", 0)
        live.client.get("/v1/pets")
        more = "the disk is full (and 2 more requests failed)"
        assert caplog.records[-1].getMessage() == more
        live.client.get("/v1/pets")  # the same reason
        assert caplog.records[-1].getMessage() == more
        monkeypatch.setattr(storage_health, "LOG_SECONDS", 3600)
        live.client.get("/v1/pets")
        repository.error = None
        assert live.client.get("/v1/pets").status_code == 200
        assert live.client.post("/v1/pets", json=REX, headers=key).status_code == 201  # a replay
        assert caplog.records[-1].getMessage() == more
        for _ in range(2):
            assert live.client.post("/v1/pets", json=REX).status_code == 201
    messages = [record.getMessage() for record in caplog.records]
    again = "the storage accepts writes again (and 2 more requests failed)"
    assert messages.count(again) == 1


def test_a_retry_whose_order_was_deleted_is_503_and_the_log_names_the_order(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(_: int) -> None:
        return None

    with in_thread(backend="memory") as live:
        pet = live.client.post("/v1/pets", json=REX | {"status": "available"}).json()
        order: dict[str, Any] = {"json": {"petId": pet["id"]}}
        order["headers"] = {"Idempotency-Key": "k"}
        placed = live.client.post("/v1/store/orders", **order)
        assert placed.status_code == 201
        monkeypatch.setattr(live.state.repository, "get_order", gone)
        with caplog.at_level(logging.ERROR, "petstore"):
            check_error(live.client.post("/v1/store/orders", **order), 503, "unavailable")
    assert f"order {placed.json()['id']} is recorded" in caplog.text
    assert re.search("delete the record of the token [0-9a-f]{64}", caplog.text)


def test_an_exception_outside_the_contract_is_500_and_logged_under_the_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repository = Failing()
    with (
        in_thread(plugin=plugin_of(repository)) as live,
        caplog.at_level(logging.ERROR, "petstore"),
    ):
        repository.error = RuntimeError("the cat is in row 17")
        response = live.client.get("/v1/pets", headers={"X-Request-Id": "find-me"})
        assert "cat" not in check_error(response, 500, "internal_error")
        repository.error = None
        assert live.client.get("/v1/pets").status_code == 200
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.__dict__["request_id"] == "find-me"


def test_a_store_whose_ids_are_used_up_is_500_and_the_log_says_why_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repository = MemoryRepository()
    asyncio.run(
        repository.restore([contract.Pet(contract.MAX_ID, "Rex", 7, contract.PetStatus.AVAILABLE)])
    )
    with (
        in_thread(plugin=plugin_of(repository)) as live,
        caplog.at_level(logging.ERROR, "petstore"),
    ):
        response = live.client.post("/v1/pets", json=REX, headers={"X-Request-Id": "find-me"})
        check_error(response, 500, "internal_error")
        assert "retry-after" not in response.headers, "it would fail again"
        assert live.client.get(f"/v1/pets/{contract.MAX_ID}").status_code == 200
        placed = live.client.post("/v1/store/orders", json={"petId": contract.MAX_ID})
        assert placed.status_code == 201, "orders have ids of their own"
    [record] = caplog.records
    assert record.getMessage() == "all ids have been assigned"
    assert not record.exc_info
    assert record.__dict__["request_id"] == "find-me"
