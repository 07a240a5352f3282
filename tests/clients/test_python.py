"""The Python client that openapi-python-client generates from a running service's document.

The generator has its own environment: it needs pydantic, and Litestar behaves differently if it can
import that. `make check-all` runs this, `make test` does not.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.clients.page import addressed, block, commands, run
from tests.support.environments import programs
from tests.support.services import Live, Start

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

LOCK: Final = Path(__file__).parent / "python/requirements.lock"
GENERATE, START = commands("openapi-python-client")
(START_SHORT,) = commands("petstore.py")


@pytest.fixture(scope="module")
def path() -> str:
    """Install the generator; return a PATH that begins with its directory."""
    return f"{programs('clients', LOCK)}:{os.environ['PATH']}"


@pytest.fixture
def client(path: str, fresh: Live, tmp_path: Path) -> Path:
    """Generate the client; return its directory."""
    run(f"{GENERATE} --fail-on-warning", fresh, tmp_path, path)
    return tmp_path


def test_the_script_of_the_page_prints_the_output_shown(
    client: Path, fresh: Live, path: str
) -> None:
    (client / "first.py").write_text(addressed(block("python", "petstore_client"), fresh))
    for _ in range(2):  # the second time on a store with pets and orders
        assert run(START, fresh, client, path) == block("text", "replayed")


def test_the_short_client_of_the_page_waits_and_repeats(
    start: Start, tmp_path: Path, path: str
) -> None:
    live = start(rate_limit="3/s")
    (tmp_path / "petstore.py").write_text(addressed(block("python", "class Petstore:"), live))
    assert run(START_SHORT, live, tmp_path, path) == block("text", "ordered")
    assert '"status":429' in live.log.read_text()
