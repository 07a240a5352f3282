"""The backend keeps the storage contract."""

from pathlib import Path

import pytest

from petstore_conformance import Conformance
from petstore_conformance.templates.file import FileTemplateSettings, backend


class TestFileTemplate(Conformance):
    """The clauses of the contract. Each gets a new file beside this one, which is not opened."""

    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """Set the settings that the scratch locations are made from."""
        type(self).settings = FileTemplateSettings(path=str(tmp_path / "pets.db"))
