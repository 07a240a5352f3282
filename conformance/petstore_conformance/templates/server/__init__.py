"""Pets and orders on a server, by an asynchronous client. `client.py` stands in for both.

**Until you replace it, everything is in a file of this machine.**
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from secrets import token_hex
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from petstore.contract import Access, Backend, ChangeNeededError, Expected, WrongStoreError
from petstore_conformance.templates.server.client import StandInClient, only
from petstore_conformance.templates.server.repository import ServerTemplateRepository
from petstore_conformance.templates.server.transactions import IDENTITY, GuardedStore, translated

__all__ = ["ServerTemplateRepository", "ServerTemplateSettings", "backend"]


class ServerTemplateSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the store is, how long a call may take, and how many calls the server gets at once."""

    url: Annotated[
        str, Meta(pattern="^server_template://.", description="the URL, server_template://FILE")
    ] = "server_template://server_template.db"
    prefix: Annotated[
        str, Meta(pattern="^[^/]+$", description="what all keys begin with, without a slash")
    ] = "petstore"
    timeout: Annotated[float, Meta(gt=0, description="a number of seconds above 0")] = 5
    requests: Annotated[int, Meta(ge=1, description="a number from 1")] = 10


@asynccontextmanager
async def open_server_template(
    settings: ServerTemplateSettings, expected: Expected
) -> AsyncIterator[ServerTemplateRepository]:
    """Connect, check which store is there, and create one if there is none.

    Raises `WrongStoreError` or `ChangeNeededError` if the store is not as expected. REPLACE: raise
    `SettingsError` for a wrong password, `UnavailableError` if the server cannot be reached.
    """
    with translated():
        client = StandInClient(settings.url, settings.prefix)
    async with aclosing(client):
        with translated():
            store = await _find_or_create(client, settings, expected)
        opened = GuardedStore(client, store, settings.timeout, settings.requests, expected.notes)
        await opened.read(only(IDENTITY))  # it may be an older copy
        yield ServerTemplateRepository(opened)


async def _find_or_create(
    client: StandInClient, settings: ServerTemplateSettings, expected: Expected
) -> str:
    """Return the identity of the store that is there, or of a new one."""
    store = await _find_store(client)
    where = f"{settings.url}, {settings.prefix},"
    if expected.store not in (None, store):
        raise WrongStoreError(f"{where} has {store or 'no store'}; {expected.store} is expected")
    if store is None:
        if expected.access is not Access.CREATE:
            raise ChangeNeededError(f"{where} has no store; it would be created")
        # On the condition that no other process has just created it.
        await client.request(None, {IDENTITY: None}, {IDENTITY: token_hex(16).encode()})
        store = await _find_store(client)
    return store or ""


async def _find_store(client: StandInClient) -> str | None:
    found = (await client.request(only(IDENTITY), {}, {})).found
    return found[0][1].decode() if found else None


@asynccontextmanager
async def scratch_server_template(
    settings: ServerTemplateSettings,
) -> AsyncIterator[ServerTemplateSettings]:
    """Yield the settings of a new prefix; remove what is stored under it on exit.

    REPLACE: yield those of a new prefix or database, and remove that, also after a failure.
    """
    scratch = replace(settings, prefix=f"{settings.prefix}.scratch-{token_hex(8)}")
    try:
        yield scratch
    finally:
        with translated():
            async with aclosing(StandInClient(scratch.url, scratch.prefix)) as client:
                await client.remove()


backend = Backend(
    contract=2,
    settings=ServerTemplateSettings,
    open=open_server_template,
    scratch=scratch_server_template,
    shared=True,  # REPLACE: claim only what your server keeps
    durable=True,
)
