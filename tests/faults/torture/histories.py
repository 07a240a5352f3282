"""Histories: random clients, and faults meanwhile; then the search for what explains all responses.

Each history is short: a few clients, a small universe of pets and keys, at most one fault. It runs
on the store that the histories before it have left; at the end, everything is read once more.
"""

import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

from petstore.conformance.faults.histories import Item, given_twice, lost
from petstore.conformance.faults.racers import Client
from tests.faults.torture import controls, partitions
from tests.faults.torture.postgres import (
    postgres,
    postgres_behind_a_proxy,
    postgres_with_a_standby,
)
from tests.faults.torture.report import Result, left_out
from tests.faults.torture.service import Fault, SetUp
from tests.faults.torture.setups import (
    PARTITIONS,
    RENEWED_AFTER,
    behind_a_proxy,
    behind_sentinels,
    memory,
    on_a_cluster,
    one_server,
    sqlite,
)
from tests.support.interface import ORDERS, PETS
from tests.support.races import JudgedRace
from tests.support.responses import walk

Opened = Callable[[Path], AbstractContextManager[SetUp]]

SET_UPS: tuple[tuple[Opened, int], ...] = (
    (memory, 4),
    (sqlite(1), 3),
    (sqlite(2), 3),
    (one_server, 3),
    (behind_a_proxy, 1),
    (behind_sentinels, 2),
    (on_a_cluster(1), 2),
    (on_a_cluster(PARTITIONS), 2),
    (postgres, 3),
    (postgres_behind_a_proxy, 1),
    (postgres_with_a_standby, 2),
)
"""The set-ups, and their shares of the time."""

PARTITIONED_SHARE = 3
FLOOR = 150
"""How many responses clients get before a fault, and again after it."""

PATIENCE = 400
REPEATED = 4
LIMIT_SECONDS = 240
"""How long a history may take at most, with its fault: a busy machine elects a master slowly."""

REPORTED_SECONDS = 20
WRITES_AHEAD = 10
JUMPS = 0.05
"""After which part of the histories the clock jumps 25 hours ahead and back."""

DAY = int(timedelta(hours=25).total_seconds())


def run(seconds: float, seed: int) -> Iterator[Result]:
    """Run the controls, then histories on every set-up, in the time that there is."""
    yield from controls.run(seed)
    if not shutil.which("cc"):
        yield left_out("histories: clock jumps", "there is no C compiler", seed)
    left = [*SET_UPS]
    deadline = time.monotonic() + seconds
    shares = sum(share for _, share in left) + PARTITIONED_SHARE
    for opened, share in left:
        budget = (deadline - time.monotonic()) * share / shares
        shares -= share
        yield from _on(opened, budget, seed)
    yield from partitions.run(deadline - time.monotonic(), seed)


def _on(opened: Opened, seconds: float, seed: int) -> Iterator[Result]:
    """Run histories on one set-up; if it breaks, that is a violation, and the others continue."""
    what = "histories: a set-up that did not start"
    try:
        with tempfile.TemporaryDirectory() as name, opened(Path(name)) as set_up:
            what = f"histories: {set_up.what}"
            yield from Loop(set_up, seed).run(Path(name), seconds)
    except Exception as error:  # noqa: BLE001 - the report must say so
        traceback.print_exc()
        yield Result(what, {}, [f"it broke: {error!r}"], seed)


