"""Power cuts, replayed from a recording: at which call, what is left, and what it must still hold.

Every cut of a recording is chosen from a seed, so with the log it can be repeated.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.faults.torture.disk import Disk, Fate, seeded
from tests.faults.torture.promises import Promises
from tests.faults.torture.recording import MARK, OPEN, RENAME, SYNC, SYNCED, UNLINK, Record

Check = Callable[[Path, Promises, random.Random], Coroutine[Any, Any, list[str]]]
"""Restarts on what is left in a directory, and removes it; returns what was promised and does not
hold there."""

Cut = tuple[int, Fate]
"""How many records come before it, and the fate of what was not synced."""

FATES: Final = (
    Fate(0, last=-1),  # everything that was not synced is gone
    Fate(1),  # nothing is: a cut is then no worse than a kill
    Fate(0.5, 512),
    Fate(0.5, 4096),
    Fate(0.9, 512),
    Fate(0.9, 4096),
    Fate(0.1, 4096),
)

WEIGHTS: Final = {"sync": 8, "mark": 4, "opened": 8, "name": 2, "start": 2, "any": 4}
"""Where cuts are, and how often."""

OPENED: Final = 50
START: Final = 120
"""How many records after a process has opened its first file, and at the start, are looked at."""

SHOWN: Final = 3
"""How many violations of a cut are shown."""


def choose(
    records: list[Record], count: int, chance: random.Random, *, in_order: bool = False
) -> list[Cut]:
    """Return cuts in the order of the records.

    They are around syncs, after marks, while files come and go, when the store was created, when
    another process has just opened it, and anywhere.

    in_order -- see `Fate`
    """
    kinds = _kinds(records)
    cuts = []
    for _ in range(count):
        (kind,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        number = chance.choice(kinds[kind] or kinds["any"]) + chance.randrange(2)
        fate = chance.choice(FATES)
        if chance.random() < 0.15:  # in order, as far as it got
            fate = Fate(1, last=number - chance.randrange(1, 40))
        cuts.append((number, replace(fate, last=min(fate.last, number), in_order=in_order)))
    return sorted(cuts, key=lambda cut: cut[0])


def _kinds(records: list[Record]) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {kind: [] for kind in WEIGHTS}
    threads = set[int]()
    for number, record in enumerate(records):
        kinds["any"].append(number)
        if record.kind in (SYNC, SYNCED):
            kinds["sync"].append(number)
        elif record.kind == MARK:
            kinds["mark"].append(number)
        elif record.kind in (OPEN, RENAME, UNLINK):
            kinds["name"].append(number)
            if record.kind == OPEN and record.thread not in threads:
                threads.add(record.thread)
                kinds["opened"] += range(number, min(number + OPENED, len(records)))
    kinds["start"] = kinds["any"][:START]
    return kinds


def replay(
    records: list[Record], cuts: list[Cut], seed: int, check: Check, remains: Path
) -> Iterator[tuple[Cut, list[str]]]:
    """Cut the power of a recording; yield each cut with its violations.

    cuts -- in the order of the records
    seed -- with the recording and the cut, it decides what is left
    remains -- an empty directory
    """
    last = {record.thread: number for number, record in enumerate(records)}
    disk, promises = Disk(set(last.values())), Promises()
    with asyncio.Runner() as runner:
        for cut in cuts:
            number, fate = cut
            while disk.applied < number:
                record = records[disk.applied]
                disk.apply(record)
                if record.kind == MARK:
                    promises.add(record.data)
            chance = seeded(f"{seed} {cut}")
            directory = remains / "cut"
            directory.mkdir()
            for path, content in disk.remains(fate, chance).items():
                place = directory / path.removeprefix("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            yield cut, runner.run(check(directory, promises, chance))


def in_one_line(found: list[str]) -> str:
    """Return the first violations in one line, without line breaks."""
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return "; ".join([*found[:SHOWN], *more]).replace("\n", " ")


def acknowledged(records: list[Record]) -> Counter[str]:
    """Return how much there is to lose in a recording."""
    promises = Promises()
    for record in records:
        if record.kind == MARK:
            promises.add(record.data)
    syncs = sum(record.kind == SYNCED for record in records)
    return Counter(acknowledged=promises.writes, syncs=syncs)
