"""The rate limit: how many requests a client may send, and the headers that say so."""

import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore.config.errors import ConfigurationError
from petstore.config.settings import Settings
from petstore.http.limits import RateLimit, RateLimiter
from tests.support.responses import check_error
from tests.support.services import OTHER_KEY, Start, in_thread

RATE_LIMIT = re.compile(r'"client";r=(\d+);t=(\d+)')

limits = st.builds(RateLimit, st.integers(1, 50), st.sampled_from((1, 60, 3600)))


class Clock:
    """A clock that a test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def remaining(response: httpx.Response) -> tuple[int, int]:
    """Return how many requests are left, and the seconds until there are more."""
    match = RATE_LIMIT.fullmatch(response.headers["ratelimit"])
    assert match
    return int(match[1]), int(match[2])


@given(limits, st.lists(st.floats(0, 100), max_size=200))
def test_no_period_admits_more_than_the_quota_and_what_was_refilled(
    limit: RateLimit, pauses: list[float]
) -> None:
    clock = Clock()
    limiter = RateLimiter(limit, clock)
    admitted = []
    for pause in pauses:
        clock.now += pause
        wait, _ = limiter.take("a")
        if not wait:
            admitted.append(clock.now)
    for first, begin in enumerate(admitted):
        for count, end in enumerate(admitted[first:], 1):
            assert count <= limit.quota + (end - begin) * limit.quota / limit.window + 1e-6


@given(limits, st.floats(0, 1))
def test_a_client_that_waits_for_retry_after_is_admitted(limit: RateLimit, pause: float) -> None:
    clock = Clock()
    limiter = RateLimiter(limit, clock)
    waits = [limiter.take("a")[0] for _ in range(limit.quota + 1)]
    assert waits[:-1] == [0] * limit.quota
    clock.now += pause * waits[-1] / 2
    wait, _ = limiter.take("a")
    if wait:
        clock.now += wait
        assert limiter.take("a")[0] == 0


def test_every_response_says_what_is_left_and_one_request_too_many_is_429() -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="3/h")) as live:
        responses = [
            live.client.get("/v1/pets"),
            live.client.get("/v1/pets/99"),
            live.client.post("/v1/pets", content=b"{}"),
            live.client.get("/v1/pets"),
        ]
        assert [response.status_code for response in responses] == [200, 404, 415, 429]
        assert [remaining(response)[0] for response in responses] == [2, 1, 0, 0]
        assert {response.headers["ratelimit-policy"] for response in responses} == {
            '"client";q=3;w=3600'
        }
        check_error(responses[-1], 429, "rate_limited")
        assert (
            int(responses[-1].headers["retry-after"])
            == remaining(responses[-1])[1]
            in range(1190, 1201)
        )


def test_clients_do_not_share_a_quota() -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="1/h")) as live:
        assert live.client.get("/v1/pets").status_code == 200
        assert live.client.get("/v1/pets").status_code == 429
        other = {"Authorization": f"Bearer {OTHER_KEY}"}
        assert live.client.get("/v1/pets", headers=other).status_code == 200


def test_a_request_without_a_key_uses_no_quota_and_gets_no_headers() -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="1/h")) as live:
        with live.anonymous() as client:
            responses = [client.get("/v1/pets"), client.get("/livez"), client.options("/v1/pets")]
        assert [response.status_code for response in responses] == [401, 200, 204]
        assert not [r for r in responses if "ratelimit" in r.headers or "retry-after" in r.headers]
        assert live.client.get("/v1/pets").status_code == 200


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ("1", ", rate limit: 100/s per client\n"),
        ("2", ", rate limit: 100/s per client and worker, 200/s in total\n"),
    ],
)
def test_the_start_line_shows_the_limit_and_the_total(
    start: Start, workers: str, text: str, tmp_path: Path
) -> None:
    live = start(
        backend="sqlite",
        sqlite_path=f"{tmp_path}/pets.sqlite",
        workers=workers,
        rate_limit="100/s",
        log="text",
    )
    assert text in live.log.read_text()


@pytest.mark.parametrize("text", ["1/s", "100/m", "999999999/h"])
def test_a_rate_limit_is_a_number_and_a_time(text: str) -> None:
    assert Settings.read({"PETSTORE_RATE_LIMIT": text}).rate_limit == text


@pytest.mark.parametrize("text", ["100", "0/s", "100/d", "1.5/s", "100/ s", "-1/s", "1000000000/s"])
def test_an_invalid_rate_limit_is_reported(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^PETSTORE_RATE_LIMIT must be a number of"):
        Settings.read({"PETSTORE_RATE_LIMIT": text})
