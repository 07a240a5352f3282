"""Whatever a process returns is on disk, even what it found in the WAL and did not write itself.

Processes that are killed leave everything in the page cache. So the processes here run on an SQLite
VFS that copies each file when it is synced: the copies are the disk as a power cut leaves it.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROCESS = '''
"""Executes the calls that it reads from standard input, on a disk that can lose its power."""

import asyncio, json, os, signal, sys
from pathlib import Path

import apsw
from petstore.contract import Expected, NewPet, PetQuery, UnavailableError
from petstore_sqlite import SqliteSettings, open_sqlite

path, disk = map(Path, sys.argv[1:3])
full = "full" in sys.argv
at_sync = ""
base = apsw.vfs_names()[0]


class SyncedFile(apsw.VFSFile):
    def __init__(self, name, flags):
        super().__init__(base, name, flags)
        self.name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name

    def xWrite(self, data, offset):
        if full and offset + len(data) > self.xFileSize():
            raise apsw.FullError
        super().xWrite(data, offset)

    def xSync(self, flags):
        if self.name.endswith("-wal"):
            if at_sync == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if at_sync == "pause":
                print(json.dumps("paused"), flush=True)
                sys.stdin.readline()
        super().xSync(flags)
        (disk / self.name).write_bytes(self.xRead(self.xFileSize(), 0))


class SyncedDisk(apsw.VFS):
    def __init__(self):
        super().__init__("synced", base, makedefault=True)

    def xOpen(self, name, flags):
        return SyncedFile(name, flags)

    def xDelete(self, name, sync):
        super().xDelete(name, sync)
        (disk / Path(name).name).unlink(missing_ok=True)


async def main():
    global at_sync
    async with open_sqlite(SqliteSettings(path=str(path)), Expected()) as repository:
        print(json.dumps("open"), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            call, at_sync = json.loads(line)
            if call == "create":
                try:
                    print((await repository.create_pet(NewPet("Rex" * 2000, 7))).id, flush=True)
                except UnavailableError as error:
                    print(json.dumps(str(error)), flush=True)
            else:
                pets = await repository.list_pets(PetQuery(0, 100))
                print(json.dumps([pet.id for pet in pets]), flush=True)


kept = SyncedDisk()
asyncio.run(main())
'''


class Process:
    """A process that has the file open; the reply of one that has died is None."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self.popen = popen

    def reply(self) -> object:
        assert self.popen.stdout
        line = self.popen.stdout.readline()
        return json.loads(line) if line else None

    def send(self, call: str, at_sync: str = "") -> None:
        print(json.dumps([call, at_sync]), file=self.popen.stdin, flush=True)

    def call(self, call: str, at_sync: str = "") -> object:
        self.send(call, at_sync)
        return self.reply()


class Machine:
    """A file, and a disk that holds what was synced of it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.path = folder / "memory" / "pets.sqlite"
        self.disk = folder / "disk"
        self.path.parent.mkdir()
        self.disk.mkdir()
        self._stack = stack

    def open(self, path: Path | None = None, *flags: str) -> Process:
        path = path or self.path
        command = [sys.executable, "-c", PROCESS, str(path), str(self.disk), *flags]
        popen = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._stack.enter_context(popen)
        self._stack.callback(popen.kill)
        process = Process(popen)
        assert process.reply() == "open"
        return process

    def after_a_power_cut(self) -> object:
        """Return the ids that are found on the disk as it is now."""
        remains = self.disk.parent / "remains"
        self.disk.rename(remains)
        self.disk.mkdir()
        return self.open(remains / self.path.name).call("list")


@contextmanager
def _machine(folder: Path) -> Iterator[Machine]:
    with ExitStack() as stack:
        yield Machine(folder, stack)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with _machine(tmp_path) as machine:
        yield machine


def test_what_a_killed_process_did_not_sync_is_synced_before_it_is_returned(
    machine: Machine,
) -> None:
    """Without a sync at the end of opening, the second pet was returned, then lost."""
    first = machine.open()
    assert first.call("create") == 1
    assert first.call("create", "die") is None
    assert first.popen.wait() == -signal.SIGKILL
    second = machine.open()
    returned = second.call("list")
    assert returned == [1, 2], "the frames of the killed process were not recovered"
    assert machine.after_a_power_cut() == returned


def test_what_was_not_synced_and_not_returned_may_be_lost(machine: Machine) -> None:
    """The control: this machine does lose what was not synced."""
    first = machine.open()
    assert first.call("create") == 1
    assert first.call("create", "die") is None
    assert machine.after_a_power_cut() == [1]


def test_a_commit_of_another_process_is_seen_only_after_its_sync(machine: Machine) -> None:
    writer, reader = machine.open(), machine.open()
    assert writer.call("create") == 1
    assert writer.call("create", "pause") == "paused"  # the frames are written, not yet synced
    assert machine.path.with_name("pets.sqlite-wal").stat().st_size > 0
    assert reader.call("list") == [1]
    writer.send("go on")
    assert writer.reply() == 2
    returned = reader.call("list")
    assert returned == [1, 2]
    assert machine.after_a_power_cut() == returned


def test_what_a_process_did_not_sync_is_not_seen_by_one_that_outlives_it(machine: Machine) -> None:
    writer, reader = machine.open(), machine.open()
    assert writer.call("create") == 1
    assert writer.call("create", "die") is None
    writer.popen.wait()
    for process in (reader, machine.open()):
        assert process.call("list") == [1]
    assert reader.call("create") == 2  # the id was never returned to anyone
    assert machine.after_a_power_cut() == [1, 2]


def test_a_full_disk_prevents_writes_but_neither_the_start_nor_reads(machine: Machine) -> None:
    first = machine.open()
    assert first.call("create") == 1
    assert first.call("create", "die") is None
    first.popen.wait()
    second = machine.open(machine.path, "full")
    returned = second.call("list")
    assert returned == [1, 2]
    assert "the disk is full" in str(second.call("create"))
    assert second.call("list") == returned
    assert machine.after_a_power_cut() == returned
