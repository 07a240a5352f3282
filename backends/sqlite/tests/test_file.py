"""The file: which files are refused, and how it is upgraded."""

import asyncio
import os
import shutil
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest
from petstore_conformance import RaisedOnPurposeError
from petstore_sqlite import SqliteSettings, backend, schema

from backends.sqlite.tests.files import (
    READING,
    content,
    create,
    execute,
    opened,
    refusal,
    unprivileged,
)
from petstore.contract import UnavailableError
from tests.support.mounts import small_disk
from tests.support.repositories import REX, pets

VERSION = len(schema.MIGRATIONS)
NOT_SQLITE = "it is corrupt, or not an SQLite database; restore a backup, or correct the path"
TO_SERVE = "serve it with PETSTORE_READ_ONLY=true, which needs only to read"


class TestRefused:
    """A file that is not of this backend is refused in one line and left unchanged."""

    def test_a_file_of_a_newer_version(self, file: Path) -> None:
        create(file)
        execute(file, f"PRAGMA user_version = {VERSION + 1}")
        before = content(file.parent)
        assert refusal(file) == (
            f"SettingsError: {file} has schema version {VERSION + 1}, written by a newer"
            f" petstore-sqlite; this one supports up to {VERSION}. Upgrade petstore-sqlite"
        )
        assert content(file.parent) == before

    @pytest.mark.parametrize(
        "statement", ["CREATE TABLE pets (id INTEGER)", "PRAGMA application_id = 7"]
    )
    def test_a_database_of_another_application(self, file: Path, statement: str) -> None:
        execute(file, statement)
        before = content(file.parent)
        assert refusal(file) == (
            f"SettingsError: {file} is an SQLite database of another application; choose another"
            " path"
        )
        assert content(file.parent) == before

    @pytest.mark.parametrize("text", [b"ab", b"SQLite format 3\0" + b"\xff" * 8000])
    def test_a_file_that_is_not_a_database(self, file: Path, text: bytes) -> None:
        file.write_bytes(text)
        assert refusal(file) == f"UnavailableError: sqlite at {file}: {NOT_SQLITE}"
        assert content(file.parent) == {file.name: text}

    @pytest.mark.parametrize(
        "path", ["", ":memory:", "file:pets", "sqlite:///pets.sqlite", "a\0b", "/dev/null"]
    )
    def test_a_path_that_is_not_of_a_file(self, path: str) -> None:
        assert refusal(path).startswith("SettingsError: PETSTORE_SQLITE_PATH must be the path of a")

    def test_a_home_that_no_shell_has_expanded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert refusal("~rex/pets.sqlite") == (
            "SettingsError: PETSTORE_SQLITE_PATH is '~rex/pets.sqlite', and '~' is not expanded:"
            " write the path in full (or begin it with ./ if '~' is part of a name)"
        )
        assert content(tmp_path) == {}
        assert create("./~") == [1]

    def test_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        for path in (tmp_path, tmp_path / "link"):
            assert refusal(path) == (
                f"UnavailableError: sqlite at {path}: it cannot be opened: it is a folder; set"
                f" PETSTORE_SQLITE_PATH to a file in it: {tmp_path}/pets.sqlite"
            )

    def test_a_path_in_a_folder_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        (tmp_path / "loop").symlink_to("loop")
        for path, reason in {
            "b/c": f"its folder {tmp_path}/b does not exist; create it",
            "a/b": f"{tmp_path}/a is a file, not a folder",
            "a/b/c": f"{tmp_path}/a/b: not a directory",
            "loop": f"{tmp_path}/loop: too many levels of symbolic links",
            "n" * 300: f"{tmp_path}/{'n' * 300}: file name too long",
        }.items():
            file = tmp_path / path
            assert refusal(file) == (
                f"UnavailableError: sqlite at {file}: it cannot be opened: {reason}"
            )

    @pytest.mark.parametrize(
        ("of_file", "of_folder"), [(0o444, 0o755), (0o644, 0o555), (0o666, 0o555), (0, 0o755)]
    )
    def test_a_file_without_write_permission_is_refused_and_can_be_served_read_only(
        self, of_file: int, of_folder: int
    ) -> None:
        async def read() -> None:
            async with opened(file, READING) as repository:
                assert len(await pets(repository)) == 3
                with pytest.raises(UnavailableError, match="check its owner and permissions"):
                    await repository.create_pet(REX)

        with tempfile.TemporaryDirectory() as folder:  # accessible to all users, unlike tmp_path
            file = Path(folder) / "pets.sqlite"
            create(file, 3)
            file.chmod(of_file)
            Path(folder).chmod(of_folder)
            before = file.read_bytes() if os.geteuid() == 0 else b""
            with unprivileged():
                message = refusal(file)
                if of_file:
                    asyncio.run(read())
            Path(folder).chmod(0o755)
            file.chmod(0o644)
            assert list(content(Path(folder))) == ["pets.sqlite"]
            assert message.endswith(TO_SERVE)
            assert message.startswith(f"UnavailableError: sqlite at {file}: it cannot be ")
            refused = f"may not read and write {file}; check its owner and permissions"
            if of_file == 0o666:
                refused = f"may not create files in its folder {folder}, as SQLite must; check its"
            assert "this user (uid " in message
            assert refused in message or (of_folder == 0o555 and os.geteuid() != 0)
            assert before in {b"", file.read_bytes()}
            assert create(file) == [4]

    @pytest.mark.parametrize("suffix", ["-wal", "-shm"])
    def test_a_log_of_another_user(self, suffix: str) -> None:
        """As it is left when root has opened the file, and was killed."""
        with tempfile.TemporaryDirectory() as opened_, tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pets.sqlite"
            with closing(apsw.Connection(str(Path(opened_) / file.name))) as other:
                create(other.filename)
                assert other.execute("SELECT count(*) FROM pets").get == 1  # opens the log
                for source in Path(opened_).iterdir():
                    shutil.copy(source, folder)
            Path(folder).chmod(0o777)
            for copy in Path(folder).iterdir():
                copy.chmod(0 if copy.name.endswith(suffix) else 0o666)
            with unprivileged():
                message = refusal(file)
        assert f"may not read and write {file}{suffix}; check its owner and permissions" in message

    def test_a_folder_that_may_not_be_entered(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            inner = Path(folder) / "closed" / "inner"
            inner.mkdir(parents=True)
            Path(folder).chmod(0o755)
            inner.parent.chmod(0)
            with unprivileged():
                message = refusal(inner / "pets.sqlite")
            inner.parent.chmod(0o755)
        assert message.endswith("permission denied")

    def test_a_disk_without_room_for_the_shared_memory(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk") as folder:
            create(file := folder / "pets.sqlite")
            other = folder / "other"
            with suppress(OSError), other.open("wb", buffering=0) as filling:
                while True:
                    filling.write(bytes(4096))
            assert refusal(file).startswith(f"UnavailableError: sqlite at {file}: the disk is full")
            other.unlink()
            assert create(file) == [2]


class TestSchema:
    """An older file is upgraded completely or not at all."""

    ADD = "ALTER TABLE pets ADD COLUMN note TEXT; CREATE TABLE cats (id INTEGER);"

    def test_a_failed_upgrade_changes_nothing(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create(file, 3)
        before = content(file.parent)
        failing = [*schema.MIGRATIONS, self.ADD, "UPDATE cats SET name = 1"]
        monkeypatch.setattr(schema, "MIGRATIONS", failing)
        assert "no such column: name" in refusal(file)
        assert content(file.parent) == before
        monkeypatch.undo()
        assert create(file) == [4]

    def test_a_scratch_place_leaves_no_file(self, file: Path) -> None:
        def leave(path: str) -> None:
            """Leave what a process leaves that is killed."""
            for suffix in ("-wal", "-shm"):
                Path(path + suffix).touch()

        async def run() -> None:
            async with backend.scratch(SqliteSettings(path=str(file))) as place:
                async with opened(place.path) as repository, opened(place.path):
                    await repository.create_pet(REX)
                    assert len(content(file.parent)) == 3  # with the WAL and its index
                leave(place.path)
                raise RaisedOnPurposeError

        with pytest.raises(RaisedOnPurposeError):
            asyncio.run(run())
        assert content(file.parent) == {}
