"""The SQLite backend keeps the storage contract."""

from pathlib import Path

import pytest
from petstore_sqlite import SqliteSettings, backend

from petstore.conformance import Conformance


class TestSqlite(Conformance):
    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        type(self).settings = SqliteSettings(path=str(tmp_path / "pets.sqlite"))
