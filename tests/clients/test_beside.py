"""The service beside pydantic, attrs and Jinja: Litestar adds options of its own if it finds them.

They are in the environment of the Python client's generator, which `make check-all` installs.
"""

import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND
from tests.support.environments import programs
from tests.support.services import environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

LOCK = Path(__file__).parent / "python/requirements.lock"

PLUGINS = """
from litestar import Litestar
names = {type(plugin).__name__ for plugin in Litestar().plugins}
assert {"PydanticPlugin", "AttrsSchemaPlugin"} <= names, names
"""

CREATE = """
from petstore.config import discovery
from petstore.config.keys import Keys
from petstore.config.loading import Configuration
from petstore.config.settings import Settings
from petstore.http.app import create_app
plugin = discovery.find("memory")
create_app(Configuration(Settings(), plugin, plugin.backend.settings(), Keys()))
"""


def test_the_service_is_the_same_beside_what_litestar_looks_for() -> None:
    (packages,) = (programs("clients", LOCK).parent / "lib").glob("python*/site-packages")
    alone = environment()
    beside = alone | {"PYTHONPATH": f"{packages}:{Path.cwd()}"}
    subprocess.run([COMMAND[0], "-c", PLUGINS], env=beside, check=True)
    documents = {
        subprocess.run([*COMMAND, "openapi"], env=env, check=True, capture_output=True).stdout
        for env in (alone, beside)
    }
    assert len(documents) == 1
    subprocess.run([COMMAND[0], "-c", CREATE], env=beside, check=True)
