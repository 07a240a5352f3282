"""The backend keeps the storage contract."""

import os

from petstore_conformance import Conformance
from petstore_conformance.templates.server import ServerTemplateSettings, backend


class TestServerTemplate(Conformance):
    """The clauses of the contract, on the server that a developer or CI has."""

    backend = backend
    settings = ServerTemplateSettings(
        url=os.environ.get("SERVER_TEMPLATE_TEST_URL", "server_template://localhost")
    )
