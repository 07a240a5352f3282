"""PETSTORE_READ_ONLY: reads are served, writes are refused, and no store is created."""

from pathlib import Path

import httpx
import pytest

from petstore.config.settings import Settings
from petstore.exit_status import CONFIGURATION, UNAVAILABLE
from tests.support.command import error_message, in_process
from tests.support.mounts import read_only
from tests.support.pets import REX
from tests.support.responses import check_error
from tests.support.services import ONE_OR_TWO_WORKERS, in_thread, process


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


@pytest.mark.parametrize("command", ["serve", "export", "verify", "check", "check --read-only"])
def test_what_only_reads_creates_no_store(command: str, tmp_path: Path) -> None:
    path = tmp_path / "pets.sqlite"
    done = in_process(
        *command.split(),
        backend="sqlite",
        sqlite_path=str(path),
        read_only="false" if "--read-only" in command else "true",
        api_keys="x" * 16,
    )
    assert not list(tmp_path.iterdir())
    if command.startswith("check"):
        assert "would be created" in done.stdout
    else:
        assert "would be created" in error_message(done, CONFIGURATION)


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_a_file_on_a_read_only_file_system_is_served(tmp_path: Path, workers: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    with process(tmp_path, backend="sqlite", sqlite_path=f"{volume}/pets.sqlite") as service:
        assert service.client.post("/v1/pets", json=REX).status_code == 201
        service.stop()
    with read_only(volume) as mounted:
        place = {"backend": "sqlite", "sqlite_path": f"{mounted}/pets.sqlite"}
        message = error_message(in_process("check", **place), UNAVAILABLE)
        assert "on a read-only file system; choose a writable one, or serve it with" in message
        assert in_process("export", **place).stdout.count('"Rex"') == 1
        place |= {"read_only": "true"}
        assert "\nok: the backend 'sqlite'" in in_process("check", **place).stdout
        with process(tmp_path, workers=workers, **place) as service:
            assert len(service.client.get("/v1/pets").json()) == 1
            assert service.client.get("/readyz").status_code == 200
            check_error(service.client.post("/v1/pets", json=REX), 503, "unavailable")
            assert service.stop() == 0
