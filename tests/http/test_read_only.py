"""PETSTORE_READ_ONLY: reads are served, writes are refused, and no store is created."""

from pathlib import Path

import httpx
import pytest

from petstore.config.settings import Settings
from petstore.exit_status import CONFIGURATION
from tests.support.command import error_message, in_process
from tests.support.pets import REX
from tests.support.responses import check_error
from tests.support.services import in_thread


def test_a_read_only_service_serves_reads_and_refuses_writes() -> None:
    with in_thread(Settings(drain_seconds=0, read_only=True), backend="memory") as service:
        assert service.client.get("/v1/pets").json() == []
        assert service.client.get("/readyz").status_code == 200
        for response in (
            service.client.post("/v1/pets", json=REX),
            service.client.post("/v1/store/orders", json={"petId": 1}),
            service.client.patch("/v1/store/orders/1", json={"status": "completed"}),
        ):
            check_error(response, 503, "unavailable")
            assert response.headers["retry-after"] == "1"
            assert "read-only" in response.json()["message"]
        assert httpx.post(f"{service.url}/v1/pets", json=REX).status_code == 401
        assert service.client.get("/v1/pets").json() == []


@pytest.mark.parametrize("command", ["serve", "export", "verify", "check"])
def test_what_only_reads_creates_no_store(command: str, tmp_path: Path) -> None:
    flags = ["--read-only"] if command == "check" else []
    path = tmp_path / "pets.sqlite"
    done = in_process(
        command,
        *flags,
        backend="sqlite",
        sqlite_path=str(path),
        read_only="true",
        api_keys="x" * 16,
    )
    assert not list(tmp_path.iterdir())
    if command == "check":
        assert "would be created" in done.stdout
    else:
        assert "would be created" in error_message(done, CONFIGURATION)
