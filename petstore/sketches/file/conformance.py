"""The backend keeps the storage contract."""

from pathlib import Path

import pytest

from petstore.conformance import Conformance
from petstore.sketches.file import FileSketchSettings, backend


class TestFileSketch(Conformance):
    """The clauses of the contract. Each gets a new file beside this one, which is not opened."""

    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """Set the settings that the scratch locations are made from."""
        type(self).settings = FileSketchSettings(path=str(tmp_path / "pets.db"))
