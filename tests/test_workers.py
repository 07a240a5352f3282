"""Several worker processes on one SQLite file: they share the work, and end together."""

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live import KEY, START_SECONDS, Live, alive, children, environment, key_line, process
from tests.test_command import in_process, mistake
from tests.test_keys import put, within
from tests.test_paging import next_link

WORKERS = 2
END_SECONDS = 6
PET = {"name": "Rex", "categoryId": 7}


@contextmanager
def served(directory: Path, **settings: str) -> Iterator[Live]:
    """Run a service of two workers on a new file."""
    settings = {
        "backend": "sqlite",
        "sqlite_path": str(directory / "pets.sqlite"),
        "workers": str(WORKERS),
        "drain_seconds": "0",
        "log": "off",
    } | settings
    with process(directory, **settings) as live:
        yield live


def instance(answer: httpx.Response) -> str:
    """Return which process answered."""
    return str(answer.headers["x-request-id"]).partition("-")[0]


@contextmanager
def client_of_each(live: Live, key: str = KEY) -> Iterator[list[httpx.Client]]:
    """Yield a client for each worker, with a connection to it."""
    headers = {"Authorization": f"Bearer {key}"}
    found: dict[str, httpx.Client] = {}
    end = time.monotonic() + START_SECONDS
    with ExitStack() as stack:
        while len(found) < WORKERS:
            assert time.monotonic() < end, f"only {len(found)} workers answer"
            client = httpx.Client(base_url=live.url, headers=headers, timeout=10)
            stack.enter_context(client)
            found.setdefault(instance(client.get("/livez")), client)
        yield list(found.values())


def listed(client: httpx.Client) -> list[dict[str, Any]]:
    """Return all animals, by walking from page to page."""
    pets: list[dict[str, Any]] = []
    url: str | None = "/v1/pets?limit=100"
    while url is not None:
        answer = client.get(url)
        assert answer.status_code == 200
        pets += answer.json()
        url = next_link(answer)
    return pets


def gone(processes: list[int]) -> bool:
    """Wait until processes have ended; return whether they did."""
    return within(END_SECONDS, lambda: not any(alive(number) for number in processes))


def is_free(live: Live) -> bool:
    """Return whether the port of a service can be taken again."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((live.host, live.port))
        except OSError:
            return False
    return True


def test_animals_added_through_both_are_unique_and_listed_alike(tmp_path: Path) -> None:
    with served(tmp_path) as live:

        def add(number: int) -> tuple[str, dict[str, Any]]:
            body = {"name": f"{number}", "categoryId": number, "status": "sold"}
            close = {"Connection": "close"}  # so that each has a connection of its own
            answer = live.client.post("/v1/pets", json=body, headers=close)
            assert answer.status_code == 201
            assert answer.json() == {"id": answer.json()["id"], **body}
            return instance(answer), answer.json()

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(add, range(400)))
        served_by = [worker for worker, _ in answers]
        pets = sorted((pet for _, pet in answers), key=lambda pet: int(pet["id"]))
        assert len(set(served_by)) == WORKERS
        assert min(served_by.count(worker) for worker in set(served_by)) >= 10
        assert len({pet["id"] for pet in pets}) == 400
        with client_of_each(live) as clients:
            for client in clients:
                assert listed(client) == pets
            one, other = clients
            for writer, reader in (one, other), (other, one):
                for _ in range(50):
                    pet = writer.post("/v1/pets", json=PET).json()
                    assert reader.get(f"/v1/pets/{pet['id']}").json() == pet
        assert live.stop() == 0


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with served(tmp_path) as live:
        before = live.workers()
        assert len(before) == WORKERS
        pet = live.client.post("/v1/pets", json=PET).json()
        os.kill(before[0], signal.SIGKILL)
        for _ in range(20):  # by the other one
            with httpx.Client(base_url=live.url, headers=live.client.headers) as client:
                assert client.get(f"/v1/pets/{pet['id']}").json() == pet
        assert within(END_SECONDS, lambda: len(live.workers()) == WORKERS)
        assert before[0] not in live.workers()
        assert before[1] in live.workers()
        with client_of_each(live) as clients:
            for client in clients:
                assert listed(client) == [pet]
            assert clients[0].post("/v1/pets", json=PET).json()["id"] > pet["id"]
        assert live.stop() == 0
    log = (tmp_path / "serve.log").read_text()
    assert log.count(f"worker {before[0]} ended with status -9; replacing it") == 1
    assert "Traceback" not in log


def test_sigterm_drains_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with served(tmp_path, drain_seconds="1") as live, client_of_each(live) as clients:
        assert live.process is not None
        processes = children(live.process.pid)
        live.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        for client in clients:
            answer = client.post("/v1/pets", json=PET)
            assert (answer.status_code, answer.headers["connection"]) == (201, "close")
        assert live.process.wait(10) == 0
        assert gone(processes)
        assert is_free(live)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"serve.log", "pets.sqlite"}  # no WAL: closed in order
    assert "Traceback" not in (tmp_path / "serve.log").read_text()


@contextmanager
def group(directory: Path, *arguments: str, wait: bool) -> Iterator[Live]:
    """Run a service that leads a process group of its own, as a shell starts it.

    arguments -- of Python; without them, what runs the command
    """
    arguments = arguments or ("-m", "petstore", "serve")
    log = directory / "group.log"
    settings = {"backend": "sqlite", "sqlite_path": str(directory / "pets.sqlite")}
    env = environment(
        api_keys=KEY, listen="127.0.0.1:0", workers=str(WORKERS), drain_seconds="0", **settings
    )
    with log.open("wb") as stderr:
        popen = subprocess.Popen(
            [sys.executable, *arguments], env=env, stderr=stderr, process_group=0
        )
    live = Live("127.0.0.1", 0, popen)
    try:
        if wait:
            pattern = re.compile(r"serving on http://127.0.0.1:(\d+)")
            assert within(START_SECONDS, lambda: pattern.search(log.read_text()) is not None)
            match = pattern.search(log.read_text())
            assert match is not None
            live.port = int(match[1])
        yield live
    finally:
        live.client.close()
        if popen.poll() is None:
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_with_status_0(tmp_path: Path, signal_: int) -> None:
    with group(tmp_path, wait=True) as live:
        assert live.process is not None
        processes = children(live.process.pid)
        os.killpg(live.process.pid, signal_)
        assert live.process.wait(10) == 0
        assert gone(processes)
        assert is_free(live)
    log = (tmp_path / "group.log").read_text()
    assert "Traceback" not in log
    assert "KeyboardInterrupt" not in log


@pytest.mark.parametrize("seconds", [0, 0.05, 0.2])
def test_an_interrupt_while_workers_start_ends_with_status_0(
    tmp_path: Path, seconds: float
) -> None:
    with group(tmp_path, wait=False) as live:
        assert live.process is not None
        assert within(START_SECONDS, lambda: live.workers() != [])
        processes = children(live.process.pid)
        time.sleep(seconds)
        os.killpg(live.process.pid, signal.SIGINT)
        assert live.process.wait(10) == 0
        assert gone(processes)
    log = (tmp_path / "group.log").read_text()
    assert "Traceback" not in log


STOPPED_WHILE_IT_STARTS_A_WORKER = """
import os, signal
from petstore import cli, workers

