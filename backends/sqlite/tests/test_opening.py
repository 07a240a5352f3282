"""Several processes that open one file at the same time wait for each other, and all succeed."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

OPENER = """
import asyncio, sys
from petstore.contract import Expected, NewPet
from petstore_sqlite import SqliteSettings, open_sqlite

async def create(path):
    async with open_sqlite(SqliteSettings(path=path, busy_seconds=60), Expected()) as repository:
        return (await repository.create_pet(NewPet("Rex", 7))).id

for line in sys.stdin:
    print(asyncio.run(create(line.strip())), flush=True)
"""


def test_processes_that_open_a_new_file_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    """Without waiting in the right places, one process failed for about one file in thirty."""
    command = [sys.executable, "-c", OPENER]
    with ExitStack() as stack:
        openers = [
            stack.enter_context(
                subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(4)
        ]
        for number in range(20):
            for opener in openers:
                print(tmp_path / str(number), file=opener.stdin, flush=True)
            ids = [opener.stdout.readline() for opener in openers if opener.stdout]
            assert sorted(ids) == ["1\n", "2\n", "3\n", "4\n"]