class Loop:
    """Histories on one set-up, one after the other.

    expected -- what the histories have left, by path and id
    uncertain -- pets that an unanswered request may still order
    oldest -- the keys and ids of the first pets
    after -- the highest ids of pets and orders so far: later histories begin after them
    """

    def __init__(self, set_up: SetUp, seed: int) -> None:
        self.set_up = set_up
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []
        self.number = 0
        self._forget()

    def _forget(self) -> None:
        self.expected: dict[str, dict[int, Item]] = {PETS: {}, ORDERS: {}}
        self.uncertain: set[int] = set()
        self.oldest: dict[str, int] = {}
        self.after = (0, 0)

    def run(self, directory: Path, seconds: float) -> Iterator[Result]:
        """Run at least one history, and more while there is time; yield now and then."""
        deadline = time.monotonic() + seconds
        reported = time.monotonic()
        with self.set_up.running(directory):
            while not self.number or time.monotonic() < deadline:
                self._run_one()
                if time.monotonic() > reported + REPORTED_SECONDS:
                    yield self._result()
                    reported = time.monotonic()
            if self.set_up.lossless:
                self._audit()
        yield self._result()

    def _result(self) -> Result:
        result = Result(f"histories: {self.set_up.what}", dict(self.counts), self.found, self.seed)
        self.counts, self.found = Counter(), []
        return result

    def _run_one(self) -> None:
        set_up = self.set_up
        self.number += 1
        choice = set_up.random = random.Random(f"{self.seed} {set_up.what} {self.number}")  # noqa: S311 - no secret
        fault = choose(choice, set_up.faults)
        race = JudgedRace(
            set_up.live,
            PATIENCE,
            name=f"{self.number}-",
            seed=f"{self.seed} {set_up.what} {self.number}",
            floor=FLOOR if fault else 2 * FLOOR,
            abandoned=choice.choice((0, 0.02, 0.1)),
            repeated=REPEATED,
            limit_seconds=LIMIT_SECONDS,
            after=self.after,
        )
        happened = []

        def strike(live: Any) -> Any:
            assert fault is not None
            after, name = fault(set_up, race, live)
            happened.append(name)
            return after

        masters = set_up.masters()
        try:
            race.run(
                Client.wander,
                clients=choice.randrange(3, 12),
                seconds=choice.uniform(0, 0.05),
                kills=int(fault is not None),
                restart=strike,
            )
            replaced = set_up.masters() != masters
            if set_up.lossless or not replaced:
                moments = set_up.partitions == 1
                found = race.violations(replaced=replaced, pages_are_moments=moments)
            else:
                found = [*given_twice(race.history)]
                self.counts["lost acknowledged writes"] += len(lost(*race.final, race.history))
        except Exception as error:  # noqa: BLE001 - whatever it is, the service did not recover
            found = [f"no end: {error!r} {getattr(error, 'exceptions', '')}"]
        self._count(race, happened)
        found += self._remember(race)
        name = f" ({fault.__name__})" if fault else ""
        if not found and self.oldest and choice.random() < JUMPS:
            found += self._jump_a_day()
        self.found += [f"history {self.number}{name}: {text}" for text in found]
        if found or (set_up.partitions > 1 and set_up.failovers >= RENEWED_AFTER):
            self._renew()

    def _count(self, race: JudgedRace, happened: list[str]) -> None:
        self.counts["histories"] += 1
        self.counts["requests"] += len(race.history)
        self.counts["acknowledged writes"] += sum(
            attempt.got(200) or (attempt.got(201) and not attempt.response.replayed)
            for attempt in race.history
            if attempt.response and attempt.action in {"create", "place", "close"}
        )
        self.counts["unknown outcomes"] += race.unknown
        self.counts["given up searches"] += race.undecided
        for name in happened:
            self.counts[name] += bool(name)

    def _remember(self, race: JudgedRace) -> Iterator[str]:
        """Remember what a history has left; yield what it has that another one had before."""
        if race.gone:
            self._forget()
            return
        for attempt in race.history:
            if attempt.action in {"create", "place"} and attempt.got(201) and attempt.response:
                path = PETS if attempt.action == "create" else ORDERS
                if attempt.response.item["id"] in self.expected[path]:
                    yield f"{attempt}, but this id is of an earlier history"
        for path, items in zip((PETS, ORDERS), race.final, strict=True):
            self.expected[path] |= {item["id"]: item for item in items}
        for attempts in race.uncertain():
            self.uncertain.add(attempts[0].id_)
        if not self.oldest and self.set_up.lossless and self.set_up.clock.works:
            self.oldest = {
                a.key: a.response.item["id"]
                for a in race.history
                if a.action == "create" and a.got(201) and a.response
            }
        self.after = (self._highest(PETS), self._highest(ORDERS))

    def _highest(self, path: str) -> int:
        """Return an id such that those of later histories are higher, in every partition."""
        count = self.set_up.partitions
        highest = dict.fromkeys(range(count), 0)
        for id_ in self.expected[path]:
            partition = (id_ - 1) % count
            highest[partition] = max(highest[partition], id_)
        return min(highest.values())

    def _jump_a_day(self) -> Iterator[str]:
        """Write while the clock is 25 hours ahead; keys from before must still be known after."""
        clock, client = self.set_up.clock, self.set_up.live.client
        now = clock.seconds
        clock.set(now + DAY)
        for count in range(WRITES_AHEAD):
            name = f"tomorrow-{self.number}-{count}"
            client.post(PETS, json=_pet(name), headers={"Idempotency-Key": name})
        clock.set(now)
        self.counts["clock jumps of 25 hours"] += 1
        again = []
        for key, id_ in self.oldest.items():
            response = client.post(PETS, json=_pet(key), headers={"Idempotency-Key": key})
            if response.status_code != 503 and response.json().get("id") != id_:
                again.append(id_)
        if again:
            yield (
                f"then the clock went 25 hours ahead and back, with {WRITES_AHEAD} writes between;"
                f" of {len(self.oldest)} keys, those of the pets {again} took effect again"
            )

    def _audit(self) -> None:
        """Read the whole store; all that the histories left must be there, unchanged."""
        for path, expected in self.expected.items():
            stored = {item["id"]: item for item in walk(self.set_up.live.client, path)}
            for id_, item in expected.items():
                pet_id = item.get("petId", id_)
                if stored.get(id_) != item and pet_id not in self.uncertain:
                    text = f"{path}/{id_} was {item}, at the end {stored.get(id_, 'it is lost')}"
                    self.found.append(text)
            self.counts["items read at the end"] += len(stored)

    def _renew(self) -> None:
        try:
            if self.set_up.lossless:
                self._audit()
        except Exception as error:  # noqa: BLE001 - whatever it is, the service did not recover
            self.found.append(f"after history {self.number} nothing can be read: {error!r}")
        self.set_up.renew()
        self._forget()


def choose(choice: random.Random, faults: dict[Fault, float]) -> Fault | None:
    """Return one of the faults by their probabilities, or None for none of them."""
    point = choice.random()
    for fault, chance in faults.items():
        point -= chance
        if point < 0:
            return fault
    return None


def _pet(name: str) -> Item:
    return {"name": name, "categoryId": 7, "status": "available"}
