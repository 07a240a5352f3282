"""What was acknowledged, or returned by a read, survives a power cut at any moment.

Processes are recorded, and cuts are made from the recording. The default is a short pass;
PETSTORE_CUTS sets how many cuts there are of each set-up, and then there are all set-ups.
"""

import asyncio
import os
import re
import sys
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from petstore_memory import MemoryRepository

from tests.faults.torture import power_cuts, recording, redis_cuts, sqlite_cuts
from tests.faults.torture.disk import Disk, Fate, seeded
from tests.faults.torture.promises import Promises
from tests.faults.torture.recording import APPENDED, DIRECTORY, Log, Record
from tests.faults.torture.workload import Clients
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CUTS = int(os.environ.get("PETSTORE_CUTS", "0"))
QUICK = (
    "sqlite, 1 process",
    "sqlite, a service of 2 workers, killed",
    "sqlite, synchronous=NORMAL",
    "sqlite, a disk that lies",
)
SEED = 23
# With 250 cuts it shows, for both servers, a backend that does not sync what a killed server has
# left in its append-only file (`RedisStore._recognize`); with 14, no cut meets that.
FOLDER, FILE, OTHER = 1, 2, 3
ALL, NOTHING = Fate(1), Fate(0, last=-1)
TORN = [Fate(keep, 512) for keep in (0, 0.1, 0.5, 0.9)]


def disk(*calls: tuple[str, int, int, bytes]) -> Disk:
    """Return the disk after calls: kind, inode, offset and data. The folder is open."""
    made = Disk()
    for kind, inode, offset, data in (("o", FOLDER, DIRECTORY, b""), *calls):
        made.apply(Record(kind, inode, offset, 1, data))
    return made


def outcomes(made: Disk, *fates: Fate) -> set[tuple[tuple[str, bytes], ...]]:
    """Return all that may be left, of as many cuts as show it."""
    return {
        tuple(sorted(made.remains(fate, seeded(seed)).items()))
        for fate in fates
        for seed in range(200)
    }


def contents(made: Disk, *fates: Fate) -> set[bytes]:
    return {content for left in outcomes(made, *fates) for _, content in left}


def synced(inode: int) -> list[tuple[str, int, int, bytes]]:
    return [("s", inode, 0, b""), ("S", inode, 0, b"")]


def file(content: bytes = b"") -> list[tuple[str, int, int, bytes]]:
    """Return the calls that make a file of this content, and sync it and its name."""
    return [("o", FILE, 0, b"/file"), ("w", FILE, 0, content), *synced(FILE), *synced(FOLDER)]


A, B, C = (letter * 512 for letter in (b"a", b"b", b"c"))


def test_sectors_of_an_unsynced_write_survive_independently() -> None:
    written = disk(*file(A + A), ("w", FILE, 0, B + B))
    assert contents(written, NOTHING) == {A + A}
    assert contents(written, ALL) == {B + B}
    assert contents(written, Fate(0.5)) == {A + A, A + B, B + A, B + B}
    assert contents(written, Fate(0.5, 4096)) == {A + A, B + B}


def test_a_later_write_may_survive_without_an_earlier_one() -> None:
    written = disk(*file(A + A), ("w", FILE, 0, B), ("w", FILE, 512, C))
    assert contents(written, Fate(0.5)) == {A + A, A + C, B + A, B + C}


def test_a_sector_is_in_a_state_that_it_once_had() -> None:
    written = disk(*file(A), ("w", FILE, 0, b"b"), ("w", FILE, 1, b"c"))
    states = {A, b"b" + A[1:], b"bc" + A[2:]}
    assert contents(written, *TORN) == states


def test_a_gap_before_a_surviving_sector_is_zero() -> None:
    grown = disk(*file(A), ("w", FILE, 512, B), ("w", FILE, 1024, C))
    assert contents(grown, Fate(0.5)) == {A, A + B, A + bytes(512) + C, A + B + C}


def test_a_write_before_which_its_process_was_killed_was_never_made() -> None:
    made = Disk(last={3})
    for record in (
        Record("o", FOLDER, DIRECTORY, 1, b""),
        Record("o", FILE, 0, 1, b"/a"),
        Record("w", FILE, 0, 1, b"made"),
        Record("w", FILE, 4, 1, b"recorded"),
        Record("o", FILE, 4 * 4, 2, b"/a"),  # it has four bytes
        Record("w", FILE, APPENDED, 2, b"again"),
    ):
        made.apply(record)
    assert made.names["/a"].remains(Fate(1), seeded(0)) == b"madeagain"


def test_a_sync_covers_what_came_before_its_begin() -> None:
    written = disk(
        *file(A), ("w", FILE, 0, B), ("s", FILE, 0, b""), ("w", FILE, 512, C), ("S", FILE, 0, b"")
    )
    assert contents(written, NOTHING) == {B}
    begun = disk(*file(A), ("w", FILE, 0, B), ("s", FILE, 0, b""))
    assert contents(begun, NOTHING) == {A}


def test_a_truncation_survives_with_what_came_before_it() -> None:
    cut = disk(*file(A + B), ("t", FILE, 512, b""), ("w", FILE, 512, C))
    assert contents(cut, Fate(0.5)) == {A + B, A, A + C}


def test_nothing_after_the_last_record_survives() -> None:
    written = disk(*file(A), ("w", FILE, 0, B), ("w", FILE, 0, C))
    assert contents(written, replace(ALL, last=written.applied - 2)) == {B}


