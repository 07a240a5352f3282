"""The backend keeps the storage contract."""

import asyncio
import os
from contextlib import suppress

from petstore.contract import Expected, NewPet
from petstore_conformance import Conformance, RaisedOnPurposeError
from petstore_conformance.templates.server import ServerTemplateSettings, backend
from petstore_conformance.templates.server.client import connect


class TestServerTemplate(Conformance):
    """The clauses of the contract, on the server that a developer or CI has."""

    backend = backend
    settings = ServerTemplateSettings(
        url=os.environ.get("SERVER_TEMPLATE_TEST_URL", "server_template://localhost")
    )


def test_a_scratch_location_is_removed_and_nothing_else() -> None:
    """The clauses cannot tell: to open a location might make it again.

    REPLACE `stored` by what lists the keys, tables or databases of your server.
    """
    settings = TestServerTemplate.settings

    async def run() -> None:
        async with (
            connect(settings.url, settings.prefix) as client,
            backend.scratch(settings) as other,
            backend.open(other, Expected()) as repository,
        ):
            await repository.create_pet(NewPet("Rex", 7))
            before = await client.stored()
            with suppress(RaisedOnPurposeError):
                async with backend.scratch(other) as scratch, backend.open(scratch, Expected()):
                    assert await client.stored() == {**before, scratch.prefix: 0}
                    raise RaisedOnPurposeError
            assert await client.stored() == before

    asyncio.run(run())
