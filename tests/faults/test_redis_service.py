"""The service while Redis is dead, frozen or refuses its login: it responds fast and recovers."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from httpx import Response

from backends.redis.tests.servers import AOF, Server, single
from backends.redis.tests.topologies import url_of
from tests.support.pets import AVAILABLE_REX
from tests.support.responses import check_error
from tests.support.services import Live, Start
from tests.support.waiting import until

AT_ONCE = 0.05
"""Seconds: no response waits for a server that is known to be dead."""

SLACK = 1.0
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


def check_serving(live: Live, name: str) -> None:
    """Check that the service recovers by itself, with the stored pets."""
    until(lambda: live.client.get("/readyz").status_code == 200, 5)
    until(lambda: live.client.post("/v1/pets", json=AVAILABLE_REX).status_code == 201, 5)
    assert name in [pet["name"] for pet in live.client.get("/v1/pets?limit=100").json()]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_dead_server_is_503_at_once_until_it_runs_again(
    tmp_path: Path, start: Start, workers: str
) -> None:
    with single(tmp_path, *AOF) as server:
        live = start(backend="redis", redis_url=url_of(server), workers=workers)
        assert (
            live.client.post("/v1/pets", json=AVAILABLE_REX | {"name": "first"}).status_code == 201
        )
        server.kill()
        response, seconds = timed(requests(live)[0])
        check_unavailable(response)
        assert seconds < 1 + SLACK
        check_all_unavailable_at_once(live)
        server.start()
        check_serving(live, "first")


def test_a_frozen_server_is_503_after_the_timeout_and_then_at_once(
    tmp_path: Path, start: Start
) -> None:
    with single(tmp_path, *AOF) as server, ThreadPoolExecutor(9) as pool:
        live = start(backend="redis", redis_url=url_of(server))
        assert (
            live.client.post("/v1/pets", json=AVAILABLE_REX | {"name": "first"}).status_code == 201
        )
        server.freeze()
        begin = time.monotonic()
        for response, seconds in pool.map(timed, requests(live)):
            check_unavailable(response)
            assert seconds < 1 + SLACK
        assert 0.9 < time.monotonic() - begin < 1 + 2 * SLACK
        check_all_unavailable_at_once(live)
        server.resume()
        check_serving(live, "first")


def test_a_server_that_is_emptied_is_503_and_not_ready_and_the_log_says_why(
    tmp_path: Path, start: Start
) -> None:
    """The first write notices it. Until then reads find nothing."""
    with single(tmp_path, *AOF) as server:
        live = start(backend="redis", redis_url=url_of(server), log="off")
        assert live.client.post("/v1/pets", json=AVAILABLE_REX).status_code == 201
        assert server.call("FLUSHALL")
        check_unavailable(live.client.post("/v1/pets", json=AVAILABLE_REX))
        check_all_unavailable_at_once(live)
        assert server.call("KEYS", "*") == []
        log = (tmp_path / "service-1" / "serve.log").read_text()
    assert "was emptied" in log


def refuse(server: Server, password: str) -> None:
    """Change the password, and close the connections that use the old one."""
    with server.client() as client:
        client.config_set("requirepass", password)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    server.password = password


def test_a_password_that_no_longer_works_is_500_and_is_logged_without_secrets(
    tmp_path: Path, start: Start
) -> None:
    with single(tmp_path, *AOF, password="geheim") as server:
        url = f"redis://:geheim@127.0.0.1:{server.port}"
        live = start(backend="redis", redis_url=url, log="off")
        assert (
            live.client.post("/v1/pets", json=AVAILABLE_REX | {"name": "first"}).status_code == 201
        )
        refuse(server, "other-secret")
        until(lambda: live.client.get("/v1/pets").status_code == 500, 5)
        headers = {"X-Request-Id": "find-me"}
        response, seconds = timed(lambda: live.client.get("/v1/pets", headers=headers))
        check_error(response, 500, "internal_error")
        assert seconds < SLACK
        check_unavailable(live.client.get("/readyz"))
        assert live.client.get("/livez").status_code == 200
        refuse(server, "geheim")
        check_serving(live, "first")
        log = (tmp_path / "service-1" / "serve.log").read_text()
    assert "geheim" not in log
    assert "other-secret" not in log
    [line] = [json.loads(line) for line in log.splitlines() if "find-me" in line]
    assert line["level"] == "error"
    assert "WRONGPASS" in line["event"]
