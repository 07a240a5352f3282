"""The SQLite backend keeps the storage contract."""

from itertools import count
from pathlib import Path

import pytest
from petstore_conformance import Conformance
from petstore_sqlite import SqliteSettings, backend, reader


class TestSqlite(Conformance):
    backend = backend
    machine_examples = 10

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        type(self).settings = SqliteSettings(path=str(tmp_path / "pets.sqlite"))


@pytest.mark.slow
class TestSqliteOnAColdDisk(TestSqlite):
    """Each read in this process waits for the disk, so that all are in threads."""

    machine_examples = Conformance.machine_examples

    @pytest.fixture(autouse=True)
    def cold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "LARGE_PAGES", 0)
        monkeypatch.setattr(reader, "disk_reads", count().__next__)
