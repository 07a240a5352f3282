"""The rate limit: how many requests a client may send, and the headers that say so."""

import multiprocessing
import re
from collections import Counter
from contextlib import ExitStack
from time import monotonic
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petstore.config.errors import ConfigurationError
from petstore.config.keys import MAX_CLIENTS
from petstore.config.settings import RateLimit, Settings
from petstore.http.limits import RateLimiter, Row, SharedCounters, shared_counters_bytes
from tests.support.responses import check_error
from tests.support.services import ONE_OR_TWO_WORKERS, OTHER_KEY, Start, in_thread

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
    limiter = RateLimiter(limit, SharedCounters(bytearray(shared_counters_bytes())), clock)
    admitted = []
    for pause in pauses:
        clock.now += pause
        wait, _ = limiter.take("a")
        if not wait:
            admitted.append(clock.now)
    for first, begin in enumerate(admitted):
        for count, end in enumerate(admitted[first:], 1):
            assert count <= limit.quota + (end - begin) * limit.quota / limit.window + 2e-3


@given(limits, st.floats(0, 1))
def test_a_client_that_waits_for_retry_after_is_admitted(limit: RateLimit, pause: float) -> None:
    clock = Clock()
    limiter = RateLimiter(limit, SharedCounters(bytearray(shared_counters_bytes())), clock)
    waits = [limiter.take("a")[0] for _ in range(limit.quota + 1)]
    assert waits[:-1] == [0] * limit.quota
    clock.now += pause * waits[-1] / 2
    wait, _ = limiter.take("a")
    if wait:
        clock.now += wait
        assert limiter.take("a")[0] == 0


def test_every_response_says_what_is_left_and_one_request_too_many_is_429() -> None:
    """A request without a key uses no quota, and each client has its own."""
    with (
        in_thread(Settings(drain_seconds=0, rate_limit=RateLimit.parse("3/h"))) as live,
        live.anonymous() as anonymous,
        live.new_client(OTHER_KEY) as other,
    ):
        keyless = [
            anonymous.get("/v1/pets"),
            anonymous.get("/livez"),
            anonymous.options("/v1/pets"),
        ]
        assert [response.status_code for response in keyless] == [401, 200, 204]
        assert not [r for r in keyless if "ratelimit" in r.headers or "retry-after" in r.headers]
        begin = monotonic()
        responses = [
            live.client.get("/v1/pets"),
            live.client.get("/v1/pets/99"),
            live.client.post("/v1/pets", content=b"{}"),
            live.client.get("/v1/pets"),
        ]
        assert [response.status_code for response in responses] == [200, 404, 415, 429]
        assert [remaining(response)[0] for response in responses] == [2, 1, 0, 0]
        policies = {response.headers["ratelimit-policy"] for response in responses}
        assert policies == {'"client";q=3;w=3600'}
        check_error(responses[-1], 429, "rate_limited")
        wait = int(responses[-1].headers["retry-after"])
        assert wait == remaining(responses[-1])[1]
        assert 1198 - (monotonic() - begin) <= wait <= 1200  # it is a second generous
        assert remaining(other.get("/v1/pets"))[0] == 2


@pytest.mark.parametrize("workers", ONE_OR_TWO_WORKERS)
def test_the_limit_is_that_of_the_service(start: Start, workers: str) -> None:
    live = start(workers=workers, rate_limit="20/h", log="text")
    assert ", rate limit: 20/h per client\n" in live.log.read_text()
    served = Counter[str]()
    with ExitStack() as stack:
        clients = [stack.enter_context(live.new_client()) for _ in range(4)]
        for number in range(40):
            response = clients[number % 4].get("/v1/pets")
            assert response.status_code == (200 if number < 20 else 429)
            assert remaining(response)[0] == max(0, 19 - number)
            served[response.headers["x-request-id"].partition("-")[0]] += 1
    assert len(served) == int(workers)
    assert live.stop() == 0


PROCESSES = 8


