"""Pets and orders on a server, by an asynchronous client. `client.py` stands in for both.

**Until you replace it, everything is in the memory of this process, and lost when it ends.**
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from petstore.contract import Access, Backend, ChangeNeededError, Expected, WrongStoreError
from petstore_conformance.templates.common import steps
from petstore_conformance.templates.common.repository import AnyTemplateRepository
from petstore_conformance.templates.server.client import connect
from petstore_conformance.templates.server.connections import Connections

__all__ = ["AnyTemplateRepository", "ServerTemplateSettings", "backend"]


class ServerTemplateSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the store is, how long a call may take, and how many connections there are."""

    url: Annotated[
        str, Meta(pattern="^server_template://", description="the URL, server_template://HOST")
    ] = "server_template://localhost"
    prefix: Annotated[str, Meta(min_length=1, description="what all keys begin with")] = "petstore"
    timeout: Annotated[float, Meta(gt=0, description="a number of seconds above 0")] = 5
    connections: Annotated[int, Meta(ge=1, description="a number from 1")] = 10


@asynccontextmanager
async def open_server_template(
    settings: ServerTemplateSettings, expected: Expected
) -> AsyncIterator[AnyTemplateRepository]:
    """Connect, check which store is there, and create one if there is none.

    Raises `WrongStoreError` or `ChangeNeededError` if the store is not as expected. REPLACE: raise
    `SettingsError` for a wrong password, `UnavailableError` if the server cannot be reached.
    """
    async with connect(settings.url, settings.prefix) as client:
        store, where = await client.run(steps.read_store), f"{settings.url}, {settings.prefix},"
        if expected.store is not None and store != expected.store:
            found = store or "no store"
            raise WrongStoreError(f"{where} has {found}; {expected.store} is expected")
        if store is None:
            if expected.access is not Access.CREATE:
                raise ChangeNeededError(f"{where} has no store; it would be created")
            store = await client.run(steps.create_store)
        connections = Connections(client, settings.timeout, settings.connections)
        try:
            yield AnyTemplateRepository(connections, store)
        finally:
            connections.close()


@asynccontextmanager
async def scratch_server_template(
    settings: ServerTemplateSettings,
) -> AsyncIterator[ServerTemplateSettings]:
    """Yield the settings of a new prefix; remove what is stored under it on exit.

    REPLACE: yield those of a new prefix or database, and remove that, also after a failure. What is
    stored under a prefix must not be found under another one that it begins with.
    """
    scratch = replace(settings, prefix=f"{settings.prefix}.scratch-{token_hex(8)}")
    try:
        yield scratch
    finally:
        async with connect(scratch.url, scratch.prefix) as client:
            await client.remove()


backend = Backend(
    contract=2,
    settings=ServerTemplateSettings,
    open=open_server_template,
    scratch=scratch_server_template,
    shared=False,  # REPLACE: claim both as soon as a server keeps the data
    durable=False,
)
