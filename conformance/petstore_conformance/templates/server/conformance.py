"""The backend keeps the storage contract."""

import asyncio
import os
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from petstore.contract import Expected, UnavailableError
from petstore_conformance import Conformance, RaisedOnPurposeError
from petstore_conformance.templates.server import ServerTemplateSettings, backend
from petstore_conformance.templates.server.client import StandInClient


class TestServerTemplate(Conformance):
    """The clauses of the contract, on the server that a developer or CI has."""

    backend = backend

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        """Set the settings that the scratch locations are made from."""
        type(self).settings = settings(tmp_path)


def settings(directory: Path) -> ServerTemplateSettings:
    """Return those of a running server. REPLACE the default."""
    default = f"server_template://{directory}/server_template.db"
    return ServerTemplateSettings(os.environ.get("SERVER_TEMPLATE_TEST_URL", default))


def test_a_scratch_location_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """The clauses cannot tell: to open a location might make it again.

    Others may use the server, so only what is made here counts. REPLACE `prefixes` by what lists
    the keys, tables or databases of your server.
    """

    async def run() -> None:
        async with (
            backend.scratch(settings(tmp_path)) as own,
            backend.open(own, Expected()),
            aclosing(StandInClient(own.url, own.prefix)) as client,
        ):
            with suppress(RaisedOnPurposeError):
                async with backend.scratch(own) as other, backend.open(other, Expected()):
                    assert await client.prefixes(own.prefix) == [own.prefix, other.prefix]
                    raise RaisedOnPurposeError
            assert await client.prefixes(own.prefix) == [own.prefix]

    asyncio.run(run())


def test_a_store_that_takes_the_place_of_the_open_one_is_not_served(tmp_path: Path) -> None:
    """No clause can put one there. REPLACE `remove` by what removes a store from your server."""

    async def run() -> None:
        async with backend.scratch(settings(tmp_path)) as own, backend.open(own, Expected()) as old:
            async with aclosing(StandInClient(own.url, own.prefix)) as client:
                await client.remove()
            async with backend.open(own, Expected()):
                with pytest.raises(UnavailableError):
                    await old.check()

    asyncio.run(run())
