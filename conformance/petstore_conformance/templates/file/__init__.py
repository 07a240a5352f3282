"""Pets and orders in a file, by an engine that blocks: here the standard library's sqlite3."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from petstore.contract import Backend, Expected
from petstore_conformance.templates.file.engine import Engine
from petstore_conformance.templates.file.repository import FileTemplateRepository

__all__ = ["FileTemplateRepository", "FileTemplateSettings", "backend"]


class FileTemplateSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the file is, and how long a call may take: hundreds may wait for the disk, in turn."""

    path: Annotated[str, Meta(min_length=1, description="the path of a file on a local disk")] = (
        "file_template.db"
    )
    timeout: Annotated[float, Meta(gt=0, description="a number of seconds above 0")] = 30


@asynccontextmanager
async def open_file_template(
    settings: FileTemplateSettings, expected: Expected
) -> AsyncIterator[FileTemplateRepository]:
    """Open the file, and close it when all calls have ended.

    Raises `SettingsError` for a file of others, `WrongStoreError` or `ChangeNeededError` if the
    store is not as expected, `UnavailableError` if the file cannot be opened.
    """
    engine = Engine(settings.path, settings.timeout, expected)  # blocks: nothing is served yet
    async with aclosing(engine):
        yield FileTemplateRepository(engine)


@asynccontextmanager
async def scratch_file_template(
    settings: FileTemplateSettings,
) -> AsyncIterator[FileTemplateSettings]:
    """Yield the settings of a new file beside the configured one; remove the file on exit."""
    path = f"{settings.path}.scratch-{token_hex(8)}"
    try:
        yield replace(settings, path=path)
    finally:
        _remove(path)


def _remove(path: str) -> None:
    for suffix in ("", "-journal"):
        Path(path + suffix).unlink(missing_ok=True)


backend = Backend(
    contract=2,
    settings=FileTemplateSettings,
    open=open_file_template,
    scratch=scratch_file_template,
    shared=False,  # the engine keeps the file locked: one process has it open
    durable=True,
)
