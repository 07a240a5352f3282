"""The file is deleted, moved, replaced or corrupted under a service that has it open."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import httpx
import pytest

from petstore import exit_status
from tests.support.command import error_message, in_process
from tests.support.services import Live, Start
from tests.support.waiting import until

NEW = {"name": "Rex", "categoryId": 7}
LOST = "was deleted, moved or replaced while it was open"
NOTHING_SERVED = "nothing is served until the service is restarted"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "pets.sqlite"


FULL_DISK = """
import os, sys

import apsw

from petstore import cli

base = apsw.vfs_names()[0]


class File(apsw.VFSFile):
    def __init__(self, name, flags):
        super().__init__(base, name, flags)

    def xWrite(self, data, offset):
        if os.path.exists(os.environ["FULL"]) and offset + len(data) > self.xFileSize():
            raise apsw.FullError
        super().xWrite(data, offset)


class Disk(apsw.VFS):
    def __init__(self):
        super().__init__("disk", base, makedefault=True)

    def xOpen(self, name, flags):
        return File(name, flags)


disk = Disk()
cli.main()
"""
"""Runs the command on a disk that is full while the file exists that the environment names."""


CHECKS_ONCE_AN_HOUR = """
from petstore import cli
from petstore.store import watched

watched.CHECK_SECONDS = 3600
cli.main()
"""
"""Runs the command with no check of the store but those that a refused write causes."""


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    backup = path.with_name("backup")
    shutil.copy(path, backup)
    backup.rename(path)


def link(path: Path) -> Path:
    """Make a link lead to the folder of a file, and return the path of the file through it."""
    folder = path.parent.with_name("current")
    folder.unlink(missing_ok=True)
    folder.symlink_to(path.parent)
    return folder / path.name


def link_to_a_copy(path: Path) -> None:
    copy = path.parent.with_name("copy") / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    link(copy)


def link_to_where_it_was_moved(path: Path) -> None:
    moved = path.parent.with_name("moved") / path.name
    moved.parent.mkdir()
    path.rename(moved)
    link(moved)


@pytest.mark.parametrize("change", [delete, replace, link_to_a_copy, link_to_where_it_was_moved])
def test_nothing_is_acknowledged_into_a_file_that_nobody_will_find(
    path: Path, start: Start, change: Callable[[Path], None]
) -> None:
    """780 pets got 201 after the file had been deleted, and 2,947 after it had been replaced."""
    linked = link(path)
    sqlite = {"backend": "sqlite", "sqlite_path": str(linked)}
    live = start(log="text", script=CHECKS_ONCE_AN_HOUR, **sqlite)
    assert [live.client.post("/v1/pets", json=NEW).status_code for _ in range(3)] == [201] * 3
    change(path)
    before = {file.name: file.stat().st_size for file in linked.parent.iterdir()}
    responses = [live.client.post("/v1/pets", json=NEW) for _ in range(5)]
    assert [response.status_code for response in responses] == [503] * 5
    assert {file.name: file.stat().st_size for file in linked.parent.iterdir()} == before
    until(lambda: live.client.get("/v1/pets").status_code == 503)
    assert live.client.get("/readyz").status_code == 503
    assert live.client.get("/livez").status_code == 200
    lines = [line for line in live.log.read_text().splitlines() if LOST in line]
    assert "error" in lines[0]
    assert "Traceback" not in live.log.read_text()


def test_a_full_disk_is_503_for_writes_only_and_the_log_says_so_once_a_second_at_most(
    path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = path.with_name("full")
    monkeypatch.setenv("FULL", str(full))
    live = start(backend="sqlite", sqlite_path=str(path), log="off", script=FULL_DISK)
    large = NEW | {"name": "Rex" * 2000}  # its pages are not in the file yet, only in the WAL
    assert live.client.post("/v1/pets", json=large).status_code == 201
    before = len(live.log.read_text())
    begin = time.monotonic()
    full.touch()
    for _ in range(20):
        assert live.client.post("/v1/pets", json=NEW).status_code == 503
        assert live.client.get("/v1/pets/1").status_code == 200
    assert live.client.get("/readyz").status_code == 200
    lines = live.log.read_text()[before:].splitlines()
    assert 1 <= len(lines) <= 1 + time.monotonic() - begin
    assert all(f"sqlite at {path}: the disk is full" in line for line in lines)
    with closing(apsw.Connection(str(path))) as other:  # so that the WAL stays
        other.execute("SELECT * FROM pets").fetchall()
        live.stop(signal.SIGKILL)
        live = start(backend="sqlite", sqlite_path=str(path), log="off", script=FULL_DISK)
    assert live.client.get("/v1/pets/1").status_code == 200
    assert live.client.post("/v1/pets", json=NEW).status_code == 503
    full.unlink()
    assert live.client.post("/v1/pets", json=NEW).status_code == 201


def post_pet(live: Live) -> httpx.Response:
    """Add a pet over a connection of its own, which any worker may take."""
    with live.new_client() as client:
        return client.post("/v1/pets", json=NEW)


def all_refuse(live: Live) -> None:
    """Wait until both workers refuse everything, and check that they go on to do so."""
    until(lambda: all(post_pet(live).status_code == 503 for _ in range(20)))
    until(lambda: NOTHING_SERVED in live.log.read_text())  # by the next check of the store
    for _ in range(20):
        with live.new_client() as client:
            for target in ("/v1/pets", "/v1/pets/1", "/readyz"):
                assert client.get(target).status_code == 503
            assert client.post("/v1/pets", json=NEW).status_code == 503


@pytest.mark.slow
@pytest.mark.parametrize("what", [lambda path: path, wal_of], ids=["file", "WAL"])
def test_what_is_away_is_refused_by_all_workers_until_the_restart_and_then_nothing_is_lost(
    path: Path, start: Start, what: Callable[[Path], Path]
) -> None:
    two = start(backend="sqlite", sqlite_path=str(path), log="text", workers="2")
    assert {post_pet(two).status_code for _ in range(4)} == {201}
    away = path.with_name("away")
    what(path).rename(away)
    all_refuse(two)
    away.rename(what(path))
    for victim in two.workers():
        os.kill(victim, signal.SIGKILL)
    all_refuse(two)
    assert two.log.read_text().count(NOTHING_SERVED) == 1
    two.stop()
    live = start(backend="sqlite", sqlite_path=str(path))
    assert [pet["id"] for pet in live.client.get("/v1/pets").json()] == [1, 2, 3, 4]


def test_a_file_without_its_place_is_not_created_again(path: Path) -> None:
    wal_of(path).write_bytes(b"frames")
    message = error_message(
        in_process("check", backend="sqlite", sqlite_path=str(path)), exit_status.UNAVAILABLE
    )
    assert f"the file is missing, but its log {wal_of(path)} is there" in message
    assert not path.exists()
    assert wal_of(path).read_bytes() == b"frames"


def test_a_corrupt_file_is_reported_by_check_and_by_the_service(path: Path, start: Start) -> None:
    settings = {"backend": "sqlite", "sqlite_path": str(path)}
    outcome = in_process("check", **settings)
    assert outcome.status == 0
    assert "PETSTORE_SQLITE_CHECK=false" in outcome.stdout
    connection = apsw.Connection(str(path))
    page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'orders'").get
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    live = start(**settings, log="text")  # it serves what is not corrupt
    assert live.client.get("/v1/pets").status_code == 200
    assert live.client.get("/v1/store/orders/1").status_code == 503
    corrupt = f"sqlite at {path}: it is corrupt"
    assert f"{corrupt}, or the disk could not be read. If" in live.log.read_text()
    live.stop()
    assert corrupt in error_message(in_process("check", **settings), exit_status.UNAVAILABLE)
