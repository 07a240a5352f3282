"""The service when its Redis is dead, frozen or refuses it: quick answers, and it comes back."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from httpx import Response

from backends.redis.tests.conftest import AOF, url_of
from backends.redis.tests.servers import Server, single, until
from tests.conftest import Start
from tests.live import Live
from tests.test_specification import check_error

PET = {"name": "Rex", "categoryId": 7, "status": "available"}
AT_ONCE = 0.05
"""Seconds: no answer waits for a server that is known to be dead."""

SLACK = 1.0
"""Seconds by which a busy machine may be late."""


def requests(live: Live) -> list[Callable[[], Response]]:
    """Return a request of each operation that touches the storage."""
    client = live.client
    return [
        lambda: client.get("/v1/pets"),
        lambda: client.get("/v1/pets/1"),
        lambda: client.post("/v1/pets", json=PET),
        lambda: client.post("/v1/pets", json=PET, headers={"Idempotency-Key": "a"}),
        lambda: client.get("/v1/store/orders"),
        lambda: client.get("/v1/store/orders/1"),
        lambda: client.post("/v1/store/orders", json={"petId": 1}),
        lambda: client.patch("/v1/store/orders/1", json={"status": "completed"}),
        lambda: client.get("/readyz"),
    ]


def timed(request: Callable[[], Response]) -> tuple[Response, float]:
    begin = time.monotonic()
    answer = request()
    return answer, time.monotonic() - begin


def check_unavailable(answer: Response) -> None:
    message = check_error(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert "127.0.0.1" not in message


def check_all_unavailable_at_once(live: Live) -> None:
    """Check that every operation answers 503 within milliseconds, and that the service lives."""
    taken = []
    for request in requests(live) * 3:
        answer, seconds = timed(request)
        check_unavailable(answer)
        taken.append(seconds)
    assert median(taken) < AT_ONCE
    assert max(taken) < SLACK
    assert live.client.get("/livez").status_code == 200


def check_serving(live: Live, name: str) -> None:
    """Check that the service has come back by itself, with what was stored."""
    until(lambda: live.client.get("/readyz").status_code == 200, 5)
    until(lambda: live.client.post("/v1/pets", json=PET).status_code == 201, 5)
    assert name in [pet["name"] for pet in live.client.get("/v1/pets?limit=100").json()]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_dead_server_is_503_at_once_until_it_is_back(
    tmp_path: Path, start: Start, workers: str
) -> None:
    with single(tmp_path, *AOF) as server:
        live = start(backend="redis", redis_url=url_of(server), workers=workers)
        assert live.client.post("/v1/pets", json=PET | {"name": "first"}).status_code == 201
        server.kill()
        answer, seconds = timed(requests(live)[0])
        check_unavailable(answer)
        assert seconds < 1 + SLACK
        check_all_unavailable_at_once(live)
        server.start()
        check_serving(live, "first")


def test_a_frozen_server_is_503_after_the_time_out_and_then_at_once(
    tmp_path: Path, start: Start
) -> None:
    with single(tmp_path, *AOF) as server, ThreadPoolExecutor(9) as pool:
        live = start(backend="redis", redis_url=url_of(server))
        assert live.client.post("/v1/pets", json=PET | {"name": "first"}).status_code == 201
        server.freeze()
        begin = time.monotonic()
        for answer, seconds in pool.map(timed, requests(live)):
            check_unavailable(answer)
            assert seconds < 1 + SLACK
        assert 0.9 < time.monotonic() - begin < 1 + 2 * SLACK
        check_all_unavailable_at_once(live)
        server.resume()
        check_serving(live, "first")


def refuse(server: Server, password: str) -> None:
    """Change the password, and close the connections that were let in with the former one."""
    with server.client() as client:
        client.config_set("requirepass", password)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    server.password = password


def test_a_password_that_is_wrong_by_now_is_500_and_in_the_log_without_secrets(
    tmp_path: Path, start: Start
) -> None:
    with single(tmp_path, *AOF, password="geheim") as server:
        url = f"redis://:geheim@127.0.0.1:{server.port}"
        live = start(backend="redis", redis_url=url, log="off")
        assert live.client.post("/v1/pets", json=PET | {"name": "first"}).status_code == 201
        refuse(server, "other-secret")
        until(lambda: live.client.get("/v1/pets").status_code == 500, 5)
        mine = {"X-Request-Id": "find-me"}
        answer, seconds = timed(lambda: live.client.get("/v1/pets", headers=mine))
        check_error(answer, 500, "internal_error")
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
