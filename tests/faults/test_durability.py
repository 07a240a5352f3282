"""Every pet whose creation got 201 survives kill -9, under load.

A kill shows no more than that: the page cache of the machine outlives the process, too. What
survives a power cut is another question.
"""

import asyncio
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from petstore.conformance.faults.histories import Item, repeated
from tests.support.responses import walk
from tests.support.services import KEY, Live, Start
from tests.support.waiting import until

KILLS = int(os.environ.get("PETSTORE_KILLS", "5"))
CLIENTS = 16
LOAD_SECONDS = 0.4
FLOOR = 50
"""How many pets must have been acknowledged before each kill, so that there was a load."""

STATUSES = ("available", "pending", "sold", None)


class Load:
    """Clients that create pets, and record the responses.

    acknowledged -- the pets that were returned with 201
    unknown -- the pets that were sent, but whose creation has an unknown outcome
    wrong -- other responses, and 201 with another pet than was sent
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.over = False
        self.acknowledged: list[Item] = []
        self.unknown: list[Item] = []
        self.wrong: list[str] = []

    async def keep_creating(self, client: int) -> None:
        """Create one pet after the other over a connection that is kept until it breaks."""
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        number = 0
        while not self.over:
            if streams is None:
                try:
                    streams = await asyncio.open_connection(self.live.host, self.live.port)
                except OSError:  # the service is not running now
                    await asyncio.sleep(0.01)
                    continue
            number += 1
            new: Item = {"name": f"{client}/{number} \u00e4\0\U0001f408", "categoryId": -number}
            if status := STATUSES[number % 4]:
                new["status"] = status
            try:
                await self._create(new, *streams)
            except (OSError, EOFError):
                self.unknown.append(new)
                streams[1].close()
                streams = None
        if streams is not None:
            streams[1].close()

    async def _create(
        self, new: Item, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        body = json.dumps(new).encode()
        request = (
            f"POST /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(request.encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)\r\n", head, re.IGNORECASE)
        assert length is not None
        content = await reader.readexactly(int(length[1]))
        if not head.startswith(b"HTTP/1.1 201 "):
            self.wrong.append(f"{head!r} {content!r}")
            self.unknown.append(new)
            return
        pet = json.loads(content)
        self.acknowledged.append(pet)
        if pet != {"id": pet["id"], **new}:
            self.wrong.append(f"{new} was created as {pet}")


def check(acknowledged: list[Item], unknown: list[Item], stored: list[Item]) -> None:
    """Check that a store holds every acknowledged pet, and no pet that was never sent."""
    twice = repeated(pet["id"] for pet in acknowledged)
    assert twice == [], "ids were assigned twice"
    by_id = {pet["id"]: pet for pet in stored}
    assert len(by_id) == len(stored), "an id is listed twice"
    lost = [pet for pet in acknowledged if pet["id"] not in by_id]
    assert lost == [], f"{len(lost)} of {len(acknowledged)} acknowledged pets are lost"
    changed = [pet for pet in acknowledged if by_id[pet["id"]] != pet]
    assert changed == [], "pets are not as they were sent"
    assert len(acknowledged) <= len(stored) <= len(acknowledged) + len(unknown)
    known = {pet["id"] for pet in acknowledged}
    names = [pet["name"] for pet in stored if pet["id"] not in known]
    assert not Counter(names) - Counter(pet["name"] for pet in unknown), "a pet was never sent"


async def load_and_kill(load: Load, start: Start, settings: dict[str, str]) -> None:
    clients = [asyncio.create_task(load.keep_creating(number)) for number in range(CLIENTS)]
    for _ in range(KILLS):
        before = len(load.acknowledged)
        await asyncio.sleep(LOAD_SECONDS)
        while len(load.acknowledged) < before + FLOOR:  # noqa: ASYNC110 - a slow disk
            await asyncio.sleep(0.01)
        await asyncio.to_thread(load.live.kill)
        load.live = await asyncio.to_thread(start, **settings)
    await asyncio.sleep(LOAD_SECONDS)
    load.over = True
    await asyncio.gather(*clients)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_acknowledged_pet_survives_kills(tmp_path: Path, start: Start, workers: int) -> None:
    settings = {
        "backend": "sqlite",
        "sqlite_path": str(tmp_path / "pets.sqlite"),
        "workers": str(workers),
        "log": "off",
    }
    load = Load(start(**settings))
    asyncio.run(load_and_kill(load, start, settings))
    if workers > 1:
        until(lambda: len(load.live.workers()) == workers, 5)
    stored = walk(load.live.client, "/v1/pets")
    sys.stdout.write(
        f"{workers} worker(s), {KILLS} kills: {len(load.acknowledged)} acknowledged,"
        f" {len(load.unknown)} unknown, {len(stored)} stored\n"
    )
    assert load.wrong == []
    assert len(load.unknown) >= KILLS  # the kills met requests in flight
    check(load.acknowledged, load.unknown, stored)
    lost = load.acknowledged[len(load.acknowledged) // 2]
    with pytest.raises(AssertionError, match="acknowledged pets are lost"):
        check(load.acknowledged, load.unknown, [pet for pet in stored if pet != lost])


def test_the_check_notices_wrong_stores() -> None:
    """The control: a store that has lost, changed, duplicated or invented a pet fails."""
    acknowledged: list[Item] = [{"id": n, "name": f"{n}", "categoryId": n} for n in range(1, 9)]
    unknown: list[Item] = [{"name": "u", "categoryId": 1}]
    stored = [*acknowledged, {"id": 9, "name": "u", "categoryId": 1}]
    check(acknowledged, unknown, stored)
    check(acknowledged, unknown, acknowledged)
    for wrong, reason in (
        (stored[1:], "1 of 8 acknowledged pets are lost"),
        ([*stored[:3], {**stored[3], "categoryId": 0}, *stored[4:]], "not as they were sent"),
        ([*stored, stored[0]], "listed twice"),
        ([*stored, {"id": 10, "name": "u", "categoryId": 1}], "assert 10 <="),
        ([*acknowledged, {"id": 9, "name": "v", "categoryId": 1}], "never sent"),
    ):
        with pytest.raises(AssertionError, match=reason):
            check(acknowledged, unknown, wrong)
    with pytest.raises(AssertionError, match="assigned twice"):
        check([*acknowledged, acknowledged[0]], unknown, stored)
