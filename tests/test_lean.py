"""What is faster than Litestar's defaults behaves as they do."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from litestar import Litestar, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from petstore import edge, errors
from petstore.api.lean import Lean, Reply
from tests.live import in_thread

JSON = {"Content-Type": "application/json"}
ANIMAL = b'{"name": "R\xc3\xa9x", "categoryId": 7, "status": "available"}'
REQUESTS: list[tuple[str, str, bytes, dict[str, str]]] = [
    ("GET", "/v1/pets", b"", {}),
    ("POST", "/v1/pets", ANIMAL, JSON),
    ("POST", "/v1/pets", ANIMAL, JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", ANIMAL, JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", b'{"name": ""}', JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", b"{}", {"Content-Type": "text/plain"}),
    ("POST", "/v1/pets", b"n" * 70_000, JSON),
    ("GET", "/v1/pets", b"", {}),
    ("GET", "/v1/pets?limit=1&status=available", b"", {}),
    ("GET", "/v1/pets?limit=0", b"", {}),
    ("GET", "/v1/pets/1", b"", {}),
    ("HEAD", "/v1/pets/1", b"", {}),
    ("GET", "/v1/pets/99", b"", {}),
    ("GET", "/v1/pets/1", b"", {"Authorization": "Bearer wrong"}),
    ("OPTIONS", "/v1/pets", b"", {}),
    ("DELETE", "/v1/pets/1", b"", {}),
    ("GET", "/v1/nothing", b"", {}),
    ("POST", "/v1/store/orders", b'{"petId": 1}', JSON),
    ("POST", "/v1/store/orders", b'{"petId": 1}', JSON),
    ("GET", "/v1/store/orders", b"", {}),
    ("PATCH", "/v1/store/orders/1", b'{"status": "completed"}', JSON),
    ("PATCH", "/v1/store/orders/9", b"", {}),
    ("GET", "/livez", b"", {}),
    ("GET", "/readyz", b"", {}),
    ("GET", "/docs", b"", {}),
]


def answers() -> Iterator[tuple[object, ...]]:
    """Ask a fresh service; yield of each answer what must be the same."""
    with in_thread() as live:
        for method, path, body, headers in REQUESTS:
            answer = live.client.request(
                method, path, content=body, headers=headers | {"X-Request-Id": "x"}
            )
            fields = sorted((n, v) for n, v in answer.headers.items() if n != "date")
            text = answer.text.partition('"placedAt"')[0]
            yield method, path, answer.status_code, fields, text


def test_answers_are_those_of_litestars_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    lean = list(answers())

    def answer(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        found = errors.to_api_error(error)
        return Response(
            errors.body(found),
            status_code=found.code.status,
            headers=found.headers,
            media_type="application/json",
        )

    def route(app: Litestar, _: object) -> ASGIApp:
        app.exception_handlers[Exception] = answer
        return app

    for name in ("on_registration", "authorize_connection", "to_response"):
        assert name in vars(Lean)
        monkeypatch.setattr(Lean, name, getattr(HTTPRouteHandler, name))
    monkeypatch.setattr(Reply, "__init__", Response.__init__)
    monkeypatch.setattr(edge, "route", route)
    for mine, default in zip(lean, answers(), strict=True):
        assert mine == default


def test_an_unexpected_error_is_logged_under_its_request_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with in_thread() as live:
        monkeypatch.setattr(live.service.repository, "list_pets", fail)
        with caplog.at_level(logging.ERROR, "petstore"):
            answer = live.client.get("/v1/pets", headers={"X-Request-Id": "abc"})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "a bug" not in answer.text
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.__dict__["request_id"] == "abc"
    assert record.exc_info is not None


def test_guards_are_asked_and_may_refuse() -> None:
    with in_thread() as live, httpx.Client(base_url=live.url) as client:
        for path in ("/v1/pets", "/v1/pets/1", "/v1/store/orders", "/v1/store/orders/1"):
            assert client.get(path).status_code == 401