def take_for_a_second(worker: int, limit: RateLimit, memory: Any, start: Any) -> None:
    """Send requests as fast as possible, as one of several workers."""
    limiter = RateLimiter(limit, SharedCounters(memory, worker, PROCESSES))
    start.wait()
    end = monotonic() + 1
    while monotonic() < end:
        limiter.take("a")


@pytest.mark.slow
@pytest.mark.parametrize("per_second", [100, 2000])
def test_eight_processes_together_admit_what_the_limit_says(per_second: int) -> None:
    limit = RateLimit(per_second * 3600, 3600)
    context = multiprocessing.get_context("fork")  # cheaper, and this process has one thread
    memory = context.RawArray("b", shared_counters_bytes(PROCESSES))
    start = context.Barrier(PROCESSES)
    counters = SharedCounters(memory, 0, PROCESSES)
    clock = Clock()

    def left() -> int:
        clock.now = monotonic()
        _, (_, (_, header)) = RateLimiter(limit, counters, clock).take("a")
        match = RATE_LIMIT.fullmatch(header.decode())
        assert match
        return int(match[1])

    assert left() == limit.quota - 1
    begin = clock.now
    counters.find("a").admitted[0] = limit.quota
    processes = [
        context.Process(target=take_for_a_second, args=(worker, limit, memory, start))
        for worker in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    rest = left()
    admitted = sum(counters.find("a").admitted) - limit.quota
    assert admitted + rest == pytest.approx(per_second * (clock.now - begin), rel=0.02)
    assert admitted > per_second


def test_clients_keep_apart_and_their_counts_whoever_counts_them() -> None:
    memory = bytearray(shared_counters_bytes(2))
    limiters = [
        RateLimiter(RateLimit(2, 3600), SharedCounters(memory, n, 2), Clock()) for n in (0, 1)
    ]
    for client in (f"client-{number}" for number in range(1000)):
        assert [limiter.take(client)[0] > 0 for limiter in limiters * 2] == [0, 0, 1, 1]
    replaced = RateLimiter(RateLimit(2, 3600), SharedCounters(memory, 1, 2), Clock())
    assert replaced.take("client-7")[0] > 0


@pytest.mark.slow
def test_there_is_room_for_all_clients_that_a_key_file_may_have() -> None:
    counters = SharedCounters(bytearray(shared_counters_bytes()))
    limiter = RateLimiter(RateLimit(1, 3600), counters, Clock())
    assert not any(limiter.take(f"client-{number}")[0] for number in range(MAX_CLIENTS))


def test_a_client_whose_row_was_taken_by_another_worker_at_that_instant_gets_another() -> None:
    class Losing(SharedCounters):
        def find(self, client: str) -> Row:
            row = super().find(client)
            if client == "loses" and not lost:
                lost.append(row)
                memory[row.position * 8 : row.position * 8 + 8] = b"12345678"
            return row

    lost: list[Row] = []
    memory = bytearray(shared_counters_bytes())
    limiter = RateLimiter(RateLimit(2, 3600), Losing(memory), Clock())
    assert [limiter.take("loses")[0] > 0 for _ in range(4)] == [0, 0, 0, 1]
    assert limiter.take("other")[0] == 0


def test_a_client_beyond_the_last_row_shares_a_quota() -> None:
    memory = bytearray(24)  # one row
    limiter = RateLimiter(RateLimit(1, 3600), SharedCounters(memory), Clock())
    assert [limiter.take(client)[0] > 0 for client in "aab"] == [0, 1, 1]


@pytest.mark.parametrize("text", ["1/s", "100/m", "999999999/h"])
def test_a_rate_limit_is_a_number_and_a_time(text: str) -> None:
    assert str(Settings.read({"PETSTORE_RATE_LIMIT": text}).rate_limit) == text


@pytest.mark.parametrize("text", ["100", "0/s", "100/d", "1.5/s", "100/ s", "-1/s", "1000000000/s"])
def test_an_invalid_rate_limit_is_reported(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^PETSTORE_RATE_LIMIT must be a number of"):
        Settings.read({"PETSTORE_RATE_LIMIT": text})
