"""No response leaves before what it acknowledges or shows is synced.

strace records the system calls of a service on SQLite. What a response says of a pet (its name and
status) is in a page of the WAL: it must have been written there, and the WAL synced after that,
before the response is sent. The service is killed between a write and its sync, and started again.
"""

import re
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import httpx
import pytest

from tests.support.environments import program
from tests.support.services import Live, process
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CLIENTS = 8
PETS = 150
"""That each client creates and orders in each of two runs, of which the first one is killed."""

KILLED_AT = 300  # how many syncs the writer's thread begins then; it would need more
AHEAD = 2 * CLIENTS  # beyond the last acknowledged id: more than were in flight

# -s: how much of a page or a response is recorded, here all. -D: the service is our child.
STRACE = ("strace", "-D", "-f", "-q", "-y", "-s", "9000")
CALLS = ("-e", "trace=pwrite64,fsync,fdatasync,write,writev,sendto,sendmsg")
KILL = ("-e", f"inject=fdatasync:signal=KILL:when={KILLED_AT}")  # instead of the call
TRACED = "import os, sys; os.execvp('strace', [*{}, sys.executable, '-c', {!r}, *sys.argv[1:]])"
SERVE = "\nfrom petstore import cli; cli.main()"

LINE = re.compile(rb"(\d+) +(?:<\.\.\. )?(\w+)")
# In a row the status follows the name, for a category of 1 takes no byte; and clients send both
# together as the request id, which the response repeats.
MARK = re.compile(rb"pet\d{6}(?:available|pending)")
BODY = re.compile(rb'name\\":\\"(pet\d{6})\\",\\"categoryId\\":1,\\"status\\":\\"(\w+)')

NORMAL = """
import apsw

class NotSynced(apsw.Connection):
    def pragma(self, name, *value, **more):
        return super().pragma(name, *(["NORMAL"] if name == "synchronous" else value), **more)

apsw.Connection = NotSynced
"""
EARLY = """
import time
from petstore_sqlite.writer import Writer, _resolve

commit, execute = Writer._commit, Writer._execute

def noted(self, batch):
    self.futures = [entry.future for entry in batch]
    return commit(self, batch)

def respond(self, writes):
    outcomes = execute(self, writes)
    self._loop.call_soon_threadsafe(_resolve, self.futures, outcomes)
    time.sleep(0.01)
    return outcomes

Writer._commit, Writer._execute = noted, respond
"""
"""Responds, and then commits."""


class Client:
    """Creates pets and orders them; every second time with a key.

    done -- how many writes had a response
    last -- the id of the last pet
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.done = self.last = self.created = 0

    def run(self, live: Live) -> None:
        """Make all writes, or as many as there are until the service is killed."""
        self.created += self.created % 2 == 0  # a create without a key is not repeated
        with live.new_client() as http:
            try:
                for _ in range(PETS):
                    self._sell(http)
            except httpx.TransportError:
                assert live.popen.wait() == -signal.SIGKILL

    def _sell(self, http: httpx.Client) -> None:
        name = f"pet{self.number:02}{self.created:04}"
        pet = {"name": name, "categoryId": 1, "status": "available"}
        self.last = self._send(http, "pets", pet, f"{name}available")
        self.created += 1
        http.get(f"/v1/pets/{self.last + 1}")  # another client may be creating it
        self._send(http, "store/orders", {"petId": self.last}, f"{name}pending")

    def _send(self, http: httpx.Client, path: str, body: object, mark: str) -> int:
        headers = {"X-Request-Id": mark} | ({"Idempotency-Key": mark} if self.created % 2 else {})
        response = http.post(f"/v1/{path}", json=body, headers=headers)
        assert response.is_success, response.text
        self.done += 1
        return int(response.json()["id"])


def run(directory: Path, clients: list[Client], patch: str = "", *options: str) -> Path:
    """Let clients write at the same time; return the trace of the service."""
    trace = directory / f"trace{len([*directory.glob('trace*')])}"
    strace = (*STRACE, *CALLS, *options, "-o", str(trace))
    script, path = TRACED.format(strace, patch + SERVE), str(directory / "pets.sqlite")
    with process(directory, script=script, backend="sqlite", sqlite_path=path) as live:
        newest = max(client.last for client in clients)
        for id_ in range(newest + 1, newest + AHEAD):
            live.client.get(f"/v1/pets/{id_}")
        with ThreadPoolExecutor(len(clients)) as pool:
            [*pool.map(Client.run, clients, [live] * len(clients))]
        live.stop()
    until(lambda: re.search(rb"(?m)^%d +\+{3} " % live.popen.pid, trace.read_bytes()))
    return trace


def calls(traces: Iterable[Path]) -> Iterator[tuple[tuple[Path, bytes], bytes, bytes]]:
    """Yield the begin or end of each call: its thread, its name, and the line that records it."""
    for trace in traces:
        with trace.open("rb") as lines:
            for line in lines:
                if found := LINE.match(line):
                    yield (trace, found[1]), found[2], line


def check(*traces: Path) -> tuple[int, int, set[bytes]]:
    """Return how many responses had marks, the most marks of a sync, and those not synced in time.

    A sync covers what was written when it began, once it has ended.
    """
    written: dict[bytes, int] = {}  # and how many were before
    begun: dict[tuple[Path, bytes], int] = {}
    responses = synced = most = 0
    wrong = set[bytes]()
    for thread, call, line in calls(traces):
        if call in (b"fsync", b"fdatasync"):
            if b"-wal>" in line:
                begun[thread] = len(written)
            if line.endswith(b" = 0\n"):
                now = max(synced, begun.pop(thread, 0))  # nothing, of another file
                most, synced = max(most, now - synced), now
        elif call == b"pwrite64" and b"-wal>" in line:
            for mark in MARK.findall(line):
                written.setdefault(mark, len(written))
        elif b"HTTP/1.1 20" in line:
            shown = {*MARK.findall(line), *map(b"".join, BODY.findall(line))}
            responses += bool(shown)
            wrong |= {mark for mark in shown if written.get(mark, synced) >= synced}
    return responses, most, wrong


def test_no_response_leaves_before_what_it_shows_is_synced(tmp_path: Path) -> None:
    program("strace")
    clients = [Client(number) for number in range(CLIENTS)]
    killed = run(tmp_path, clients, "", *KILL)
    with closing(apsw.Connection(str(tmp_path / "pets.sqlite"))) as tool:
        tool.execute("SELECT * FROM pets")  # it has found in the WAL what was not synced
        responses, most, wrong = check(killed, run(tmp_path, clients))
    assert wrong == set()
    assert b"+++ killed by SIGKILL" in killed.read_bytes()
    assert responses >= sum(client.done for client in clients) > 2 * CLIENTS * PETS
    assert most > 1  # writes that share a commit


@pytest.mark.parametrize("patch", [NORMAL, EARLY], ids=["synchronous=NORMAL", "early responses"])
def test_a_missing_sync_is_noticed(patch: str, tmp_path: Path) -> None:
    program("strace")
    responses, _, wrong = check(run(tmp_path, [Client(1), Client(2)], patch))
    assert len(wrong) > responses / 2
