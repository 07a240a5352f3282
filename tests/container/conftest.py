"""An engine with the image of the service, shared by all tests of containers."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from petstore import __version__
from tests.container.engine import DOCKER, Engine, default_of


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Create the base images and build the image; remove everything at the end."""
    engine = Engine(Path(tempfile.mkdtemp(prefix="petstore-")))
    try:
        compose = (DOCKER / "compose.yaml").read_text()
        storage = set(re.findall(r"image: (valkey/.+)", compose))
        [postgres] = re.findall(r"image: (postgres:.+)", compose)
        engine.make_base(default_of("BASE"), *storage, postgres=postgres)
        engine.build("petstore", VERSION=__version__)
        yield engine
    finally:
        engine.remove()
