"""Both ways out of the service give the same response, and every exception becomes one."""

from typing import Any

import pytest

from petstore.config.settings import RateLimit, Settings
from petstore.http import app as composition
from petstore.http.api.pets import PETS
from petstore.http.request import Response
from petstore.http.service import Service
from tests.support.services import in_thread

JSON = {"Content-Type": "application/json"}
PET = b'{"name": "R\xc3\xa9x", "categoryId": 7, "status": "available"}'
REQUESTS: list[tuple[str, str, bytes, dict[str, str]]] = [
    ("POST", "/v1/pets", PET, JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", PET, JSON | {"Idempotency-Key": "k"}),
    ("POST", "/v1/pets", b"{}", JSON),
    ("GET", "/v1/pets?limit=1", b"", {}),
    ("GET", "/v1/pets/1", b"", {}),
    ("HEAD", "/v1/pets/1", b"", {}),
    ("GET", "/v1/pets/99", b"", {}),
    ("GET", "/v1/pets/1", b"", {"Authorization": "Bearer wrong"}),
    ("OPTIONS", "/v1/pets", b"", {}),
    ("DELETE", "/v1/pets/1", b"", {}),
    ("GET", "/v1/nothing", b"", {}),
    ("GET", "/livez", b"", {}),
    ("GET", "/docs", b"", {}),
    ("GET", "/docs/reference.css", b"", {}),
    ("GET", "/docs/reference.css", b"", {"If-None-Match": "*"}),
    ("HEAD", "/docs/reference.css", b"", {}),
]


class InMessages(Service):
    """The service behind a layer that replaces `send`, as the middleware of traces does."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def pass_on(message: Any) -> None:
            await send(message)

        await super().__call__(scope, receive, pass_on)


def responses() -> list[tuple[object, ...]]:
    """Send the requests to a fresh service; return what must be the same of each response."""
    with in_thread(
        Settings(drain_seconds=0, rate_limit=RateLimit.parse("1000/m")), backend="memory"
    ) as live:
        found: list[tuple[object, ...]] = []
        for method, path, content, own in REQUESTS:
            headers = {"X-Request-Id": "abc"} | own
            response = live.client.request(method, path, content=content, headers=headers)
            varying = {"date", "ratelimit"}
            kept = {name: text for name, text in response.headers.items() if name not in varying}
            found.append((method, path, response.status_code, kept, response.content))
        return found


def test_a_response_is_the_same_whole_and_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = responses()
    monkeypatch.setattr(composition, "Service", InMessages)
    assert responses() == whole


@pytest.mark.parametrize("way", [Service, InMessages])
def test_a_response_that_cannot_be_sent_is_an_error_with_its_request_id(
    way: type[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "Service", way)
    with in_thread() as live:
        bad: Response[list[Any]] = Response([], [(b"link", b"<a\r\nset-cookie: b>")])
        monkeypatch.setattr(PETS, "page", lambda *_: bad)
        response = live.client.get("/v1/pets", headers={"X-Request-Id": "abc"})
        assert (response.status_code, response.headers["x-request-id"]) == (500, "abc")
        assert response.json()["code"] == "internal_error"
