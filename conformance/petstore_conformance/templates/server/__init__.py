"""Pets and orders on a server, by an asynchronous client. `client.py` stands in for both.

**Until you replace it, everything is in the memory of this process, and lost when it ends.**
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct

from petstore.contract import Backend, ChangeNeededError, Expected, WrongStoreError
from petstore_conformance.templates.server import steps
from petstore_conformance.templates.server.client import connect
from petstore_conformance.templates.server.repository import ServerTemplateRepository

__all__ = ["ServerTemplateRepository", "ServerTemplateSettings", "backend"]


class ServerTemplateSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the server is, how long a call may take, and how many connections there are."""

    url: Annotated[
        str, Meta(pattern="^server_template://", description="a server_template:// URL")
    ] = "server_template://localhost"
    timeout: Annotated[float, Meta(gt=0, description="a number of seconds above 0")] = 5
    connections: Annotated[int, Meta(ge=1, description="a number from 1")] = 10


@asynccontextmanager
async def open_server_template(
    settings: ServerTemplateSettings, expected: Expected
) -> AsyncIterator[ServerTemplateRepository]:
    """Connect, check which store is there, and create one if there is none.

    Raises `WrongStoreError` or `ChangeNeededError` if the store is not as expected. REPLACE: raise
    `SettingsError` for a wrong password, `UnavailableError` if the server cannot be reached.
    """
    async with connect(settings.url) as client:
        store = await client.run(steps.read_store)
        if expected.store is not None and store != expected.store:
            found = store or "no store"
            raise WrongStoreError(f"{settings.url} has {found}; {expected.store} is expected")
        if store is None:
            if not expected.create:
                raise ChangeNeededError(f"{settings.url} has no store; it would be created")
            store = await client.run(steps.create_store)
        repository = ServerTemplateRepository(client, store, settings.timeout, settings.connections)
        try:
            yield repository
        finally:
            repository.close()


@asynccontextmanager
async def scratch_server_template(
    settings: ServerTemplateSettings,
) -> AsyncIterator[ServerTemplateSettings]:
    """Yield the settings: each connection of the stand-in has a memory of its own.

    REPLACE: yield those of a new database or prefix, and remove it on exit, also after a failure.
    """
    yield settings


backend = Backend(
    contract=2,
    settings=ServerTemplateSettings,
    open=open_server_template,
    scratch=scratch_server_template,
    shared=False,  # REPLACE: claim both as soon as a server keeps the data
    durable=False,
)
