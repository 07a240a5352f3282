"""The backend keeps the storage contract."""

import asyncio
from pathlib import Path
from tempfile import gettempdir

import pytest

from petstore.contract import Expected
from petstore_conformance import Conformance, RaisedOnPurposeError
from petstore_conformance.templates.file import FileTemplateSettings, backend


class TestFileTemplate(Conformance):
    """The clauses of the contract. Each gets a new file beside this one, which is not opened."""

    backend = backend
    settings = FileTemplateSettings(path=f"{gettempdir()}/pets.db")


def test_a_scratch_location_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """The clauses cannot tell: to open a location might make it again."""
    other = tmp_path / "pets.db.scratch"
    other.touch()
    settings = FileTemplateSettings(path=str(tmp_path / "pets.db"))

    async def run() -> None:
        async with backend.scratch(settings) as scratch, backend.open(scratch, Expected()):
            raise RaisedOnPurposeError

    with pytest.raises(RaisedOnPurposeError):
        asyncio.run(run())
    assert list(tmp_path.iterdir()) == [other]
