"""The log of requests."""

import json

import pytest

from petstore.config.settings import LogFormat
from petstore.observability import logs
from tests.support.command import log_restored
from tests.support.services import in_thread


def test_requests_are_logged_even_if_the_log_is_set_up_after_the_application_is_created(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with log_restored(), in_thread() as live:  # which creates the application
        assert not logs.request_log.on
        logs.set_up(LogFormat.JSON)
        assert live.client.get("/v1/pets/7").status_code == 404
        malformed = live.raw(b"GET / HTTP/1.1\r\nHost\r\n\r\n")
        assert malformed.startswith(b"HTTP/1.1 400 ")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    routed, rejected = [line for line in lines if line["event"] == "request"]
    assert (routed["method"], routed["route"], routed["status"]) == (
        "GET",
        "/v1/pets/{pet_id}",
        404,
    )
    assert rejected["status"] == 400
