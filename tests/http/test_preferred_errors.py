"""`Prefer: code=503`: with --dev, clients can ask for each documented error, to test themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from petstore.config.settings import RateLimit, Settings
from petstore.http.app import document
from petstore.http.errors import CODES
from petstore.http.routes import API_PREFIX
from tests.support.pets import REX
from tests.support.responses import check_error
from tests.support.services import Live, in_thread, process

OPERATIONS = [
    (method.upper(), f"{API_PREFIX}{path}", operation)
    for path, operations in json.loads(document(""))["paths"].items()
    for method, operation in operations.items()
]


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with in_thread(Settings(drain_seconds=0), backend="memory", dev=True) as live:
        yield live


def ask(service: Live, method: str, path: str, prefer: str) -> Any:
    path = path.replace("{petId}", "1").replace("{orderId}", "1")
    return service.client.request(method, path, headers={"Prefer": prefer}, json=REX)


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_each_documented_error_has_its_documented_headers(
    service: Live, method: str, path: str, operation: dict[str, Any]
) -> None:
    errors = {int(status): one for status, one in operation["responses"].items() if status > "399"}
    assert errors.keys() >= {401, 429, 500, 503}
    for status, documented in errors.items():
        response = ask(service, method, path, f"code={status}")
        check_error(response, status, CODES[status])
        assert response.headers["preference-applied"] == f"code={status}"
        limits = {name for name in documented["headers"] if name.startswith("RateLimit")}
        assert {*map(str.lower, documented["headers"].keys() - limits)} <= {*response.headers}
    for status in (200, 405, 418, 504):
        response = ask(service, method, path, f"code={status}")
        assert "preference-applied" not in response.headers
        assert response.status_code != status or status == 200


@pytest.mark.parametrize(
    "prefer", ['code="503"', "respond-async, code=503; a=b", "Code = 503,wait=5", "a,code=503"]
)
def test_a_preference_is_read_as_rfc_7240_says(service: Live, prefer: str) -> None:
    assert ask(service, "GET", "/v1/pets", prefer).status_code == 503


@pytest.mark.parametrize(
    "prefer", ["code=5034", "xcode=503", "code", "a; code=503", "", "code=abc"]
)
def test_other_preferences_are_ignored(service: Live, prefer: str) -> None:
    assert ask(service, "GET", "/v1/pets", prefer).status_code == 200


def test_an_error_has_no_effect_and_needs_a_key(service: Live) -> None:
    before = service.client.get("/v1/pets").json()
    assert ask(service, "POST", "/v1/pets", "code=500").status_code == 500
    assert service.client.get("/v1/pets").json() == before
    with service.anonymous() as client:
        response = client.get("/v1/pets", headers={"Prefer": "code=503"})
        check_error(response, 401, "unauthorized")


def test_only_dev_heeds_it() -> None:
    with in_thread(Settings(drain_seconds=0), backend="memory") as live:
        assert ask(live, "GET", "/v1/pets", "code=503").status_code == 200


def test_a_429_does_not_say_that_more_requests_are_left() -> None:
    settings = Settings(drain_seconds=0, rate_limit=RateLimit(9, 1))
    with in_thread(settings, backend="memory", dev=True) as live:
        response = ask(live, "GET", "/v1/pets", "code=429")
        assert response.status_code == 429
        assert "ratelimit" not in response.headers


@pytest.mark.slow
def test_all_workers_of_a_development_service_heed_it(tmp_path: Path) -> None:
    place = {"backend": "sqlite", "sqlite_path": f"{tmp_path}/pets.sqlite"}
    with process(tmp_path, "--dev", "--workers", "2", **place, api_keys="short") as service:
        headers = {"Authorization": "Bearer short", "Prefer": "code=503"}
        for _ in range(8):  # connections, which the workers take in turn
            assert httpx.get(f"{service.url}/v1/pets", headers=headers).status_code == 503
