"""The rate limit: what a client may send, and what it is told."""

import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore.limits import Limiter, RateLimit
from petstore.settings import ConfigurationError, Settings
from tests.conftest import Start
from tests.live import OTHER_KEY, in_thread
from tests.test_specification import check_error

TELLS = re.compile(r'"client";r=(\d+);t=(\d+)')

limits = st.builds(RateLimit, st.integers(1, 50), st.sampled_from((1, 60, 3600)))


class Clock:
    """Seconds that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def told(answer: httpx.Response) -> tuple[int, int]:
    """Return what is left, and the seconds until there is more."""
    match = TELLS.fullmatch(answer.headers["ratelimit"])
    assert match
    return int(match[1]), int(match[2])


@given(limits, st.lists(st.floats(0, 100), max_size=200))
def test_no_time_sees_more_than_the_quota_and_what_has_filled_up(
    limit: RateLimit, pauses: list[float]
) -> None:
    clock = Clock()
    limiter = Limiter(limit, clock)
    taken = []
    for pause in pauses:
        clock.now += pause
        wait, _ = limiter.take("a")
        if not wait:
            taken.append(clock.now)
    for first, begin in enumerate(taken):
        for count, end in enumerate(taken[first:], 1):
            assert count <= limit.quota + (end - begin) * limit.quota / limit.window + 1e-6


@given(limits, st.floats(0, 1))
def test_who_waits_as_long_as_told_is_let_in(limit: RateLimit, pause: float) -> None:
    clock = Clock()
    limiter = Limiter(limit, clock)
    waits = [limiter.take("a")[0] for _ in range(limit.quota + 1)]
    assert waits[:-1] == [0] * limit.quota
    clock.now += pause * waits[-1] / 2
    wait, _ = limiter.take("a")
    if wait:
        clock.now += wait
        assert limiter.take("a")[0] == 0


def test_every_answer_tells_what_is_left_and_one_too_many_is_429() -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="3/h")) as live:
        answers = [
            live.client.get("/v1/pets"),
            live.client.get("/v1/pets/99"),
            live.client.post("/v1/pets", content=b"{}"),
            live.client.get("/v1/pets"),
        ]
        assert [answer.status_code for answer in answers] == [200, 404, 415, 429]
        assert [told(answer)[0] for answer in answers] == [2, 1, 0, 0]
        assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"client";q=3;w=3600'}
        check_error(answers[-1], 429, "rate_limited")
        assert int(answers[-1].headers["retry-after"]) == told(answers[-1])[1] in range(1190, 1201)


def test_clients_do_not_share_a_quota() -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="1/h")) as live:
        assert live.client.get("/v1/pets").status_code == 200
        assert live.client.get("/v1/pets").status_code == 429
        other = {"Authorization": f"Bearer {OTHER_KEY}"}
        assert live.client.get("/v1/pets", headers=other).status_code == 200


def test_who_has_no_key_takes_from_no_quota_and_is_told_nothing() -> None:
    with in_thread(Settings(drain_seconds=0, rate_limit="1/h")) as live:
        with live.anonymous() as client:
            answers = [client.get("/v1/pets"), client.get("/livez"), client.options("/v1/pets")]
        assert [answer.status_code for answer in answers] == [401, 200, 204]
        assert not [a for a in answers if "ratelimit" in a.headers or "retry-after" in a.headers]
        assert live.client.get("/v1/pets").status_code == 200


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ("1", ", rate limit: 100/s per client\n"),
        ("2", ", rate limit: 100/s per client and worker, 200/s in total\n"),
    ],
)
def test_the_start_line_says_what_it_means(
    start: Start, workers: str, text: str, tmp_path: Path
) -> None:
    start(
        backend="sqlite",
        sqlite_path=f"{tmp_path}/pets.sqlite",
        workers=workers,
        rate_limit="100/s",
        log="text",
    )
    assert text in (tmp_path / "service-1" / "serve.log").read_text()


@pytest.mark.parametrize("text", ["1/s", "100/m", "999999999/h"])
def test_a_rate_limit_is_a_number_and_a_time(text: str) -> None:
    assert Settings.read({"PETSTORE_RATE_LIMIT": text}).rate_limit == text


@pytest.mark.parametrize("text", ["100", "0/s", "100/d", "1.5/s", "100/ s", "-1/s", "1000000000/s"])
def test_what_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^PETSTORE_RATE_LIMIT must be a number of"):
        Settings.read({"PETSTORE_RATE_LIMIT": text})
