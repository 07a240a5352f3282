"""The backend keeps the storage contract."""

import os

from petstore.conformance import Conformance
from petstore.sketches.server import ServerSketchSettings, backend


class TestServerSketch(Conformance):
    """The clauses of the contract, on the server that a developer or CI has."""

    backend = backend
    settings = ServerSketchSettings(
        url=os.environ.get("SERVER_SKETCH_TEST_URL", "server_sketch://localhost")
    )
