"""The TypeScript client that openapi-typescript generates from a running service's document.

Needs Node.js and npm; `make check-all` runs this, `make test` does not. To update the lock file,
in tests/clients/typescript:
  npm install --save-exact --package-lock-only --omit-lockfile-registry-resolved=true NAME@VERSION
openapi-typescript 7 requires TypeScript 5.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.clients.page import addressed, block, commands, run
from tests.support.environments import node_modules
from tests.support.services import Live, Start

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]

HERE: Final = Path(__file__).parent / "typescript"
PATH: Final = os.environ["PATH"]
GENERATE, START = commands("openapi-typescript")
(START_SHORT,) = commands("petstore.mts")


@pytest.fixture
def client(fresh: Live, tmp_path: Path) -> Path:
    """Generate the client; return its directory."""
    (tmp_path / "node_modules").symlink_to(node_modules(HERE))
    assert "⚠" not in run(f"{GENERATE} 2>&1", fresh, tmp_path, PATH), "the generator's warnings"
    return tmp_path


def test_the_script_of_the_page_prints_the_output_shown(client: Path, fresh: Live) -> None:
    (client / "first.mts").write_text(addressed(block("ts", "openapi-fetch"), fresh))
    for _ in range(2):  # the second time on a store with pets and orders
        assert run(START, fresh, client, PATH) == block("text", "replayed")


def test_a_client_walks_through_the_interface(client: Path, fresh: Live) -> None:
    (client / "walk.mts").write_text(addressed((HERE / "walk.mts").read_text(), fresh))
    run(START.replace("first", "walk"), fresh, client, PATH)


def test_the_short_client_of_the_page_waits_and_repeats(start: Start, tmp_path: Path) -> None:
    live = start(rate_limit="3/s")
    (tmp_path / "node_modules").symlink_to(node_modules(HERE))
    (tmp_path / "petstore.mts").write_text(addressed(block("ts", "class Petstore"), live))
    assert run(START_SHORT, live, tmp_path, PATH) == block("text", "ordered")
    assert '"status":429' in live.log.read_text()