def test_a_new_name_needs_a_sync_of_its_directory() -> None:
    made = disk(("o", FILE, 0, b"/file"), ("w", FILE, 0, A), *synced(FILE))
    assert outcomes(made, NOTHING) == {()}
    assert outcomes(made, Fate(0.5)) == {(), (("/file", A),)}
    assert outcomes(disk(*file(A), ("u", 0, 0, b"/file")), Fate(0.5)) == {(), (("/file", A),)}
    assert outcomes(disk(*file(A), ("u", 0, 0, b"/file"), *synced(FOLDER)), Fate(0.5)) == {()}


def test_a_rename_leaves_the_old_file_or_the_new_one() -> None:
    other = [("o", OTHER, 0, b"/other"), ("w", OTHER, 0, B), *synced(OTHER), *synced(FOLDER)]
    renamed = [*file(A), *other, ("r", 0, 0, b"/other\0/file")]
    before, after = (("/file", A), ("/other", B)), (("/file", B),)
    assert outcomes(disk(*renamed), NOTHING) == {before}
    assert outcomes(disk(*renamed), Fate(0.5)) == {before, after}
    assert outcomes(disk(*renamed, *synced(FOLDER)), NOTHING) == {after}


def test_a_file_that_was_moved_elsewhere_is_not_left_behind() -> None:
    made = disk(
        ("o", OTHER, DIRECTORY, b"/below"),
        ("o", FILE, 0, b"/file"),
        ("r", 0, 0, b"/file\0/renamed"),
        ("r", 0, 0, b"/renamed\0/below/file"),
        *synced(OTHER),
    )
    moved = (("/below/file", b""),)
    assert outcomes(made, ALL, NOTHING) == {moved}
    assert outcomes(made, Fate(0.5)) == {moved, (*moved, ("/file", b""))}


def test_names_survive_in_order_where_the_file_system_has_it_so() -> None:
    made = disk(("o", FILE, 0, b"/file"), ("o", OTHER, 0, b"/other"))
    names = {tuple(path for path, _ in left) for left in outcomes(made, Fate(0.5, in_order=True))}
    assert names == {(), ("/file",), ("/file", "/other")}
    names = {tuple(path for path, _ in left) for left in outcomes(made, Fate(0.5))}
    assert names == {(), ("/file",), ("/other",), ("/file", "/other")}


def final(records: list[Record]) -> dict[str, bytes]:
    """Return what the recorded files contain at the end."""
    made = Disk()
    for record in records:
        made.apply(record)
    return made.remains(ALL, seeded(SEED))


def stored(folder: Path) -> dict[str, bytes]:
    """Return what files contain, except those that are not recorded."""
    return {
        f"/{path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", ".log", ".conf"))
    }


def without_unfinished(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out what a child was writing when it was killed.

    It writes through a stream, which is recorded when it is flushed; then the file is renamed.
    """
    unfinished = re.compile(r"/temp-rewriteaof-\d+\.aof")
    return {path: data for path, data in files.items() if not unfinished.fullmatch(path)}


def test_the_records_amount_to_the_files_of_sqlite() -> None:
    with recording.scratch() as place:
        folder = Path(place) / "folder"
        folder.mkdir()
        with closing(Log(Path(place) / "log", folder)) as log:
            plan = sqlite_cuts.Plan(workers=2, generations=2, writes=200)
            sqlite_cuts.record(plan, log, seeded(SEED))
            records = recording.read(log.path)
        assert final(records) == stored(folder)
        assert "/pets.sqlite" in stored(folder)


def test_the_records_amount_to_the_files_of_redis() -> None:
    plan = redis_cuts.Plan(power_cuts.BINARIES["valkey"], generations=2, writes=150)
    with recording.scratch() as place, redis_cuts.recorded(plan, Path(place)) as (server, log):
        redis_cuts.record(plan, server, log, seeded(SEED))
        server.kill()  # a child of it may still have to end

        def agrees() -> bool:
            records = recording.read(log.path)
            found = without_unfinished(stored(log.folder))
            # A thread that is killed may have recorded a call and not made it.
            last = {record.thread: number for number, record in enumerate(records)}.values()
            return any(
                found
                == without_unfinished(final([r for n, r in enumerate(records) if n not in missing]))
                for count in range(len(last) + 1)
                for missing in combinations(last, count)
            )

        until(agrees)


def test_a_promise_is_missed_in_a_store_that_has_lost_it() -> None:
    promises = Promises()

    async def check() -> tuple[list[str], list[str]]:
        repository = MemoryRepository()
        clients = Clients(repository, promises.add, "0.0", seeded(SEED))
        await clients.run(4, 200)
        await clients.restore()
        chance = seeded(SEED)
        found = await promises.violations(repository, chance)
        return found, await promises.violations(MemoryRepository(), chance)

    kept, lost = asyncio.run(check())
    assert kept == []
    for expected in ("Pet(id=1, ", "Order(id=", "token ", "is given twice"):
        assert any(expected in line for line in lost), expected


@pytest.mark.parametrize(
    "setup",
    [
        pytest.param(setup, id=setup.what)
        for setup in power_cuts.setups()
        if CUTS or setup.what in QUICK
    ],
)
def test_nothing_acknowledged_is_lost_in_a_power_cut(setup: power_cuts.Setup) -> None:
    cuts = CUTS or 100
    outcome = power_cuts.cut(msgspec.structs.replace(setup, cuts=cuts), SEED)
    sys.stdout.write(f"{outcome.what}: {dict(outcome.counts)}\n")
    assert outcome.found == {}
    assert outcome.counts["cuts"] == cuts
    assert outcome.counts["acknowledged"] > 100
