"""Power cuts: what a store has acknowledged is there after any of them.

Run as a program, it repeats a cut whose violation was reported:
``python -m tests.faults.torture.power_cuts KIND LOG RECORD FATE SEED``.
"""

import random
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from petstore_conformance.faults.verdicts import RoundOutcome

from backends.redis.tests.servers import REDIS, VALKEY, Port
from tests.faults.torture import recording, redis_cuts, service_cuts, sqlite_cuts
from tests.faults.torture.disk import Fate, seeded
from tests.faults.torture.recording import SYNCED, Log, Record
from tests.faults.torture.replay import Cut, acknowledged, choose, in_one_line, replay
from tests.faults.torture.runs import Outcomes, Run, SetUp
from tests.support.environments import BUILD

KEPT: Final = BUILD / "torture"
"""Where the logs of recordings with violations are kept."""

BINARIES: Final = {"valkey": VALKEY} | ({"redis": REDIS} if REDIS else {})

Recorder = Callable[[Path, random.Random], tuple[Path, int]]
"""Records in a directory; returns the path of the log, and how many processes were killed."""


class Setup(msgspec.Struct, frozen=True):
    """What is recorded, and how it is cut.

    kind -- what is restarted on the remains: sqlite, valkey or redis
    control -- it is wrong on purpose, and some cut must show it
    lying -- the disk ignores syncs
    """

    what: str
    kind: str
    record: Recorder
    cuts: int
    control: bool = False
    lying: bool = False


def _sqlite(plan: sqlite_cuts.Plan, directory: Path, chance: random.Random) -> tuple[Path, int]:
    with _sqlite_log(directory) as log:
        return log.path, sqlite_cuts.record(plan, log, chance)


def _service(directory: Path, chance: random.Random) -> tuple[Path, int]:
    with _sqlite_log(directory) as log:
        return log.path, service_cuts.record(log, directory, kills=3, chance=chance)


def _redis(plan: redis_cuts.Plan, directory: Path, chance: random.Random) -> tuple[Path, int]:
    with redis_cuts.recorded(plan, directory) as (server, log):
        return log.path, redis_cuts.record(plan, server, log, chance)


@contextmanager
def _sqlite_log(directory: Path) -> Iterator[Log]:
    folder = directory / "folder"
    folder.mkdir()
    with closing(Log(directory / "log", folder)) as log:
        yield log


def setups() -> list[Setup]:
    """Return all set-ups."""
    plan = sqlite_cuts.Plan
    many, few = plan(generations=6, writes=200), plan(generations=2, writes=150)
    recorders: dict[str, Recorder] = {
        "1 process": partial(_sqlite, plan(killed=False, writes=600)),
        "2 processes": partial(_sqlite, plan(workers=2, killed=False, writes=600)),
        "1 process, killed": partial(_sqlite, many),
        "2 processes, killed": partial(_sqlite, replace(many, workers=2)),
        "an old schema, killed": partial(_sqlite, replace(many, workers=2, upgrade=True)),
        "a service of 2 workers, killed": _service,
    }
    modes = {mode: replace(few, synchronous=mode) for mode in ("NORMAL", "OFF")}
    found = [Setup(f"sqlite, {what}", "sqlite", how, 250) for what, how in recorders.items()]
    found += [
        Setup(f"sqlite, synchronous={mode}", "sqlite", partial(_sqlite, how), 60, control=True)
        for mode, how in modes.items()
    ]
    lied = partial(_sqlite, few)
    found.append(Setup("sqlite, a disk that lies", "sqlite", lied, 60, control=True, lying=True))
    for name, binary in BINARIES.items():
        always = redis_cuts.Plan(binary)
        kept = partial(_redis, replace(always, kept=True, generations=6, writes=150))
        second = partial(_redis, replace(always, appendfsync="everysec", generations=1))
        synced = f"{name}, appendfsync always"
        found += [
            Setup(synced, name, partial(_redis, always), 120),
            Setup(f"{synced}, under a service that stays", name, kept, 120),
            Setup(f"{name}, appendfsync everysec", name, second, 30, control=True),
        ]
    return found


def rounds(setup: Setup, _: Path, run: Run) -> Outcomes:
    """Record and cut, again and again. If that fails, it is a violation: the store broke."""
    for number in count(1):
        try:
            outcome = cut(setup, zlib.crc32(f"{run.seed} {number} {setup.what}".encode()))
        except Exception as error:  # noqa: BLE001 - whatever it is
            outcome = RoundOutcome(setup.what)
            outcome.found.add("otherwise wrong", f"{error!r}")
        yield outcome


def cut(setup: Setup, seed: int) -> RoundOutcome:
    """Record a set-up once, and cut its power often."""
    chance = seeded(seed)
    with recording.scratch() as place:
        directory = Path(place)
        path, killed = setup.record(directory, chance)
        records = recording.read(path)
        if setup.lying:
            records = [record for record in records if record.kind != SYNCED]
        cuts = choose(records, setup.cuts, chance, in_order=setup.kind != "sqlite")
        outcome = RoundOutcome(setup.what, acknowledged(records) + Counter(kills=killed))
        violations = []
        for made, found in _cut(setup.kind, records, cuts, seed, directory):
            outcome.counts["cuts"] += 1
            if found:
                number, fate = made
                kept = KEPT / f"{seed}.log"
                how = msgspec.json.encode(fate).decode()
                repeat = f"{setup.kind} {kept} {number} '{how}' {seed}"
                violations.append(f"power_cuts {repeat}: {in_one_line(found)}")
        if setup.control:
            outcome.counts["cuts that showed it"] = len(violations)
            violations = [] if violations else ["the control was not caught"]
        elif violations:
            KEPT.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, KEPT / f"{seed}.log")
    outcome.found.add("lost", *violations)
    return outcome


def _cut(
    kind: str, records: list[Record], cuts: list[Cut], seed: int, directory: Path
) -> Iterator[tuple[Cut, list[str]]]:
    remains = directory / "remains"
    remains.mkdir()
    if kind == "sqlite":
        yield from replay(records, cuts, seed, sqlite_cuts.check, remains)
        return
    with closing(Port()) as port:
        restarts = redis_cuts.Restarts(BINARIES[kind], port.number)
        yield from replay(records, cuts, seed, restarts.check, remains)


SET_UPS: Final[dict[str, tuple[SetUp, float]]] = {
    f"power cuts, {setup.what}": (partial(rounds, setup), 1) for setup in setups()
}
"""The set-ups, and their shares of the time."""


def main() -> None:
    """Repeat a cut."""
    kind, log, number, fate, seed = sys.argv[1:]
    made = (int(number), msgspec.json.decode(fate, type=Fate))
    with recording.scratch() as directory:
        for _, found in _cut(kind, recording.read(Path(log)), [made], int(seed), Path(directory)):
            sys.stdout.write("".join(f"{line}\n" for line in found) or "nothing is wrong\n")


if __name__ == "__main__":
    main()
