"""Recordings of the SQLite backend: of its repository in processes of its own, and of a service."""

import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
from petstore_sqlite import SqliteSettings, open_sqlite

from petstore.contract import Expected
from tests.faults.torture.promises import Promises
from tests.faults.torture.recording import Log
from tests.faults.torture.workload import Job

ROOT = Path(__file__).parents[3]
FILE = "pets.sqlite"


class Plan(msgspec.Struct, frozen=True):
    """What is recorded: several generations of processes, one after the other.

    workers -- how many processes use the file at a time
    killed -- whether most of them are killed, just before they sync
    upgrade -- whether the first one creates a file of the first schema version
    """

    workers: int = 1
    killed: bool = True
    upgrade: bool = False
    synchronous: str = "FULL"
    generations: int = 4
    writes: int = 300


def record(plan: Plan, log: Log, chance: random.Random) -> int:
    """Run processes on one file, and record what they do; return how many were killed."""
    killed = 0
    before: list[str] = []
    for generation in range(plan.generations):
        old = plan.upgrade and generation == 0
        restore = generation == 1
        workers = 1 if old or restore else plan.workers
        jobs = [
            Job(
                path=str(log.folder / FILE),
                log=str(log.path),
                name=f"{generation}.{worker}",
                seed=chance.randrange(2**32),
                after=chance.choice(before) if before else "",
                old=old,
                restore=restore,
                writes=20 if old else plan.writes // workers,
                synchronous=plan.synchronous,
            )
            for worker in range(workers)
        ]
        kill = plan.killed and not old and generation < plan.generations - 1
        killed += _run(jobs, log, chance, kill=kill)
        before = [job.name for job in jobs]
    return killed


def _run(jobs: list[Job], log: Log, chance: random.Random, *, kill: bool) -> int:
    """Run processes at the same time; return how many were killed."""
    together = chance.random() < 0.7  # one kills all, so that no other process uses the file
    processes: list[subprocess.Popen[bytes]] = []
    for job in jobs:
        die = chance.randrange(4, 50) if kill else 0
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.faults.torture.workload", msgspec.json.encode(job)],
                env=os.environ | log.environment(die=die),
                cwd=ROOT,
                process_group=processes[0].pid if processes and together else 0,
            )
        )
    statuses = [process.wait() for process in processes]
    wrong = [status for status in statuses if status not in (0, -signal.SIGKILL)]
    assert not wrong, f"a process of the workload ended with {wrong}"
    return statuses.count(-signal.SIGKILL)


async def check(directory: Path, promises: Promises, chance: random.Random) -> list[str]:
    """Open the store that is left, and compare it with what was promised."""
    path = directory / FILE
    try:
        async with open_sqlite(SqliteSettings(str(path)), Expected()) as repository:
            found = await promises.violations(repository, chance)
        with closing(apsw.Connection(str(path))) as connection:
            if (state := connection.pragma("integrity_check")) != "ok":
                found.append(f"it is damaged: {state}")
    except Exception as error:  # noqa: BLE001 - whatever a damaged file may cause
        found = [f"it cannot be used: {error!r}"]
    shutil.rmtree(directory)
    return found
