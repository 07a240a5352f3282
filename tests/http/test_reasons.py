"""The log says why a request failed, and nothing of what its client has sent."""

import asyncio
import json
import socket
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from petstore_memory import MemoryRepository

from petstore.config.settings import LogFormat, RateLimit, Settings
from petstore.contract import Pet, UnavailableError, WrongStoreError
from petstore.http.api import operations
from petstore.observability import logs
from petstore.observability.output import Output
from tests.support.command import log_restored
from tests.support.hostile_inputs import BAD_BODIES, BAD_QUERIES, pet_body
from tests.support.pets import REX
from tests.support.plugins import plugin_of
from tests.support.raw_http import AUTHORIZED, HOST, JSON, begin_body, head, request
from tests.support.responses import check_error
from tests.support.services import Live, in_thread
from tests.support.waiting import until

Line = dict[str, Any]
MARKER = "jabberwocky"

Log = list[bytes]
"""What is written to the log, some lines at a time."""


class Failing(MemoryRepository):
    """Fails to get some pets."""

    async def get_pet(self, pet_id: int) -> Pet | None:
        if pet_id == 1:
            try:
                raise ConnectionRefusedError(MARKER)
            except OSError as error:
                raise UnavailableError("no") from error
        if pet_id == 2:
            raise WrongStoreError("gone")
        if pet_id == 3:
            raise ZeroDivisionError
        return await super().get_pet(pet_id)