class Supervisor(workers.Supervisor):
    def _start(self):
        process = super()._start()
        if not self._signals:
            os.kill(os.getpid(), signal.SIGTERM)
        return process

workers.Supervisor = Supervisor
cli.main(["serve"])
"""


def test_a_signal_that_comes_while_a_worker_is_being_started_reaches_it(tmp_path: Path) -> None:
    with group(tmp_path, "-c", STOPPED_WHILE_IT_STARTS_A_WORKER, wait=False) as live:
        assert live.process is not None
        assert live.process.wait(10) == 0


def test_workers_whose_parent_is_killed_end_by_themselves(tmp_path: Path) -> None:
    with served(tmp_path) as live:
        assert live.process is not None
        workers = live.workers()
        assert len(workers) == WORKERS
        live.process.kill()
        live.process.wait(10)
        assert gone(workers)
        assert is_free(live)


@pytest.mark.parametrize("seconds", [0.1, 0.4])
def test_workers_whose_parent_is_killed_while_they_start_end_too(
    tmp_path: Path, seconds: float
) -> None:
    with group(tmp_path, wait=False) as live:
        assert live.process is not None
        assert within(START_SECONDS, lambda: len(live.workers()) == WORKERS)
        workers = live.workers()
        time.sleep(seconds)
        live.process.kill()
        live.process.wait(10)
        try:
            assert gone(workers)
        finally:
            for worker in filter(alive, workers):
                os.kill(worker, signal.SIGKILL)


def test_several_workers_on_memory_are_refused() -> None:
    told = mistake(in_process("serve", "--workers", "4", backend="memory", api_keys=KEY))
    assert told == (
        "petstore: the backend 'memory' lives inside one process; --workers 4 would serve four"
        " different stores. Use --workers 1, or a shared backend: redis, sqlite\n"
    )


def test_a_change_of_the_key_file_is_taken_up_by_each(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"new").hexdigest()
    file = tmp_path / "keys"
    file.write_text(key_line("old", "old"))
    with served(tmp_path, api_keys_file=str(file)) as live, client_of_each(live, "new") as clients:

        def statuses() -> set[int]:
            return {client.get("/v1/pets").status_code for client in clients}

        assert statuses() == {401}
        put(file, f"old:{hashlib.sha256(b'old').hexdigest()}\nnew:{digest}\n".encode())
        assert within(5, lambda: statuses() == {200})
