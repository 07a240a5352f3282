"""What was answered 201 outlives kill -9, under load.

That is all that a kill can show: the page cache of the machine outlives the process too. What a
power cut takes is another matter.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.live import KEY, Live
from tests.test_keys import within
from tests.test_workers import listed

KILLS = int(os.environ.get("PETSTORE_KILLS", "5"))
CLIENTS = 16
LOAD_SECONDS = 0.4
FLOOR = 50
"""How many animals must have been acknowledged for each kill, so that there was a load."""

Animal = dict[str, Any]
STATUSES = ("available", "pending", "sold", None)


class Load:
    """Clients that create animals, and remember what they were answered.

    acknowledged -- animals whose creation was answered 201, as they were answered
    unknown -- animals that were sent, and of which nobody knows
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.over = False
        self.acknowledged: list[Animal] = []
        self.unknown: list[Animal] = []
        self.wrong: list[str] = []

    async def keep_creating(self, client: int) -> None:
        """Create one animal after the other over a connection that is kept until it breaks."""
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        number = 0
        while not self.over:
            if streams is None:
                try:
                    streams = await asyncio.open_connection(self.live.host, self.live.port)
                except OSError:  # nobody is there now
                    await asyncio.sleep(0.01)
                    continue
            number += 1
            animal: Animal = {
                "name": f"{client}/{number} \u00e4\0\U0001f408",
                "categoryId": -number,
            }
            if status := STATUSES[number % 4]:
                animal["status"] = status
            try:
                await self._create(animal, *streams)
            except (OSError, EOFError):
                self.unknown.append(animal)
                streams[1].close()
                streams = None
        if streams is not None:
            streams[1].close()

    async def _create(
        self, animal: Animal, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        body = json.dumps(animal).encode()
        head = (
            f"POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)\r\n", answer, re.IGNORECASE)
        assert length is not None
        content = await reader.readexactly(int(length[1]))
        if not answer.startswith(b"HTTP/1.1 201 "):
            self.wrong.append(f"{answer!r} {content!r}")
            self.unknown.append(animal)
            return
        pet = json.loads(content)
        self.acknowledged.append(pet)
        if pet != {"id": pet["id"], **animal}:
            self.wrong.append(f"{animal} was answered with {pet}")


def check(acknowledged: list[Animal], unknown: list[Animal], stored: list[Animal]) -> None:
    """Check that a store holds all that was acknowledged, and nothing that nobody sent."""
    twice = [number for number, n in Counter(pet["id"] for pet in acknowledged).items() if n > 1]
    assert twice == [], "ids were given out twice"
    by_id = {pet["id"]: pet for pet in stored}
    assert len(by_id) == len(stored), "an id is listed twice"
    lost = [pet for pet in acknowledged if pet["id"] not in by_id]
    assert lost == [], f"{len(lost)} of {len(acknowledged)} acknowledged animals are lost"
    changed = [pet for pet in acknowledged if by_id[pet["id"]] != pet]
    assert changed == [], "animals are not as they were sent"
    assert len(acknowledged) <= len(stored) <= len(acknowledged) + len(unknown)
    known = {pet["id"] for pet in acknowledged}
    names = [pet["name"] for pet in stored if pet["id"] not in known]
    assert not Counter(names) - Counter(animal["name"] for animal in unknown), "nobody sent it"


def kill(live: Live) -> None:
    """Kill the service with all its processes, as nothing can prevent."""
    assert live.process is not None
    workers = live.workers()
    live.process.kill()
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    live.process.wait()


async def load_and_kill(load: Load, start: Start, settings: dict[str, str]) -> None:
    clients = [asyncio.create_task(load.keep_creating(number)) for number in range(CLIENTS)]
    for _ in range(KILLS):
        before = len(load.acknowledged)
        await asyncio.sleep(LOAD_SECONDS)
        while len(load.acknowledged) < before + FLOOR:  # noqa: ASYNC110 - a slow disk
            await asyncio.sleep(0.01)
        await asyncio.to_thread(kill, load.live)
        load.live = await asyncio.to_thread(start, **settings)
    await asyncio.sleep(LOAD_SECONDS)
    load.over = True
    await asyncio.gather(*clients)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_acknowledged_animal_survives_kills(tmp_path: Path, start: Start, workers: int) -> None:
    settings = {
        "backend": "sqlite",
        "sqlite_path": str(tmp_path / "pets.sqlite"),
        "workers": str(workers),
        "log": "off",
    }
    load = Load(start(**settings))
    asyncio.run(load_and_kill(load, start, settings))
    if workers > 1:
        assert within(5, lambda: len(load.live.workers()) == workers)
    stored = listed(load.live.client)
    sys.stdout.write(
        f"{workers} worker(s), {KILLS} kills: {len(load.acknowledged)} acknowledged,"
        f" {len(load.unknown)} unknown, {len(stored)} stored\n"
    )
    assert load.wrong == []
    assert len(load.unknown) >= KILLS  # the kills met requests under way
    check(load.acknowledged, load.unknown, stored)
    some = load.acknowledged[len(load.acknowledged) // 2]
    with pytest.raises(AssertionError, match="acknowledged animals are lost"):
        check(load.acknowledged, load.unknown, [pet for pet in stored if pet != some])


def test_the_check_finds_what_is_wrong() -> None:
    """The control: a store that has lost, changed, doubled or made up an animal fails."""
    acknowledged: list[Animal] = [{"id": n, "name": f"{n}", "categoryId": n} for n in range(1, 9)]
    unknown: list[Animal] = [{"name": "u", "categoryId": 1}]
    stored = [*acknowledged, {"id": 9, "name": "u", "categoryId": 1}]
    check(acknowledged, unknown, stored)
    check(acknowledged, unknown, acknowledged)
    for wrong, reason in (
        (stored[1:], "1 of 8 acknowledged animals are lost"),
        ([*stored[:3], {**stored[3], "categoryId": 0}, *stored[4:]], "not as they were sent"),
        ([*stored, stored[0]], "listed twice"),
        ([*stored, {"id": 10, "name": "u", "categoryId": 1}], "assert 10 <="),
        ([*acknowledged, {"id": 9, "name": "v", "categoryId": 1}], "nobody sent it"),
    ):
        with pytest.raises(AssertionError, match=reason):
            check(acknowledged, unknown, wrong)
    with pytest.raises(AssertionError, match="given out twice"):
        check([*acknowledged, acknowledged[0]], unknown, stored)