class Hanging(MemoryRepository):
    """Never lists pets."""

    called = False

    async def list_pets(self, *_: Any) -> Any:
        self.called = True
        await asyncio.Event().wait()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Return what is written to the log from now on."""
    written = Log()
    monkeypatch.setattr(Output, "write", lambda _, lines: written.append(lines))
    return written


def read(log: Log) -> list[Line]:
    """Return the lines since the last time."""
    return [json.loads(line) for _ in range(len(log)) for line in log.pop(0).splitlines()]


@contextmanager
def logged(**options: Any) -> Iterator[Live]:
    """Run a service whose requests are logged."""
    with log_restored(), in_thread(**options) as live:
        logs.set_up(LogFormat.JSON)
        yield live


def lines(log: Log, count: int = 1, events: Container[str] = ("request",)) -> list[Line]:
    """Return the lines of the requests, or of these events, since the last time: so many."""
    found: list[Line] = []

    def complete() -> bool:
        found.extend(line for line in read(log) if line["event"] in events)
        return len(found) >= count

    until(complete)
    return found


def why(log: Log) -> tuple[int, str, str]:
    """Return status, code and reason of the only request that was logged."""
    (line,) = lines(log)
    return line["status"], line["code"], line["reason"]


def test_the_line_of_an_error_has_its_code_and_its_reason(log: Log) -> None:
    with logged() as live, live.anonymous() as anonymous:
        client, key = live.client, {"idempotency-key": "k"}
        created = client.post("/v1/pets", json=REX | {"status": "available"})
        order = {"petId": int(created.headers["location"].rpartition("/")[2])}
        first = client.post("/v1/store/orders", json=order, headers=key)
        path = first.headers["location"]
        client.patch(path, json={"status": "cancelled"})
        assert [line.keys() & {"code", "reason"} for line in lines(log, 3)] == [set()] * 3

        client.patch(path, json={"status": "completed"})
        assert why(log) == (409, "conflict", "The order is no longer placed.")
        client.post("/v1/store/orders", json={"petId": 99}, headers=key)
        reused = "Idempotency-Key: already used with a different body; use a new key."
        assert why(log) == (409, "conflict", reused)
        client.post("/v1/store/orders", json={"petId": 99})
        assert why(log) == (404, "not_found", "Pet not found.")
        client.get("/v1/pets/99")
        assert why(log) == (404, "not_found", "Pet not found.")
        client.get(f"/v1/{MARKER}")
        assert why(log) == (404, "not_found", "Path not found.")
        client.get("/v1/pets?limit=0")
        limit = "limit: expected an integer from 1 to 100."
        assert why(log) == (400, "invalid_request", limit)
        client.post("/v1/pets", json={"name": MARKER, "categoryId": MARKER})
        category = "body.categoryId: expected an integer, got a string."
        assert why(log) == (400, "invalid_request", category)
        client.post("/v1/pets", content=b"{", headers={"content-type": "application/json"})
        assert why(log)[2].startswith("body: expected JSON: ")
        body = pet_body(b',"%b":1,"%b":2' % (MARKER.encode(), MARKER.encode()))
        request(live, "POST /v1/pets", JSON, body=body)
        once = "body: expected each member once."
        assert why(log) == (400, "invalid_request", once)
        client.request("BREW" + MARKER.upper(), "/v1/pets")
        (line,) = lines(log)
        assert (line["method"], line["code"]) == ("unknown", "method_not_allowed")
        anonymous.get("/v1/pets")
        assert why(log)[:2] == (401, "unauthorized")
        anonymous.get("/v1/pets", headers={"authorization": f"Bearer {MARKER}"})
        assert why(log) == (401, "unauthorized", "Invalid API key.")


def test_malformed_http_is_logged_once_with_its_reason_and_the_id_of_its_response(log: Log) -> None:
    with logged() as live:
        words = "expected a method, a target and HTTP/1.1 or HTTP/1.0, with single spaces"
        begun = head("POST /v1/pets", HOST, AUTHORIZED, JSON, "Content-Length: 9")
        for sent, reason in (
            (b"how are you?\r\n\r\n", words),
            (head("GET /", "Host: x y", "X-Request-Id: mine"), "expected one valid Host header"),
            (begun, "the request ended before it was complete"),
        ):
            raw = live.raw(sent, half_close=True)
            (line,) = lines(log)
            assert (line["status"], line["code"]) == (400, "invalid_request")
            assert line["reason"] == f"HTTP: {reason}."
            assert f"\r\nx-request-id: {line['request_id']}\r\n".encode() in raw
            assert line["request_id"] == "mine" or b"mine" not in sent


def test_the_reason_of_a_limit_says_which(log: Log) -> None:
    limits = Settings(drain_seconds=0, rate_limit=RateLimit.parse("1/h"), max_body_bytes=9)
    with logged(settings=limits) as live:
        live.client.post("/v1/pets", json=REX)
        assert why(log) == (413, "payload_too_large", "body: expected at most 9 bytes.")
        live.client.get("/v1/pets")
        assert why(log)[:2] == (429, "rate_limited")
    with (
        logged(settings=Settings(drain_seconds=0, max_in_flight=1)) as live,
        begin_body(live, "Content-Length: 9\r\nExpect: 100-continue") as connection,
    ):
        connection.recv(1)
        live.client.get("/v1/pets")
        assert why(log) == (503, "unavailable", "Too many requests in flight.")


def test_the_reason_of_a_failure_of_the_storage_says_which(log: Log) -> None:
    with logged(plugin=plugin_of(Failing())) as live:
        for id_, expected in {
            1: (503, "unavailable", "UnavailableError (ConnectionRefusedError)"),
            2: (503, "unavailable", "WrongStoreError"),
            3: (500, "internal_error", "ZeroDivisionError"),
        }.items():
            live.client.get(f"/v1/pets/{id_}")
            assert why(log) == expected


def test_a_storage_that_is_too_slow_is_not_ready(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "READY_SECONDS", 0.01)
    with logged(plugin=plugin_of(Hanging())) as live:
        check_error(live.client.get("/readyz"), 503, "unavailable")
        not_ready = "not ready: the storage did not respond in time"
        before, line = lines(log, 2, {"request", not_ready})
    assert before["event"] == not_ready
    assert line["reason"].startswith("TimeoutError")


def test_a_request_that_a_stop_cuts_off_is_logged_as_the_503_that_it_gets(log: Log) -> None:
    hanging, brief = Hanging(), Settings(drain_seconds=0, shutdown_seconds=1)
    with logged(settings=brief, plugin=plugin_of(hanging)) as live:
        connection = socket.create_connection((live.host, live.port))
        connection.sendall(head("GET /v1/pets", HOST, AUTHORIZED))
        until(lambda: hanging.called)
    with connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 503 ")
    assert why(log) == (503, "unavailable", "The service is stopping.")


PARTS = st.sampled_from(
    [
        *BAD_BODIES,
        *(query.encode() for query in BAD_QUERIES),
        *(b"{", b"}", b'"', b":", b",", b"&", b"=", b"%", b"\r\n", b" ", b"`", b"?", b"/"),
        *(b'"name":', b'"status":', b"limit=", b"cursor=", b"Host:", b"HTTP/1.1"),
    ]
)
HOSTILE = st.lists(PARTS | st.binary(max_size=4) | st.just(MARKER.encode()), max_size=6).map(
    b"".join
)


def test_nothing_that_a_client_sends_is_logged(log: Log, capfd: pytest.CaptureFixture[str]) -> None:
    marker = MARKER.encode()
    statuses: set[int] = set()

    @settings(max_examples=50)
    @given(HOSTILE)
    def send(live: Live, text: bytes) -> None:
        text = marker + text
        line = text.translate(None, b"\r\n \t").decode("latin-1")
        request(live, f"GET /v1/pets?limit={line}")
        request(live, f"GET /v1/pets?{line}=1&{line}=2")
        request(live, f"PATCH /v1/store/orders/{line}", JSON, body=b"{}")
        request(live, "POST /v1/pets", JSON, f"Idempotency-Key: {line}", body=pet_body())
        request(live, "POST /v1/pets", f"Content-Type: {line}", body=text)
        request(live, "GET /v1/pets", key=f"Authorization: Bearer {line}")
        bodies = (
            text,
            pet_body(b"," + text),
            pet_body(name=text),
            pet_body(category=b'"%b"' % text),
        )
        names = (pet_body(b',"%b":1,"%b":2' % (text, text)), b'{"petId":1,"%b":1}' % text)
        for body in (*bodies, *names):
            for path in ("/v1/pets", "/v1/store/orders"):
                request(live, f"POST {path}", JSON, body=body)
        live.raw(text + b"\r\n\r\n", half_close=True)
        live.raw(b"%b /v1/pets HTTP/1.1\r\nHost: x\r\n\r\n" % marker.upper(), half_close=True)
        live.raw(b"GET /v1/pets HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % text, half_close=True)
        live.raw(b"GET /v1/pets HTTP/1.1\r\nHost: %b\r\n\r\n" % text, half_close=True)
        assert marker not in b"".join(log).lower()
        for logged_ in read(log):
            statuses.add(logged_["status"])
            assert ("reason" in logged_) == ("code" in logged_) == (logged_["status"] >= 400)

    with logged() as live:
        send(live)
    assert capfd.readouterr().err == "", "there is nothing beside the log"
    assert {200, 201, 400, 401, 404, 405, 415} <= statuses
