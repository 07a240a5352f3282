"""The service while Redis is dead, frozen or refuses its login: it responds fast and recovers."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from httpx import Response

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.topologies import url_of
from tests.support.command import error_message, run_command
from tests.support.pets import AVAILABLE_REX
from tests.support.responses import check_error
from tests.support.services import Live, Start
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

AT_ONCE = 0.05
"""Seconds: no response waits for a server that is known to be dead."""

SLACK = 3.0 * PATIENCE
"""Seconds of delay that a busy machine may add."""


def requests(live: Live) -> list[Callable[[], Response]]:
    """Return a function for each operation that uses the storage; it sends a request."""
    client = live.client
    return [
        lambda: client.get("/v1/pets"),
        lambda: client.get("/v1/pets/1"),
        lambda: client.post("/v1/pets", json=AVAILABLE_REX),
        lambda: client.post("/v1/pets", json=AVAILABLE_REX, headers={"Idempotency-Key": "a"}),
        lambda: client.get("/v1/store/orders"),
        lambda: client.get("/v1/store/orders/1"),
        lambda: client.post("/v1/store/orders", json={"petId": 1}),
        lambda: client.patch("/v1/store/orders/1", json={"status": "completed"}),
        lambda: client.get("/readyz"),
    ]


def timed(request: Callable[[], Response]) -> tuple[Response, float]:
    begin = time.monotonic()
    response = request()
    return response, time.monotonic() - begin


def check_unavailable(response: Response) -> None:
    message = check_error(response, 503, "unavailable")
    assert int(response.headers["retry-after"]) >= 1
    assert "127.0.0.1" not in message


def check_all_unavailable_at_once(live: Live) -> None:
    """Check that every operation returns 503 within milliseconds, and the service is alive."""
    durations = []
    for request in requests(live) * 3:
        response, seconds = timed(request)
        check_unavailable(response)
        durations.append(seconds)
    assert median(durations) < AT_ONCE
    assert max(durations) < SLACK
    assert live.client.get("/livez").status_code == 200


def add_first(live: Live) -> None:
    """Create the first pet."""
    created = live.client.post("/v1/pets", json=AVAILABLE_REX | {"name": "first"})
    assert created.status_code == 201


def check_serving(live: Live) -> None:
    """Check that the service recovers by itself, with the first pet."""
    until(lambda: live.client.get("/readyz").status_code == 200)
    until(lambda: live.client.post("/v1/pets", json=AVAILABLE_REX).status_code == 201)
    assert "first" in [pet["name"] for pet in live.client.get("/v1/pets?limit=100").json()]


def test_a_dead_server_is_503_at_once_until_it_runs_again(tmp_path: Path, start: Start) -> None:
    with single(tmp_path, *AOF) as server:
        live = start(backend="redis", redis_url=url_of(server), workers="2")
        add_first(live)
        server.kill()
        response, seconds = timed(requests(live)[0])
        check_unavailable(response)
        assert seconds < 1 + SLACK
        check_all_unavailable_at_once(live)
        server.start()
        check_serving(live)


def test_a_frozen_server_is_503_after_the_timeout_and_then_at_once(
    tmp_path: Path, start: Start
) -> None:
    with single(tmp_path, *AOF) as server, ThreadPoolExecutor(9) as pool:
        live = start(backend="redis", redis_url=url_of(server))
        add_first(live)
        server.freeze()
        begin = time.monotonic()
        for response, seconds in pool.map(timed, requests(live)):
            check_unavailable(response)
            assert seconds < 1 + SLACK
        assert 0.9 < time.monotonic() - begin < 1 + 2 * SLACK
        check_all_unavailable_at_once(live)
        server.resume()
        check_serving(live)


def refuse(server: Server, password: str) -> None:
    """Change the password, and close the connections that use the old one."""
    with server.client() as client:
        client.config_set("requirepass", password)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    server.password = password


def test_a_password_that_is_changed_is_503_until_it_is_restored(
    tmp_path: Path, start: Start
) -> None:
    with single(tmp_path, *AOF, password="hunter2") as server:
        url = f"redis://:hunter2@127.0.0.1:{server.port}"
        live = start(backend="redis", redis_url=url, log="off")
        add_first(live)
        refuse(server, "other-secret")
        until(
            lambda: (
                live.client.get("/v1/pets").status_code == 503
                and "the user or the password is refused: WRONGPASS" in live.log.read_text()
            )
        )
        check_all_unavailable_at_once(live)
        refused = run_command("check", backend="redis", redis_url=url)
        assert error_message(refused).startswith("petstore: redis at redis://:***@127.0.0.1:")
        assert "the user or the password is refused: WRONGPASS" in refused.stderr
        refuse(server, "hunter2")
        check_serving(live)
        log = live.log.read_text()
    assert "hunter2" not in log
    assert "other-secret" not in log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_warning_of_the_start_comes_once(tmp_path: Path, start: Start, workers: str) -> None:
    with single(tmp_path) as server:
        live = start(backend="redis", redis_url=url_of(server), workers=workers, log="text")
        for victim in live.workers():
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: len({*live.workers()} - {victim}) == int(workers))  # type: ignore[misc] # its default confuses mypy
        until(lambda: len(server.call("CLIENT LIST")) == 1 + int(workers))  # this one, too
        assert live.log.read_text().count("has no AOF") == 1
        live.stop()
